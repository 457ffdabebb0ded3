"""Events -> what a run does now: counts, who works on which device, time left. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ci.report.model import DeviceRecord, Outcome
from ci.running.events import Event, Kind
from ci.running.pool import Task, lower_bound

LEAST_TAUGHT = 3
"""Finished tests before the pace of this run corrects the recorded estimates."""


@dataclass(frozen=True, kw_only=True)
class Running:
    """A test that is out on devices (UUIDs; none: on the CPU) since `since` (seconds since the epoch)."""

    test: str
    width: int
    devices: tuple[str, ...]
    since: float
    attempt: int = 1


@dataclass
class Progress:
    """Folds the events of a run; `estimates` are seconds per test, `fallback` those of an unknown one."""

    estimates: Mapping[str, float] = field(default_factory=dict)
    fallback: float = 1.0
    stage: str = ""
    simulated: bool = False
    devices: dict[str, DeviceRecord] = field(default_factory=dict)
    waiting: dict[str, None] = field(default_factory=dict)
    running: dict[str, Running] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    restarts: int = 0
    ended: bool = False
    _estimated: float = 0.0
    _measured: float = 0.0

    @property
    def total(self) -> int:
        """Count the tests known so far."""
        return len(self.waiting) + len(self.running) + len(self.outcomes)

    def apply(self, event: Event) -> None:
        """Take in one event; lines that a rank wrote about itself are not news."""
        if event.rank is not None:
            return
        if event.event is Kind.SESSION:
            self._begin(event)
        elif event.event is Kind.COLLECTED:
            known = self.outcomes.keys() | self.running.keys()
            self.waiting |= {str(test): None for test in event.data.get("tests", ()) if test not in known}
        elif event.event is Kind.START:
            self.waiting.pop(event.test, None)
            devices = tuple(map(str, event.data.get("devices", ())))
            self.running[event.test] = Running(
                test=event.test,
                width=int(event.data.get("width", 0)) or max(len(devices), 1),
                devices=devices,
                since=event.t,
                attempt=int(event.data.get("attempt", 1)),
            )
        elif event.event is Kind.FINISH and event.outcome is not None:
            self._finish(event, event.outcome)
        elif event.event is Kind.RESTART:
            self.restarts += 1
        elif event.event is Kind.END and event.data.get("worker") is None:
            self.ended = True

    def counts(self) -> Counter[Outcome]:
        """Count the finished tests of each outcome."""
        return Counter(self.outcomes.values())

    def lanes(self) -> list[tuple[str, Running | None]]:
        """Say what each device does now; tests on the CPU follow with a lane each."""
        owners = {uuid: one for one in self.running.values() for uuid in one.devices}
        rows: list[tuple[str, Running | None]] = [
            (name_device(device), owners.get(uuid)) for uuid, device in self.devices.items()
        ]
        rows += [("cpu", one) for one in self.running.values() if not one.devices]
        return rows

    def time_left(self, now: float) -> float | None:
        """Estimate the seconds left, or None before anything is known of the tests."""
        if not self.total:
            return None
        pace = self._measured / self._estimated if self._estimated and len(self.outcomes) >= LEAST_TAUGHT else 1.0
        tasks = [Task(id=test, width=1, duration=self._estimate(test) * pace) for test in self.waiting]
        tasks += [
            Task(
                id=one.test,
                width=min(one.width, max(len(self.devices), 1)),
                duration=max(self._estimate(one.test) * pace - (now - one.since), 0.0),
            )
            for one in self.running.values()
        ]
        return lower_bound(tasks, max(len(self.devices), 1))

    def _begin(self, event: Event) -> None:
        self.stage = self.stage or str(event.data.get("stage", ""))
        self.simulated = self.simulated or bool(event.data.get("simulated", False))
        for row in event.data.get("devices", ()):
            self.devices.setdefault(str(row["uuid"]), DeviceRecord(**row))

    def _finish(self, event: Event, outcome: Outcome) -> None:
        self.waiting.pop(event.test, None)
        self.running.pop(event.test, None)
        if event.test not in self.outcomes and event.duration is not None:
            self._estimated += self._estimate(event.test)
            self._measured += event.duration
        self.outcomes[event.test] = outcome

    def _estimate(self, test: str) -> float:
        return self.estimates.get(test, self.fallback)


def name_device(device: DeviceRecord) -> str:
    """Name a device as the lanes do."""
    return f"sim {device.index}" if device.simulated else f"GPU {device.index}"


def format_counts(counts: Mapping[Outcome, int]) -> str:
    """Say the counts, what is bad first, skipped and not-run always: `2 failed, 118 passed, 0 skipped, 0 not-run`."""
    always = (Outcome.PASSED, Outcome.SKIPPED, Outcome.NOT_RUN)
    order: Sequence[Outcome] = (
        Outcome.INFRASTRUCTURE,
        Outcome.CRASHED,
        Outcome.HUNG,
        Outcome.FAILED,
        Outcome.ERROR,
        Outcome.PASSED,
        Outcome.XFAILED,
        Outcome.SKIPPED,
        Outcome.NOT_RUN,
    )
    return ", ".join(f"{counts.get(one, 0)} {one}" for one in order if counts.get(one, 0) or one in always)


def format_seconds(seconds: float) -> str:
    """Say a time as people read it: `0.4 s`, `12 s`, `3 min 05 s`, `1 h 12 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
