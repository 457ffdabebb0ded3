"""The machine around one run: verified before, listened to meanwhile, compared after. All of it is infrastructure.

find_machine -> Verification;  with guard_machine(...): the tests run  -> PROBLEM and NOTE events
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path

from ci.devices.afterwards import verify_afterwards
from ci.devices.requirement import require_devices
from ci.devices.verify import Verification, verify_devices, verify_simulated
from ci.devices.watch import XidEvent, check_events, watch_devices
from ci.running.events import EventLog, Kind
from ci.running.locks import hold_free
from ci.stages.model import Stage


def find_machine(stage: Stage, *, simulate: int, environ: Mapping[str, str], root: Path) -> Verification:
    """Verify the machine for a stage, other runs kept off its devices meanwhile; nothing is raised."""
    requirement = require_devices(stage)
    if simulate:
        return verify_simulated(requirement, count=simulate, root=root)
    return verify_devices(requirement, environ=environ, root=root, hold=partial(hold_free, environ=environ))


@contextlib.contextmanager
def guard_machine(found: Verification, *, environ: Mapping[str, str], log: EventLog) -> Iterator[None]:
    """Listen to the devices while the tests run, then compare them with what they were.

    An Xid event that a program can cause itself is a note, any other a problem. The
    comparison leaves out devices that another run has taken since.
    """

    def hear(event: XidEvent) -> None:
        problems = check_events([event])
        for problem in problems:
            log.write(Kind.PROBLEM, problem=asdict(problem))
        if not problems:
            log.write(Kind.NOTE, message=str(event), devices=[event.uuid])

    with watch_devices(found.devices, tell=hear):
        yield
    if found.inventory.simulated:
        return
    with hold_free([device.uuid for device in found.devices], environ=environ) as holders:
        ours = [device for device in found.devices if device.uuid not in holders]
        for problem in verify_afterwards(ours, environ=environ):
            log.write(Kind.PROBLEM, problem=asdict(problem))
