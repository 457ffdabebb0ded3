"""What a run holds, in numbers: index rows and records in, plain values out. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from monitoring.hooks.sites import BY_NAME
from monitoring.reading.completeness import find_missing, ranges
from monitoring.rows import CLOSED, CaptureRow, RunRecord, payload_bytes

MAX_SHAPES = 3
"""Shapes that one line shows."""


@dataclass(frozen=True, kw_only=True)
class SiteSummary:
    """One site of one run; `layers` as ranges (`0-11`), "" for a site without layers."""

    site: str
    layers: str
    dtypes: str
    shapes: str
    rows: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """One run; `state` is `complete`, `open` or `incomplete`; times are nanoseconds since the epoch."""

    run_id: str
    model_id: str
    state: str
    started_at: int
    finished_at: int
    shards: int
    requests: int
    tokens: int
    rows: int
    bytes: int
    missing: tuple[str, ...]
    sites: tuple[SiteSummary, ...]


def summarize_run(records: Sequence[RunRecord], index: Sequence[CaptureRow]) -> RunSummary:
    """Summarize one run from its records and its rows without data."""
    missing = tuple(find_missing(records, index))
    opened = any(record.state != CLOSED for record in records)
    ends: dict[str, int] = defaultdict(int)
    for row in index:
        if row.site in BY_NAME:
            ends[row.request_id] = max(ends[row.request_id], row.token_end)
    return RunSummary(
        run_id=records[0].run_id,
        model_id=records[0].model_id,
        state="open" if opened else "incomplete" if missing else "complete",
        started_at=min(record.started_at for record in records),
        finished_at=max(record.finished_at for record in records),
        shards=max(record.shard_count for record in records),
        requests=len(ends) or len({row.request_id for row in index}),
        tokens=sum(ends.values()),
        rows=len(index),
        bytes=sum(map(payload_bytes, index)),
        missing=missing,
        sites=summarize_sites(index),
    )


def summarize_sites(index: Iterable[CaptureRow]) -> tuple[SiteSummary, ...]:
    """Summarize rows by site, in the hook table's order."""
    by_site: dict[str, list[CaptureRow]] = defaultdict(list)
    for row in index:
        by_site[row.site].append(row)
    order = sorted(by_site, key=lambda name: (name not in BY_NAME, BY_NAME[name].id if name in BY_NAME else 0, name))
    return tuple(_summarize_site(name, by_site[name]) for name in order)


def _summarize_site(name: str, rows: Sequence[CaptureRow]) -> SiteSummary:
    shapes = sorted({row.shape for row in rows})
    words = [str(list(shape)) for shape in shapes]
    if len(words) > MAX_SHAPES:
        words = [words[0], "...", words[-1]]
    return SiteSummary(
        site=name,
        layers=", ".join(ranges(sorted({row.layer for row in rows if row.layer >= 0}))),
        dtypes=", ".join(sorted({row.dtype for row in rows})),
        shapes=" ".join(words),
        rows=len(rows),
        bytes=sum(map(payload_bytes, rows)),
    )
