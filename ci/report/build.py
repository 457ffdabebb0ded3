"""Events -> report: the event logs are the truth, whatever became of the process that wrote them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ci.errors import ReportError
from ci.report.document import decode
from ci.report.model import CheckResult, DeviceRecord, Mark, Outcome, Problem, RunReport, TestResult
from ci.running.events import SUPERVISOR, Event, Kind

T = TypeVar("T")

CUT_SHORT = "the run ended while this test was running"
NEVER_STARTED = "the run ended before its turn"

MARKED = {Kind.RESTART: "restart", Kind.RETRY: "retry", Kind.LIMIT: "limit"}
"""Events that become marks of the timeline."""


def build_run(events: Sequence[Event], *, damaged: int = 0) -> RunReport:
    """Fold the events of one run, in the order of time, into its report.

    `damaged` lines are named in the notes. A test that was collected and has no
    answer is `not-run`, whether or not it had been started.
    """
    if not events:
        raise ReportError("the event logs hold no event", hint="was the run ended before it began?")
    report = _session(events)
    notes = [str(event.data.get("message", "")) for event in events if event.event is Kind.NOTE]
    if damaged:
        notes.append(f"{damaged} line(s) of the event logs were cut or damaged and are left out")
    end = _answer(events)
    if end is None:
        notes.append("the run never gave its answer: the tool was killed, or this is a look at a run that goes on")
    return replace(
        report,
        started=min(event.t for event in events),
        finished=end.t if end else 0.0,
        exit_code=int(end.data["code"]) if end and end.data.get("code") is not None else None,
        reasons=tuple(map(str, end.data.get("reasons", ()))) if end else (),
        notes=tuple(dict.fromkeys(note for note in notes if note)),
        results=tuple(_results(events)),
        infrastructure=tuple(dict.fromkeys(_rows(events, Kind.PROBLEM, "problem", Problem))),
        checks=tuple(_rows(events, Kind.CHECK, "result", CheckResult)),
        marks=tuple(_mark(event) for event in events if event.event in MARKED and event.rank is None),
    )


def _session(events: Iterable[Event]) -> RunReport:
    """Join what the sessions say of themselves; the supervisor speaks first, later ones fill gaps."""
    stage, commit, shard, simulated = "", "", "", False
    devices: dict[str, DeviceRecord] = {}
    environment: dict[str, str] = {}
    for event in events:
        if event.event is not Kind.SESSION or event.rank is not None:
            continue
        data = event.data
        stage = stage or str(data.get("stage", ""))
        commit = commit or str(data.get("commit", ""))
        shard = shard or str(data.get("shard", ""))
        simulated = simulated or bool(data.get("simulated", False))
        environment |= {str(key): str(value) for key, value in dict(data.get("environment") or {}).items()}
        for row in data.get("devices", ()):
            device = _decode(DeviceRecord, row, event)
            devices.setdefault(device.uuid, device)
    return RunReport(
        stage=stage,
        commit=commit,
        shard=shard,
        simulated=simulated,
        devices=tuple(devices.values()),
        environment=environment,
    )


def _results(events: Iterable[Event]) -> list[TestResult]:
    order: dict[str, TestResult | None] = {}
    starts: dict[str, Event] = {}
    for event in events:
        if event.event is Kind.COLLECTED:
            for test in event.data.get("tests", ()):
                order.setdefault(str(test), None)
        elif event.event is Kind.START and event.rank is None:
            starts[event.test] = event
        elif event.event is Kind.FINISH:
            order[event.test] = _result(event, starts.get(event.test))
    return [result or _unanswered(test, starts.get(test)) for test, result in order.items()]


def _result(event: Event, start: Event | None) -> TestResult:
    row = event.data.get("result")
    if row is None:
        result = TestResult(id=event.test, outcome=event.outcome or Outcome.ERROR, duration=event.duration or 0.0)
    else:
        result = _decode(TestResult, {"id": event.test, **row}, event)
    if start is None:
        return result
    devices = tuple(map(str, start.data.get("devices", ())))
    return replace(
        result,
        started=result.started or start.t,
        width=result.width or int(start.data.get("width", 0)),
        devices=result.devices or devices,
    )


def _unanswered(test: str, start: Event | None) -> TestResult:
    if start is None:
        return TestResult(id=test, outcome=Outcome.NOT_RUN, reason=NEVER_STARTED)
    return TestResult(
        id=test,
        outcome=Outcome.NOT_RUN,
        reason=CUT_SHORT,
        started=start.t,
        width=int(start.data.get("width", 0)),
        devices=tuple(map(str, start.data.get("devices", ()))),
    )


def _answer(events: Iterable[Event]) -> Event | None:
    ends = [
        event
        for event in events
        if event.event is Kind.END and event.rank is None and event.data.get("worker", SUPERVISOR) == SUPERVISOR
    ]
    return ends[-1] if ends else None


def _rows(events: Iterable[Event], kind: Kind, key: str, row: type[T]) -> list[T]:
    return [_decode(row, event.data.get(key), event) for event in events if event.event is kind]


def _mark(event: Event) -> Mark:
    data = event.data
    words = [str(data.get("reason", "")), f"{data['limit']} limit" if "limit" in data else "", event.test]
    return Mark(
        time=event.t,
        kind=MARKED[event.event],
        text=": ".join(word for word in words if word),
        devices=tuple(map(str, data.get("devices", ()))),
    )


def _decode(kind: type[T], row: Any, event: Event) -> T:
    try:
        return decode(kind, row, place=f"event {event.event}")
    except ValueError as error:
        raise ReportError(f"an event cannot be read: {error}", hint="was it written by another version?") from error
