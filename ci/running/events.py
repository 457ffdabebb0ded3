"""The event log: one JSON object per line, flushed at once, readable after any crash.

The controller (or the plain pytest session) writes `events-main.jsonl`, the
supervisor `events-supervisor.jsonl`, every rank `events-<set>-r<rank>.jsonl`,
all in `.lockgate/report/<stage>/`. Keys of every line: `t` (seconds since the
epoch) and `event`; the others as listed at `Kind`. A line that was cut by a
kill is left out by the reader and counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from ci.errors import ReportError, UsageError
from ci.report.model import Outcome, TestResult
from ci.values import Word

MAIN = "main"
SUPERVISOR = "supervisor"


class Kind(Word):
    """What happened; the comment gives the keys a line has besides `t` and `event`."""

    SESSION = "session"  # stage commit simulated devices (DeviceRecord rows) shard worker pid
    CHECK = "check"  # result: the fields of a CheckResult
    COLLECTED = "collected"  # tests (ids that will run) deselected unseen (files that may hold more) marks
    START = "start"  # test width devices set attempt: dispatched
    RANK = "rank"  # test rank device outcome duration sequence set: one rank's answer, in its own log
    FINISH = "finish"  # test outcome duration result: the fields of a TestResult; the last one of a test counts
    RETRY = "retry"  # test outcome attempt reason: failed, and will run again on all ranks
    RESTART = "restart"  # set reason devices test: a process set is dropped, the next test gets a new one
    LIMIT = "limit"  # limit (process-group, test, grace, stage) seconds test
    PROBLEM = "problem"  # problem: the fields of a Problem; the machine is not fit
    NOTE = "note"  # message: something a reader must see
    END = "end"  # code reasons: last line of a log whose writer ended by itself


FIXED = ("t", "event", "test", "rank", "device", "outcome", "duration")


@dataclass(frozen=True, kw_only=True)
class Event:
    """One line. `test` is a pytest node id; `duration` is in seconds; `data` holds the other keys."""

    t: float
    event: Kind
    test: str = ""
    rank: int | None = None
    device: str = ""
    outcome: Outcome | None = None
    duration: float | None = None
    data: Mapping[str, Any] = field(default_factory=dict)

    def line(self) -> str:
        """Render as one line of JSON, without empty keys."""
        values: dict[str, Any] = {"t": round(self.t, 6), "event": self.event.value}
        fixed = {
            "test": self.test or None,
            "rank": self.rank,
            "device": self.device or None,
            "outcome": self.outcome.value if self.outcome else None,
            "duration": None if self.duration is None else round(self.duration, 6),
        }
        values.update({key: value for key, value in fixed.items() if value is not None})
        values.update(self.data)
        return json.dumps(values, ensure_ascii=False)


def to_json(result: TestResult) -> dict[str, Any]:
    """Give the fields of a result, as a FINISH event carries them, without those that say nothing."""
    return {key: value for key, value in asdict(result).items() if value not in ("", (), 0, False) or key == "id"}


def parse_event(line: str) -> Event:
    """Parse one line; raises `ValueError` for one that was cut or is no event."""
    values = json.loads(line)
    if not isinstance(values, dict):
        raise ValueError(f"an event is a JSON object, found {type(values).__name__}")  # noqa: TRY004 - one error for all
    try:
        outcome = values.get("outcome")
        return Event(
            t=float(values["t"]),
            event=Kind.parse(values["event"], what="event"),
            test=values.get("test", ""),
            rank=values.get("rank"),
            device=values.get("device", ""),
            outcome=Outcome.parse(outcome, what="outcome") if outcome else None,
            duration=values.get("duration"),
            data={key: value for key, value in values.items() if key not in FIXED},
        )
    except (KeyError, TypeError, UsageError) as error:
        raise ValueError(f"not an event: {error}") from error


def parse_events(lines: Iterable[str]) -> tuple[list[Event], int]:
    """Parse a log; gives the events and the number of lines that were cut or damaged."""
    events: list[Event] = []
    damaged = 0
    for line in lines:
        if not line.strip():
            continue
        try:
            events.append(parse_event(line))
        except ValueError:
            damaged += 1
    return events, damaged


def read_events(folder: Path) -> tuple[list[Event], int]:
    """Read every log of a report folder, merged in the order of time."""
    events: list[Event] = []
    damaged = 0
    for path in sorted(folder.glob("events-*.jsonl")):
        with path.open(encoding="utf-8", errors="replace") as stream:
            found, bad = parse_events(stream)
        events += found
        damaged += bad
    return sorted(events, key=lambda event: event.t), damaged


class EventLog:
    """Appends events to one file; every line is handed to the kernel at once.

    A line that the kernel has survives the death of its writer by any signal.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float]) -> None:
        """Open (and create) the log; raises `ReportError` when that is impossible."""
        self.path = path
        self._clock = clock
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._stream: IO[bytes] = path.open("ab", buffering=0)
        except OSError as error:
            raise ReportError(f"cannot write the event log {path}: {error.strerror}") from error

    def write(
        self,
        event: Kind,
        *,
        test: str = "",
        rank: int | None = None,
        device: str = "",
        outcome: Outcome | None = None,
        duration: float | None = None,
        **data: Any,
    ) -> Event:
        """Append one event, stamped now; raises `ReportError` (a full disk, say)."""
        made = Event(
            t=self._clock(), event=event, test=test, rank=rank, device=device, outcome=outcome, duration=duration,
            data=data,
        )  # fmt: skip
        try:
            self._stream.write((made.line() + "\n").encode("utf-8", errors="replace"))
        except OSError as error:
            raise ReportError(
                f"cannot write the event log {self.path}: {error.strerror}",
                hint="free some space, or give another folder with --report DIR",
            ) from error
        return made

    def close(self) -> None:
        """Close the file; what was written stays."""
        self._stream.close()

    def __enter__(self) -> EventLog:  # noqa: PYI034 - typing.Self needs Python 3.11
        """Give the log itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()


class Tail:
    """Follows the logs of a folder while a run writes them."""

    def __init__(self, folder: Path) -> None:
        """Start at the beginning of every log, also of one that appears later."""
        self._folder = folder
        self._offsets: dict[Path, int] = {}

    def read_new(self) -> Iterator[Event]:
        """Give the whole lines that came since the last call."""
        for path in sorted(self._folder.glob("events-*.jsonl")):
            offset = self._offsets.get(path, 0)
            with path.open("rb") as stream:
                stream.seek(offset)
                block = stream.read()
            whole = block.rfind(b"\n") + 1
            self._offsets[path] = offset + whole
            events, _ = parse_events(block[:whole].decode("utf-8", errors="replace").splitlines())
            yield from events
