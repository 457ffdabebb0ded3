"""Ask NVML what this machine has: no torch, no CUDA context, well under a millisecond after the import.

Each question is asked on its own: a device that is lost, or a driver that does
not know a question, must not hide the rest.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from ci.devices.masks import select_devices, usable_devices
from ci.devices.model import Device, GpuProcess, Inventory, NvmlFault

T = TypeVar("T")

LIBRARY_NOT_FOUND = -1
"""Stands for "the library itself is missing" where NVML's own return codes start at 0."""


def probe_devices(environ: Mapping[str, str]) -> Inventory:
    """Take the inventory, seen through the `CUDA_VISIBLE_DEVICES` of `environ`; never raises for a broken machine."""
    mask = environ.get("CUDA_VISIBLE_DEVICES")
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError as error:
        message = f"the Python package nvidia-ml-py cannot be imported: {error}"
        return Inventory(mask=mask, fault=NvmlFault(code=LIBRARY_NOT_FOUND, message=message))
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Inventory(mask=mask, fault=_describe_fault(nvml, error))
    try:
        return _take_inventory(nvml, mask=mask, order=environ.get("CUDA_DEVICE_ORDER", ""))
    finally:
        nvml.nvmlShutdown()


def _describe_fault(nvml: Any, error: Any) -> NvmlFault:
    if error.value == nvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        return NvmlFault(code=LIBRARY_NOT_FOUND, message="libnvidia-ml.so.1 was not found")
    return NvmlFault(code=error.value, message=str(error))


def _take_inventory(nvml: Any, *, mask: str | None, order: str) -> Inventory:
    every: list[Device] = []
    try:
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        return Inventory(mask=mask, fault=_describe_fault(nvml, error))
    for index in range(count):
        every += _probe_gpu(nvml, index)
    cuda = _ask(nvml, nvml.nvmlSystemGetCudaDriverVersion, default=0)
    selection = select_devices(mask, every)
    notes = [selection.reason] if selection.reason else []
    numbers = mask is not None and mask.strip()[:1].isdigit()
    if numbers and order != "PCI_BUS_ID" and len({device.name for device in every if device.name}) > 1:
        notes.append(
            "CUDA_VISIBLE_DEVICES holds numbers, the GPUs differ and CUDA_DEVICE_ORDER is not PCI_BUS_ID: CUDA may"
            " count in another order than NVML (numbers are read in PCI order here; UUIDs leave no doubt)"
        )
    chosen = {device.uuid or device.index for device in selection.devices}
    return Inventory(
        devices=selection.devices,
        hidden=tuple(device for device in usable_devices(every) if (device.uuid or device.index) not in chosen),
        driver=_ask(nvml, nvml.nvmlSystemGetDriverVersion, default=""),
        driver_cuda=(cuda // 1000, cuda % 1000 // 10) if cuda else None,
        nvml_version=_ask(nvml, nvml.nvmlSystemGetNVMLVersion, default=""),
        mask=mask,
        ignored=selection.ignored,
        notes=tuple(notes),
    )


def _probe_gpu(nvml: Any, index: int) -> list[Device]:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        return [Device(index=index, fault=str(error))]
    uuid = ""
    try:
        uuid = nvml.nvmlDeviceGetUUID(handle)
        mode = _ask(nvml, nvml.nvmlDeviceGetMigMode, handle, default=(0, 0))[0]
        bare = Device(index=index, uuid=uuid, partitioned=bool(mode))
        gpu = _probe_health(nvml, handle, _probe_use(nvml, handle, bare))
        return [gpu, *_probe_instances(nvml, handle, gpu)] if mode else [gpu]
    except nvml.NVMLError as error:
        return [Device(index=index, uuid=uuid, fault=str(error))]


def _probe_instances(nvml: Any, handle: Any, gpu: Device) -> list[Device]:
    found = []
    for position in range(_ask(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, handle, default=0)):
        try:
            instance = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, position)
        except nvml.NVMLError_NotFound:
            continue  # positions of instances are sparse
        numbers = (
            _ask(nvml, nvml.nvmlDeviceGetGpuInstanceId, instance, default=0),
            _ask(nvml, nvml.nvmlDeviceGetComputeInstanceId, instance, default=0),
        )
        # Health belongs to the GPU: an instance starts out with its answers.
        bare = replace(
            gpu,
            uuid=nvml.nvmlDeviceGetUUID(instance),
            parent=gpu.uuid,
            legacy_name=f"MIG-{gpu.uuid}/{numbers[0]}/{numbers[1]}",
            partitioned=False,
        )
        found.append(_probe_use(nvml, instance, bare))
    return found


def _probe_use(nvml: Any, handle: Any, device: Device) -> Device:
    """Ask what the device is and who uses it."""
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    capability = _ask(nvml, nvml.nvmlDeviceGetCudaComputeCapability, handle, default=None)
    return replace(
        device,
        name=nvml.nvmlDeviceGetName(handle),
        capability=tuple(capability) if capability else device.capability,
        memory_total=memory.total,
        memory_free=memory.free,
        processes=_probe_processes(nvml, handle),
    )


def _probe_health(nvml: Any, handle: Any, device: Device) -> Device:
    """Ask a GPU whether its hardware is sound."""
    errors = (nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
    mode = _ask(nvml, nvml.nvmlDeviceGetComputeMode, handle, default=nvml.NVML_COMPUTEMODE_DEFAULT)
    pending, failed = _probe_remap(nvml, handle)
    return replace(
        device,
        ecc_uncorrected=_ask(nvml, nvml.nvmlDeviceGetTotalEccErrors, handle, *errors, default=None),
        remap_pending=pending,
        remap_failed=failed,
        prohibited=mode == nvml.NVML_COMPUTEMODE_PROHIBITED,
    )


def _probe_remap(nvml: Any, handle: Any) -> tuple[bool, bool]:
    rows = _ask(nvml, nvml.nvmlDeviceGetRemappedRows, handle, default=None)
    if rows is not None:
        return bool(rows[2]), bool(rows[3])
    # GPUs before Ampere retire pages instead of remapping rows.
    return bool(_ask(nvml, nvml.nvmlDeviceGetRetiredPagesPendingStatus, handle, default=0)), False


def _probe_processes(nvml: Any, handle: Any) -> tuple[GpuProcess, ...]:
    found = _ask(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle, default=None)
    if found is None:  # a driver older than the third version of this question
        found = _ask(nvml, nvml.nvmlDeviceGetComputeRunningProcesses_v2, handle, default=[])
    return tuple(
        GpuProcess(pid=one.pid, name=read_process_name(one.pid), memory=one.usedGpuMemory)
        for one in sorted(found, key=lambda process: process.pid)
    )


def read_process_name(pid: int) -> str:
    """Name a process by its program, and by its script or module for an interpreter.

    Other arguments are left out: the name goes into logs that strangers read, and
    arguments hold secrets. A process that this container cannot see is named so.
    """
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return "a process that cannot be seen from here"
    return name_process(words)


def name_process(words: Sequence[str]) -> str:
    """Name a process by its argument vector: `python train.py`, `python -m pytest`, `nvidia-smi`."""
    program = words[0].rpartition("/")[2] if words else ""
    if not program:
        return "a process without a name"
    if not program.startswith("python"):
        return program
    for place, word in enumerate(words[1:], start=1):
        if word == "-m":
            return " ".join([program, *words[place : place + 2]])
        if word and not word.startswith("-"):
            return f"{program} {word.rpartition('/')[2]}"
        if word == "-c":
            return f"{program} -c"
    return program


def _ask(nvml: Any, question: Callable[..., T], *arguments: Any, default: Any) -> Any:
    """Ask one question; a driver or device that does not know it answers with the default."""
    try:
        return question(*arguments)
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound, nvml.NVMLError_NoPermission):
        return default
