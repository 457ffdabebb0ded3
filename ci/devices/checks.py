"""Requirement + Inventory -> problems and notes: pure, one function and one message per check.

A fault of the hardware (lost, ECC, remap) is a problem even where enough other
devices are left, because such a machine needs a look. A device that is merely in
use is left out with a note as long as enough others are free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ci.devices.model import GIB, Device, Inventory
from ci.devices.probe import LIBRARY_NOT_FOUND
from ci.devices.requirement import Requirement
from ci.report.model import Problem

ERROR_HINTS = {
    LIBRARY_NOT_FOUND: "this machine has no NVIDIA driver, or this container was started without its GPUs (--gpus all)",
    4: "NVML refuses this user: check the permissions of /dev/nvidia*",  # NVML_ERROR_NO_PERMISSION
    9: "the kernel module is not loaded: `modprobe nvidia`, or `nvidia-smi` as root",  # NVML_ERROR_DRIVER_NOT_LOADED
    18: "the library and the loaded kernel module differ, as after a driver update: reboot, or reload the module",
    # ^ NVML_ERROR_LIB_RM_VERSION_MISMATCH
}
"""What to do for NVML's return codes (nvml.h, nvmlReturn_t)."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What the pure checks found: fit devices, problems that end the run, notes that a reader must see."""

    devices: tuple[Device, ...] = ()
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()


def check_devices(requirement: Requirement, inventory: Inventory, *, held: frozenset[str] = frozenset()) -> Judgement:
    """Judge an inventory; `held` are devices that another run of ours has locked, which is no fault of theirs.

    All problems are listed. Busy devices that are not needed are left out with a note.
    """
    if inventory.fault is not None:
        return Judgement(problems=tuple(check_nvml(inventory)))
    notes = [*inventory.notes, *check_versions(inventory)]
    problems: list[Problem] = []
    for check in DEVICE_CHECKS:
        problems += [problem for device in inventory.devices for problem in check(device)]
    broken = {device for problem in problems for device in problem.devices}
    reachable = [device for device in inventory.devices if not device.fault and device.uuid not in broken]
    busy = [
        problem
        for device in reachable
        if device.uuid not in held
        for problem in (*check_processes(device), *check_memory(device, requirement))
    ]
    used = {uuid for problem in busy for uuid in problem.devices}
    fit = [device for device in reachable if device.uuid not in used]
    if len(fit) < requirement.devices:
        problems += busy
        problems += check_count(requirement, inventory, fit)
        return Judgement(devices=tuple(fit), problems=tuple(problems), notes=tuple(notes))
    notes += [f"{problem.message}; left out, {len(fit)} other device(s) are free" for problem in busy]
    return Judgement(devices=tuple(fit), problems=tuple(problems), notes=tuple(notes))


def check_nvml(inventory: Inventory) -> list[Problem]:
    """Check that NVML loads and talks to the driver."""
    fault = inventory.fault
    if fault is None:
        return []
    hint = ERROR_HINTS.get(fault.code, "run `nvidia-smi`: it must list the GPUs")
    return [Problem(check="nvml", message=f"NVML cannot be used: {fault.message}", hint=hint)]


def check_versions(inventory: Inventory) -> list[str]:
    """Note when NVML and the kernel module are of two driver branches (12.580.65 belongs to 580.65).

    Only a note: a driver that truly does not match refuses NVML with a code of
    its own, and under WSL the two differ by design.
    """
    library = inventory.nvml_version.split(".")[1:2]
    driver = inventory.driver.split(".")[:1]
    if not library or not driver or library == driver:
        return []
    return [f"NVML {inventory.nvml_version} is of another branch than the driver {inventory.driver}"]


def check_count(requirement: Requirement, inventory: Inventory, fit: Sequence[Device]) -> list[Problem]:
    """Check that enough devices are left after the mask and the other checks."""
    words = [f"{requirement.devices} CUDA device(s) are needed for {requirement.stage}, {len(fit)} can be used"]
    if inventory.simulated:
        return [Problem(check="count", message=words[0], hint=f"--simulate {requirement.devices} gives enough")]
    shown = len(inventory.devices)
    if inventory.mask is not None:
        words.append(f"CUDA_VISIBLE_DEVICES={inventory.mask!r} shows {shown} and hides {len(inventory.hidden)}")
        words += [note for note in inventory.notes if note.startswith("CUDA_VISIBLE_DEVICES")]
    else:
        words.append(f"the machine has {shown}")
    if shown >= requirement.devices:
        hint = "the other problems say why the rest cannot be used"
    else:
        hint = "widen CUDA_VISIBLE_DEVICES" if inventory.hidden else "choose a machine with more devices"
    return [Problem(check="count", message="; ".join(words), hint=hint)]


def check_reachable(device: Device) -> list[Problem]:
    """Check that the device answers."""
    if not device.fault:
        return []
    hint = "reset it (`nvidia-smi --gpu-reset`) or reboot; `dmesg` shows the Xid event"
    return [_problem("reachable", device, f"{device.label} does not answer: {device.fault}", hint)]


def check_ecc(device: Device) -> list[Problem]:
    """Check that the memory has shown no uncorrected error since the driver was loaded."""
    if not device.ecc_uncorrected:
        return []
    text = f"{device.label} has {device.ecc_uncorrected} uncorrected ECC error(s) since the driver was loaded"
    return [_problem("ecc", device, text, "drain the machine and reset the GPU; replace it if the errors return")]


def check_remap(device: Device) -> list[Problem]:
    """Check that no bad row or page of memory waits for a reset, and that none failed to be replaced."""
    if device.remap_failed:
        text = f"{device.label} could not replace a bad row of memory: it has no spare row left"
        return [_problem("remap", device, text, "the GPU is to be replaced")]
    if device.remap_pending:
        text = f"{device.label} has a bad row of memory that is replaced at the next reset only"
        return [_problem("remap", device, text, "drain the machine and reset the GPU (`nvidia-smi --gpu-reset`)")]
    return []


def check_mode(device: Device) -> list[Problem]:
    """Check that the device lets processes compute."""
    if not device.prohibited:
        return []
    text = f"{device.label} is in compute mode PROHIBITED"
    return [_problem("mode", device, text, f"`nvidia-smi -i {device.index} -c DEFAULT` as root")]


def check_processes(device: Device) -> list[Problem]:
    """Check that no process of others has a CUDA context on the device."""
    if not device.processes:
        return []
    names = ", ".join(map(str, device.processes))
    hint = "wait for it, end it, or hide the device with CUDA_VISIBLE_DEVICES"
    return [_problem("processes", device, f"{device.label} is used by {names}", hint)]


def check_memory(device: Device, requirement: Requirement) -> list[Problem]:
    """Check that enough of the device's memory is free."""
    if device.memory_free >= requirement.free_fraction * device.memory_total:
        return []
    text = (
        f"{device.label} has {device.memory_free / GIB:.1f} of {device.memory_total / GIB:.1f} GiB free,"
        f" {requirement.free_fraction:.0%} must be"
    )
    return [
        _problem("memory", device, text, "end what holds the memory; a process in a container may be invisible here")
    ]


DEVICE_CHECKS: tuple[Callable[[Device], list[Problem]], ...] = (check_reachable, check_mode, check_ecc, check_remap)
"""The checks of one device that nothing excuses, in the order in which they are told."""


def _problem(check: str, device: Device, message: str, hint: str) -> Problem:
    return Problem(check=check, message=message, hint=hint, devices=(device.uuid or f"index {device.index}",))
