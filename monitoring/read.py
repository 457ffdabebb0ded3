"""Reading a run back: completeness first, then the rows, then tensors on demand."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

from monitoring.errors import IncompleteRun, RunNotFound, SelectionError
from monitoring.hooks.sites import BY_NAME, SITES
from monitoring.reading.completeness import find_missing
from monitoring.reading.internals import Internals, order_rows
from monitoring.rows import MODULE_PREFIX, CaptureRow, RunRecord
from monitoring.store import Store, open_store

SHOWN = 20
"""Gaps that the message of `IncompleteRun` lists; `missing` holds all of them."""


def read(
    store: str | os.PathLike[str] | Store,
    run: str | None = None,
    *,
    sites: Collection[str] | None = None,
    layers: Collection[int] | None = None,
    requests: Collection[str] | None = None,
    allow_incomplete: bool = False,
) -> Internals:
    """Read one run (the newest by default) from a store; two runs never mix.

    `sites` (names or short names), `layers` and `requests` narrow what is read;
    layers do not narrow sites that have none. Raises `IncompleteRun` listing
    what the run lacks, unless `allow_incomplete`; `RunNotFound` when there is
    no such run; `StoreError` for everything that is wrong with the store.
    """
    opened = open_store(store) if isinstance(store, (str, os.PathLike)) else store
    try:
        records = find_run(opened, run)
        run_id = records[0].run_id
        index = opened.read_index(run_id)
        chosen = None if sites is None else parse_sites(sites, index)
        wanted_layers = None if layers is None else {*layers, -1}
        missing = tuple(find_missing(records, index, sites=chosen, layers=wanted_layers))
        if missing and not allow_incomplete:
            raise incomplete(run_id, missing, opened.url)
        rows = opened.read_rows(run_id, sites=chosen, layers=wanted_layers, requests=requests, index=index)
        return Internals(
            run_id=run_id, records=records, rows=order_rows(tuple(rows)), missing=missing,
            store=store if isinstance(store, (str, os.PathLike)) else opened.url,
        )  # fmt: skip
    finally:
        if opened is not store:
            opened.close()


def find_run(store: Store, run: str | None) -> tuple[RunRecord, ...]:
    """Give the records of a run, one per shard; of the newest run when none is named."""
    records = store.read_runs()
    if not records:
        raise RunNotFound(f"{store.url} holds no run", hint="capture one: watch(model, store=...)")
    run_id = records[-1].run_id if run is None else run
    found = tuple(record for record in records if record.run_id == run_id)
    if not found:
        names = list(dict.fromkeys(record.run_id for record in records))
        raise RunNotFound(f"{store.url} holds no run {run!r}", hint=f"the newest: {', '.join(names[-5:])}")
    return found


def parse_sites(names: Collection[str], index: Sequence[CaptureRow]) -> frozenset[str]:
    """Turn names, short names and `module:<name>` into sites; raises `SelectionError` listing the choices."""
    shorts = {site.short: site.name for site in SITES}
    held = {row.site for row in index}
    chosen = {shorts.get(name, name) for name in ([names] if isinstance(names, str) else names)}
    unknown = sorted(name for name in chosen if name not in BY_NAME and name not in held)
    if unknown:
        modules = sorted(name for name in held if name.startswith(MODULE_PREFIX))
        raise SelectionError(f"no such site: {', '.join(unknown)}", hint=f"sites: {', '.join([*BY_NAME, *modules])}")
    return frozenset(chosen)


def incomplete(run_id: str, missing: Sequence[str], url: str) -> IncompleteRun:
    """Make the error that lists what a run lacks."""
    rest = len(missing) - SHOWN
    lines = [*(f"  - {line}" for line in missing[:SHOWN]), *([f"  ... and {rest} more"] if rest > 0 else [])]
    return IncompleteRun(
        f"run {run_id!r} of {url} is incomplete:\n" + "\n".join(lines),
        hint="read(..., allow_incomplete=True) gives what is there, with the gaps marked",
        missing=missing,
    )
