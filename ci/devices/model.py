"""The values of a machine's devices. Sizes are in bytes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from ci.report.model import DeviceRecord

GIB = 1024**3


@dataclass(frozen=True, kw_only=True)
class GpuProcess:
    """A process with a CUDA context on a device; `memory` is None where the driver does not tell."""

    pid: int
    name: str
    memory: int | None = None

    def __str__(self) -> str:
        """Name the process as people look for it."""
        size = "" if self.memory is None else f", {self.memory / GIB:.1f} GiB"
        return f"{self.name} (pid {self.pid}{size})"


@dataclass(frozen=True, kw_only=True)
class Device:
    """A CUDA device: a whole GPU, or one MIG instance of it (then `parent` is the GPU's UUID).

    `index` is the GPU's number in NVML, which follows the PCI bus. `fault` holds
    the driver's words when the device cannot be asked; then the other fields are
    what was learnt before. `ecc_uncorrected` is None where ECC is off or absent.
    `partitioned` marks a GPU in MIG mode, of which only the instances can be used.
    """

    index: int
    uuid: str = ""
    name: str = ""
    capability: tuple[int, int] | None = None
    memory_total: int = 0
    memory_free: int = 0
    processes: tuple[GpuProcess, ...] = ()
    ecc_uncorrected: int | None = None
    remap_pending: bool = False
    remap_failed: bool = False
    prohibited: bool = False
    parent: str = ""
    legacy_name: str = ""
    partitioned: bool = False
    fault: str = ""
    simulated: bool = False

    @property
    def label(self) -> str:
        """Name the device as messages do: `GPU 1`, `MIG 1 (MIG-5c89...)`, `simulated 0`."""
        if self.simulated:
            return f"simulated {self.index}"
        return f"MIG {self.index} ({self.uuid[:12]})" if self.parent else f"GPU {self.index}"

    @property
    def is_mig(self) -> bool:
        """Whether this is a MIG instance; a process can use only one of them."""
        return bool(self.parent)


@dataclass(frozen=True, kw_only=True)
class NvmlFault:
    """Why NVML could not be used at all: its return code (-1: the library was not found) and words."""

    code: int
    message: str


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """The devices that a process of this environment may use, and what hides the others.

    `devices` are visible after the mask, in its order; `hidden` are the others.
    `mask` is the text of CUDA_VISIBLE_DEVICES (None: not set); `ignored` its
    entries that name nothing or stand behind one that names nothing.
    `driver_cuda` is the newest CUDA version that the driver runs.
    """

    devices: tuple[Device, ...] = ()
    hidden: tuple[Device, ...] = ()
    driver: str = ""
    driver_cuda: tuple[int, int] | None = None
    nvml_version: str = ""
    mask: str | None = None
    ignored: tuple[str, ...] = ()
    fault: NvmlFault | None = None
    notes: tuple[str, ...] = ()

    @property
    def simulated(self) -> bool:
        """Whether these devices exist only by name."""
        return any(device.simulated for device in self.devices)

    def records(self) -> tuple[DeviceRecord, ...]:
        """Give the devices as a report names them."""
        return tuple(record_device(device, driver=self.driver) for device in self.devices)


def record_device(device: Device, *, driver: str) -> DeviceRecord:
    """Give one device as a report names it."""
    return DeviceRecord(
        uuid=device.uuid,
        index=device.index,
        name=device.name,
        capability=".".join(map(str, device.capability)) if device.capability else "",
        memory=device.memory_total,
        driver=driver,
        simulated=device.simulated,
    )


def simulate_devices(count: int, *, scope: Path) -> Inventory:
    """Give `count` devices that exist only by name, for ranks on the CPU.

    Their UUIDs depend on `scope` (the repository): two runs of one repository
    share a simulated pool as they would share a real one, and a run that a test
    of another repository starts does not wait for the one around it.
    """
    mark = hashlib.sha256(str(scope).encode()).hexdigest()[:12]
    devices = tuple(
        Device(index=index, uuid=f"SIM-{mark}-{index}", name="simulated", simulated=True) for index in range(count)
    )
    return Inventory(devices=devices)
