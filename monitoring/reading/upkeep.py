"""Choosing which runs to remove, and numbers for people. Pure."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from monitoring.errors import MonitoringError, RunNotFound
from monitoring.rows import RunRecord

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class UsageError(MonitoringError):
    """The command line asks for something that does not exist."""


def choose_runs(
    records: Sequence[RunRecord],
    *,
    named: Sequence[str],
    keep: int | None,
    older_than: float | None,
    now: float,
    where: str,
) -> list[str]:
    """Choose which runs to remove; `records` oldest first, times in seconds; `RunNotFound` for an unknown name."""
    started: dict[str, int] = {}
    for record in records:
        started[record.run_id] = min(started.get(record.run_id, record.started_at), record.started_at)
    unknown = [name for name in named if name not in started]
    if unknown:
        raise RunNotFound(f"{where} holds no run {', '.join(unknown)}", hint="`python -m monitoring list` names them")
    order = list(started)
    chosen = set(named)
    if keep is not None:
        chosen |= set(order[: max(0, len(order) - keep)])
    if older_than is not None:
        chosen |= {run_id for run_id, at in started.items() if at / 1e9 < now - older_than}
    return [run_id for run_id in order if run_id in chosen]


def parse_age(text: str) -> float:
    """Read `90m`, `12h` or `30d` as seconds."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)([smhd])", text)
    if match is None:
        raise UsageError(f"--older-than is {text!r}, expected a number and its unit", hint="units: s, m, h, d; say 30d")
    return float(match.group(1)) * SECONDS[match.group(2)]


def format_bytes(count: int) -> str:
    """Write a size for people: 1536 -> `1.5 KiB`."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def format_time(nanoseconds: int) -> str:
    """Write a time for people, in local time; "-" for 0."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(nanoseconds / 1e9)) if nanoseconds else "-"
