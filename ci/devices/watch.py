"""Listen for Xid events while a run goes on: what the driver says about a device, as it says it."""

from __future__ import annotations

import contextlib
import importlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ci.devices.model import Device
from ci.report.model import Problem

WAIT_MILLISECONDS = 200
"""How long one wait for an event lasts; also how long the end of a watch may take."""

APPLICATION_XIDS = {
    13: "graphics engine exception, such as an access out of bounds",
    31: "memory page fault",
    43: "the GPU stopped processing",
    45: "work of a dead process was removed",
    69: "graphics engine class error",
}
"""Xid events that a faulty program causes by itself. Source: NVIDIA, "XID Errors"; all others speak of the machine."""


@dataclass(frozen=True, kw_only=True)
class XidEvent:
    """One event: when (seconds since the epoch), on which device (UUID of the GPU), which number."""

    time: float
    uuid: str
    code: int

    @property
    def is_application(self) -> bool:
        """Whether a program's own fault explains the event, so that it says nothing about the machine."""
        return self.code in APPLICATION_XIDS

    def __str__(self) -> str:
        """Say the event in words."""
        words = APPLICATION_XIDS.get(self.code, "a fault of the device, its driver or its links")
        return f"Xid {self.code} on {self.uuid}: {words}"


def check_events(events: Sequence[XidEvent]) -> list[Problem]:
    """Give one problem per event that speaks of the machine and not of a program."""
    hint = "`dmesg` has the details; https://docs.nvidia.com/deploy/xid-errors/ explains the number"
    return [
        Problem(check="xid", message=str(event), hint=hint, devices=(event.uuid,))
        for event in events
        if not event.is_application
    ]


@contextlib.contextmanager
def watch_devices(
    devices: Sequence[Device], *, tell: Callable[[XidEvent], None], clock: Callable[[], float] = time.time
) -> Iterator[None]:
    """Call `tell` from a thread for every Xid event on these devices until the block ends.

    Simulated devices have no events. A driver that cannot report events ends the
    watch silently: the comparison after the run (`ci.devices.afterwards`) still holds.
    """
    uuids = sorted({device.parent or device.uuid for device in devices if not device.simulated})
    if not uuids:
        yield
        return
    nvml: Any = importlib.import_module("pynvml")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        yield
        return
    done = threading.Event()
    thread = threading.Thread(
        target=_listen, args=(nvml, uuids, done, tell, clock), name="lockgate-xid-watch", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(timeout=10 * WAIT_MILLISECONDS / 1000)
        if not thread.is_alive():
            nvml.nvmlShutdown()


def _listen(
    nvml: Any,
    uuids: Sequence[str],
    done: threading.Event,
    tell: Callable[[XidEvent], None],
    clock: Callable[[], float],
) -> None:
    try:
        events = nvml.nvmlEventSetCreate()
    except nvml.NVMLError:
        return
    try:
        watched = [uuid for uuid in uuids if _register(nvml, uuid, events)]
        while watched and not done.is_set():
            try:
                data = nvml.nvmlEventSetWait(events, WAIT_MILLISECONDS)
            except nvml.NVMLError_Timeout:
                continue
            except nvml.NVMLError:
                return
            tell(XidEvent(time=clock(), uuid=_name_event(nvml, data), code=int(data.eventData)))
    finally:
        nvml.nvmlEventSetFree(events)


def _register(nvml: Any, uuid: str, events: Any) -> bool:
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
    except nvml.NVMLError:
        return False
    return True


def _name_event(nvml: Any, data: Any) -> str:
    try:
        return str(nvml.nvmlDeviceGetUUID(data.device))
    except nvml.NVMLError as error:
        return f"a device that cannot be named ({error})"
