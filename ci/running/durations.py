"""How long tests took last time: the estimates that order the pool, split shards and tell the time left.

`.lockgate/durations.json` holds one number of seconds per test and kind of device
("cpu", "simulated:2", a GPU's name). It is a cache: a damaged file costs a
warning and worse estimates, never a run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import MappingProxyType

from ci.errors import ReportError
from ci.report.model import RunReport
from ci.report.write import write_whole

SCHEMA = "lockgate-durations/1"
WEIGHT = 0.5
"""Weight of the newest duration in the moving average: one odd run moves an estimate half the way."""

UNKNOWN = 1.0
"""Seconds assumed for a test when nothing at all is recorded."""

LIMIT = 50_000
"""Most tests kept per kind; the longest stay, since the short ones are well served by the median."""


@dataclass(frozen=True, kw_only=True)
class Durations:
    """Recorded seconds: kind of device -> test id -> seconds."""

    kinds: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: MappingProxyType({}))

    def estimates(self, tests: Iterable[str], *, kind: str) -> dict[str, float]:
        """Estimate every test in seconds: its own record, else one of another kind, else the median of those known."""
        own = self.kinds.get(kind, {})
        others: dict[str, float] = {}
        for name in sorted(self.kinds):
            others |= self.kinds[name]
        found = {test: own.get(test, others.get(test)) for test in tests}
        known = [seconds for seconds in found.values() if seconds is not None]
        middle = median(known) if known else UNKNOWN
        return {test: middle if seconds is None else seconds for test, seconds in found.items()}

    def updated(self, measured: Mapping[str, float], *, kind: str) -> Durations:
        """Give the records with new measurements (seconds) worked in."""
        own = dict(self.kinds.get(kind, {}))
        for test, seconds in measured.items():
            before = own.get(test)
            own[test] = seconds if before is None else WEIGHT * seconds + (1 - WEIGHT) * before
        if len(own) > LIMIT:
            own = dict(sorted(own.items(), key=lambda item: -item[1])[:LIMIT])
        return Durations(kinds={**self.kinds, kind: own})


def measure_report(report: RunReport) -> dict[str, float]:
    """Give the durations that a run teaches: of tests that ran to an answer by themselves."""
    teaching = ("passed", "failed", "xfailed")
    return {one.id: one.duration for one in report.results if one.outcome.value in teaching and one.duration >= 0}


def name_kind(report: RunReport) -> str:
    """Name the kind of device whose durations belong together: "cpu", "simulated" or the GPUs' name."""
    if report.simulated:
        return "simulated"
    return ",".join(sorted({device.name for device in report.devices})) or "cpu"


def parse_durations(text: str) -> Durations:
    """Parse the file's text; raises `ValueError` for one that is damaged."""
    document = json.loads(text)
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ValueError(f"expected a document of schema {SCHEMA!r}")
    kinds = document.get("kinds")
    if not isinstance(kinds, dict) or not all(isinstance(row, dict) for row in kinds.values()):
        raise ValueError("'kinds' is not an object of objects")
    for kind, row in kinds.items():
        for test, seconds in row.items():
            if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
                raise ValueError(f"{kind}: {test}: {seconds!r} is not a number of seconds")
    return Durations(kinds=kinds)


def render_durations(durations: Durations) -> str:
    """Render the records as JSON, sorted, so that the same records are the same bytes."""
    kinds = {
        kind: {test: round(seconds, 4) for test, seconds in sorted(row.items())}
        for kind, row in sorted(durations.kinds.items())
    }
    return json.dumps({"schema": SCHEMA, "kinds": kinds}, indent=1) + "\n"


def read_durations(path: Path) -> tuple[Durations, str]:
    """Read the records; a missing file gives none, a damaged one gives none and a warning (else "")."""
    try:
        return parse_durations(path.read_text(encoding="utf-8")), ""
    except FileNotFoundError:
        return Durations(), ""
    except (OSError, ValueError) as error:
        return Durations(), f"{path} is damaged and is not used ({error}); the next run writes it anew"


def write_durations(path: Path, durations: Durations) -> None:
    """Write the records, whole or not at all; raises `ReportError`."""
    write_whole(path, render_durations(durations))


def record_report(path: Path, report: RunReport) -> str:
    """Work a finished run into the records; gives a warning ("" when all went well), since they are only a cache.

    A shard records nothing: the next shard must be split from the same numbers.
    The merged report of all shards does.
    """
    if report.shard:
        return ""
    before, warning = read_durations(path)
    try:
        write_durations(path, before.updated(measure_report(report), kind=name_kind(report)))
    except ReportError as error:
        return f"durations are not recorded: {error.message}"
    return warning
