"""What a run lacks: index rows and run records in, one line per gap out. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from monitoring.hooks.sites import BY_NAME
from monitoring.rows import CLOSED, MODULE_PREFIX, CaptureRow, RunRecord

SHOWN = 6
"""Steps, ranges or requests that one line names before it only counts."""

PARTIAL = "final_logits"
"""The site that keeps the last tokens of a pass alone; holes before them are no loss."""


def find_missing(
    records: Sequence[RunRecord],
    index: Sequence[CaptureRow],
    *,
    sites: Collection[str] | None = None,
    layers: Collection[int] | None = None,
) -> list[str]:
    """List what the run promised and the store does not hold; empty when it is complete.

    `records` are the newest of each shard, `index` the run's rows (data not
    needed). `sites` and `layers` narrow the checks of single sites; lost
    sequence numbers count whatever is selected, for nobody knows what they held.
    """
    missing = _missing_shards(records, index)
    by_shard: dict[int, list[CaptureRow]] = defaultdict(list)
    for row in index:
        by_shard[row.shard_rank].append(row)
    for record in records:
        rows = by_shard[record.shard_rank]
        wanted = [
            (site, layer) for site, layer in record.expected
            if (sites is None or site in sites) and (layers is None or layer in layers)
        ]  # fmt: skip
        missing += _missing_sequence(record, rows)
        missing += _missing_sites(record, rows, wanted)
    if not any(record.details.get("schedule") for record in records):
        missing += _holes(index, sites=sites, layers=layers)
    return missing


def _missing_shards(records: Sequence[RunRecord], index: Iterable[CaptureRow]) -> list[str]:
    have = {record.shard_rank: record for record in records}
    count = max((record.shard_count for record in records), default=0)
    lines = [f"shard {rank} of {count} left no record: its process never started to capture"
             for rank in range(count) if rank not in have]  # fmt: skip
    lines += [
        f"shard {rank} was not closed: its process still runs, or died before it could flush"
        for rank, record in sorted(have.items()) if record.state != CLOSED
    ]  # fmt: skip
    strangers = sorted({row.shard_rank for row in index} - set(have))
    return lines + [f"rows of shard {rank} have no run record" for rank in strangers if rank >= count]


def _missing_sequence(record: RunRecord, rows: Sequence[CaptureRow]) -> list[str]:
    present = {row.seq for row in rows}
    end = max(record.seq_end, max(present, default=-1) + 1)
    if len(present) == end:
        return []
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(record.losses.items()) if count)
    why = f"; losses by reason: {reasons}" if reasons else ""
    gaps = ranges(sorted(set(range(end)) - present))
    return [f"shard {record.shard_rank}: {end - len(present)} of {end} records are missing (seq {_list(gaps)}){why}"]


def _missing_sites(record: RunRecord, rows: Sequence[CaptureRow], wanted: Sequence[tuple[str, int]]) -> list[str]:
    """Every pass that left any row must have left one at each expected place, for each of its requests."""
    passes: set[tuple[str, int]] = set()
    steps: set[int] = set()
    found: dict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)
    for row in rows:
        steps.add(row.step)
        if not row.site.startswith(MODULE_PREFIX):
            passes.add((row.request_id, row.step))
        found[row.site, row.layer].add((row.request_id, row.step))
    lines = []
    for site, layer in wanted:
        at = found[site, layer]
        if site.startswith(MODULE_PREFIX):
            lost = sorted(steps - {step for _, step in at})
            what = f"steps {_list(ranges(lost))}"
        else:
            by_request: dict[str, list[int]] = defaultdict(list)
            for request, step in passes - at:
                by_request[request].append(step)
            lost = sorted({step for request in by_request.values() for step in request})
            told = [f"request {name} steps {_list(ranges(sorted(some)))}" for name, some in sorted(by_request.items())]
            what = _list(told, joint="; ")
        place = site if layer < 0 else f"{site} layer {layer}"
        if lost and not at:
            lines.append(f"shard {record.shard_rank}: {place} has no rows at all")
        elif lost:
            lines.append(f"shard {record.shard_rank}: {place} lacks {what}")
    if wanted and not rows:
        lines.append(f"shard {record.shard_rank}: no rows at all: no forward pass was captured")
    return lines


def _holes(index: Iterable[CaptureRow], *, sites: Collection[str] | None, layers: Collection[int] | None) -> list[str]:
    """Token ranges of one request and site must touch: a hole is lost data, never closed up."""
    spans: dict[tuple[str, str, int, int], list[tuple[int, int]]] = defaultdict(list)
    for row in index:
        if row.site in BY_NAME and row.site != PARTIAL and row.call == 0:
            spans[row.request_id, row.site, row.layer, row.shard_rank].append((row.token_start, row.token_end))
    holes: dict[tuple[str, tuple[tuple[int, int], ...]], list[str]] = defaultdict(list)
    for (request, site, layer, _), ranges_of in sorted(spans.items()):
        if (sites is not None and site not in sites) or (layers is not None and layer not in layers):
            continue
        lost = holes_of(ranges_of)
        if lost:
            holes[request, tuple(lost)].append(site if layer < 0 else f"{site} layer {layer}")
    return [
        f"request {request}: tokens {_list([_range(a, b) for a, b in lost])} are missing at {_list(places)}"
        for (request, lost), places in sorted(holes.items())
    ]


def holes_of(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Give the ranges between the first and the last token that no span covers."""
    holes = []
    end: int | None = None
    for start, stop in sorted(spans):
        if end is not None and start > end:
            holes.append((end, start))
        end = stop if end is None else max(end, stop)
    return holes


def ranges(numbers: Sequence[int]) -> list[str]:
    """Write ascending numbers as ranges: 1, 2, 3, 7 -> `1-3`, `7`."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return [_range(first, last + 1) for first, last in found]


def _range(start: int, end: int) -> str:
    return str(start) if end == start + 1 else f"{start}-{end - 1}"


def _list(words: Sequence[str], *, joint: str = ", ") -> str:
    rest = len(words) - SHOWN
    return joint.join(words[:SHOWN]) + (f"{joint}and {rest} more" if rest > 0 else "")
