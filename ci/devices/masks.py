"""CUDA_VISIBLE_DEVICES -> the devices that CUDA would show, by the driver's own rules.

Source: CUDA C++ Programming Guide, "CUDA Environment Variables". The form of
the first entry (a number, `GPU-...`, `MIG-...`) is the form of the list; a UUID
may be cut short as long as it stays unique; the first entry that names nothing
hides itself and everything behind it; a device named twice hides everything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ci.devices.model import Device

Find = Callable[[str, Sequence[Device]], "Device | None"]
LEADING_NUMBER = re.compile(r"[+-]?\d+")


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What a mask shows: devices in its order, the entries without effect, and why."""

    devices: tuple[Device, ...]
    ignored: tuple[str, ...] = ()
    reason: str = ""


def select_devices(mask: str | None, devices: Sequence[Device]) -> Selection:
    """Apply a mask to all devices of a machine (GPUs, and MIG instances behind their GPU).

    Without a mask (None) every GPU and every MIG instance is shown: children are
    given one UUID each, so CUDA's own limit to the first instance does not bind.
    """
    if mask is None:
        return Selection(devices=usable_devices(devices))
    entries = [entry.strip() for entry in mask.split(",")]
    if entries == [""]:
        return Selection(devices=(), reason="CUDA_VISIBLE_DEVICES is empty, which hides every device")
    find = _finder(entries[0])
    chosen: list[Device] = []
    for position, entry in enumerate(entries):
        device = find(entry, devices)
        if device is None:
            rest = tuple(entries[position:])
            return Selection(devices=tuple(chosen), ignored=rest, reason=_why_ignored(rest))
        if device in chosen:
            reason = f"CUDA_VISIBLE_DEVICES names {device.label} twice ({entry!r}), which hides every device"
            return Selection(devices=(), ignored=tuple(entries), reason=reason)
        chosen.append(device)
    return Selection(devices=tuple(chosen))


def usable_devices(devices: Sequence[Device]) -> tuple[Device, ...]:
    """Leave out GPUs in MIG mode: CUDA can only use their instances."""
    return tuple(device for device in devices if not device.partitioned)


def _finder(first: str) -> Find:
    if first.startswith("GPU-"):
        return _find_gpu
    return _find_mig if first.startswith("MIG-") else _find_number


def _find_number(entry: str, devices: Sequence[Device]) -> Device | None:
    match = LEADING_NUMBER.match(entry)
    if match is None or int(match.group()) < 0:
        return None
    gpu = next((one for one in devices if not one.parent and one.index == int(match.group())), None)
    return _first_instance(gpu, devices)


def _find_gpu(entry: str, devices: Sequence[Device]) -> Device | None:
    gpus = [one for one in devices if not one.parent and one.uuid.startswith(entry)]
    return _first_instance(gpus[0], devices) if entry.startswith("GPU-") and len(gpus) == 1 else None


def _find_mig(entry: str, devices: Sequence[Device]) -> Device | None:
    if not entry.startswith("MIG-"):
        return None
    instances = [one for one in devices if one.parent]
    exact = [one for one in instances if one.legacy_name == entry]
    found = exact or [one for one in instances if one.uuid.startswith(entry)]
    return found[0] if len(found) == 1 else None


def _first_instance(gpu: Device | None, devices: Sequence[Device]) -> Device | None:
    if gpu is None or not gpu.partitioned:
        return gpu
    return next((one for one in devices if one.parent == gpu.uuid), None)


def _why_ignored(rest: tuple[str, ...]) -> str:
    behind = f", and CUDA ignores what stands behind it: {', '.join(rest[1:])}" if len(rest) > 1 else ""
    return f"CUDA_VISIBLE_DEVICES: {rest[0]!r} names no device of this machine{behind}"
