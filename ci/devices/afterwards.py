"""After a run: the same processes are gone, the memory is back, the hardware counts no new fault."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from ci.devices.checks import check_reachable, check_remap
from ci.devices.model import GIB, Device, Inventory
from ci.devices.probe import probe_devices
from ci.report.model import Problem

MEMORY_TOLERANCE = 256 * 1024**2
"""Bytes that the driver may keep after a run (page tables, an idle context of its own)."""

SETTLE_LIMIT = 5.0
"""Seconds in which a device's memory must be back; the driver frees it after the process is gone."""

PAUSE = 0.2


def verify_afterwards(
    before: Sequence[Device],
    *,
    environ: Mapping[str, str],
    limit: float = SETTLE_LIMIT,
    probe: Callable[[Mapping[str, str]], Inventory] = probe_devices,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Problem]:
    """Probe until the devices are as they were, for at most `limit` seconds; gives what is still wrong then."""
    if all(device.simulated for device in before):
        return []
    end = clock() + limit
    while True:
        problems = check_afterwards(before, probe(environ))
        if not problems or clock() >= end:
            return problems
        sleep(PAUSE)


def check_afterwards(before: Sequence[Device], after: Inventory) -> list[Problem]:
    """Compare devices after a run with the same ones before it."""
    if after.fault is not None:
        hint = "the driver was fit before the run: `dmesg` shows what happened"
        return [Problem(check="afterwards", message=f"NVML cannot be used any more: {after.fault.message}", hint=hint)]
    now = {device.uuid: device for device in (*after.devices, *after.hidden) if device.uuid}
    problems: list[Problem] = []
    for device in before:
        if device.uuid not in now:
            text = f"{device.label} ({device.uuid}) has gone during the run"
            problems.append(_problem("reachable", device, text, "it fell off the bus or was reset: see `dmesg`"))
        else:
            problems += _compare(device, now[device.uuid])
    return problems


def _compare(before: Device, after: Device) -> list[Problem]:
    problems = [*check_reachable(after)] if after.fault else [*check_remap(after)]
    known = {process.pid for process in before.processes}
    left = [process for process in after.processes if process.pid not in known]
    if left:
        text = f"{after.label} is still used after the run by {', '.join(map(str, left))}"
        problems.append(_problem("processes", after, text, "a test left it behind; the sweep should have ended it"))
    missing = before.memory_free - after.memory_free
    if not left and not after.fault and missing > MEMORY_TOLERANCE:
        text = f"{after.label} has {missing / GIB:.1f} GiB less free memory than before the run, and no process owns it"
        problems.append(_problem("memory", after, text, "reset the GPU, or look for a process of another container"))
    fresh = (after.ecc_uncorrected or 0) - (before.ecc_uncorrected or 0)
    if fresh > 0:
        text = f"{after.label} counted {fresh} uncorrected ECC error(s) during the run"
        problems.append(_problem("ecc", after, text, "do not trust the results; drain the machine and reset the GPU"))
    return problems


def _problem(check: str, device: Device, message: str, hint: str) -> Problem:
    return Problem(check=f"after: {check}", message=message, hint=hint, devices=(device.uuid,))
