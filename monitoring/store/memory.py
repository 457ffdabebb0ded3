"""`memory:`: blocks kept in this process, for tests and short looks; nothing is bounded or persistent."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from monitoring.errors import RunNotFound, StoreError
from monitoring.rows import CaptureRow, RunRecord, decode_rows, deduplicate, encode_rows, latest_runs
from monitoring.store.contract import Frame
from monitoring.store.sinks import callback_sink
from monitoring.store.url import StoreUrl

_SHARED: dict[str, MemoryStore] = {}
"""By name, so that `memory:x` given to `watch` and to `read` is one store."""


def open_url(url: StoreUrl) -> MemoryStore:
    """Give the process's store of that name."""
    return _SHARED.setdefault(url.location, MemoryStore(url.location))


class MemoryStore:
    """Keeps encoded blocks as they come and decodes them when read; safe for threads."""

    def __init__(self, name: str = "") -> None:
        """Start empty."""
        self.url = f"memory:{name}"
        self._blocks: list[bytes] = []
        self._runs: list[RunRecord] = []
        self._lock = threading.Lock()

    def prepare(self) -> None:
        """There is no schema to create."""

    def sink(self, run: RunRecord) -> object:  # noqa: ARG002 - one place for all runs
        """Give a sink that appends blocks here."""
        return callback_sink(self.write_block, name=self.url)

    def write_block(self, block: bytes | memoryview) -> None:
        """Keep a copy of the block."""
        with self._lock:
            self._blocks.append(bytes(block))

    def write_run(self, record: RunRecord) -> None:
        """Keep the record."""
        with self._lock:
            self._runs.append(record)

    def read_runs(self) -> tuple[RunRecord, ...]:
        """Give the newest record of each (run, shard)."""
        with self._lock:
            return latest_runs(self._runs)

    def read_index(self, run_id: str) -> tuple[CaptureRow, ...]:
        """Give the run's rows without their data."""
        return tuple(replace(row, data=b"") for row in self.read_rows(run_id))

    def read_rows(
        self,
        run_id: str,
        *,
        sites: Collection[str] | None = None,
        layers: Collection[int] | None = None,
        requests: Collection[str] | None = None,
        index: Sequence[CaptureRow] | None = None,  # noqa: ARG002 - memory needs none
    ) -> Iterator[CaptureRow]:
        """Decode the blocks held now and give the rows asked for, each record once."""
        with self._lock:
            blocks = list(self._blocks)
        rows = (row for block in blocks for row in decode_rows(block))
        return deduplicate(
            row for row in rows
            if row.run_id == run_id
            and (sites is None or row.site in sites)
            and (layers is None or row.layer in layers)
            and (requests is None or row.request_id in requests)
        )  # fmt: skip

    def query(self, sql: str) -> Frame:  # noqa: ARG002 - refused whatever it says
        """Refuse: memory has no SQL."""
        raise StoreError(f"{self.url} cannot run SQL", hint="use an embedded store (a folder) or a server")

    def delete_run(self, run_id: str) -> None:
        """Drop the run's rows and records."""
        with self._lock:
            if all(record.run_id != run_id for record in self._runs):
                raise RunNotFound(f"{self.url} holds no run {run_id!r}")
            kept = [[row for row in decode_rows(block) if row.run_id != run_id] for block in self._blocks]
            self._blocks = [encode_rows(rows) for rows in kept if rows]
            self._runs = [record for record in self._runs if record.run_id != run_id]

    def close(self) -> None:
        """Keep the content: it belongs to the process."""
