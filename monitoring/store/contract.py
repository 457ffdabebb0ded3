"""What every store does."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from monitoring.rows import CaptureRow, RunRecord


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The answer to a query: column names, and rows of plain Python values."""

    names: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]


class Store(Protocol):
    """One place that keeps runs. Not safe for two threads at once; the sink is.

    Every method raises `monitoring.errors.StoreError` (or a child) and nothing
    else for what the outside world can do to it.
    """

    @property
    def url(self) -> str:
        """The store's address without credentials: fit for logs and errors."""

    def prepare(self) -> None:
        """Create the tables, or check that those there have this version's layout (`SchemaError`)."""

    def sink(self, run: RunRecord) -> object:
        """Make the native sink (`_native.Sink`) that one ring hands its encoded blocks to; after `prepare`."""

    def write_block(self, block: bytes | memoryview) -> None:
        """Insert one encoded block of `captures` (a replayed spool, a test); returns once it is stored."""

    def write_run(self, record: RunRecord) -> None:
        """Insert a run's record; a newer one of the same (run, shard) replaces it."""

    def read_runs(self) -> tuple[RunRecord, ...]:
        """Give the newest record of each (run, shard), oldest run first."""

    def read_index(self, run_id: str) -> tuple[CaptureRow, ...]:
        """Give the run's rows without their data (`data` is empty), each record once, in no promised order."""

    def read_rows(
        self,
        run_id: str,
        *,
        sites: Collection[str] | None = None,
        layers: Collection[int] | None = None,
        requests: Collection[str] | None = None,
        index: Sequence[CaptureRow] | None = None,
    ) -> Iterator[CaptureRow]:
        """Give the rows of one run, each record once, in no promised order; None means all.

        `index` is the run's index, if the caller has it already.
        """

    def query(self, sql: str) -> Frame:
        """Run one SELECT; `{captures}` and `{runs}` stand for the store's tables."""

    def delete_run(self, run_id: str) -> None:
        """Remove a run's rows and records; done when it returns. Raises `RunNotFound`."""

    def close(self) -> None:
        """Let go of sessions and connections; a second call does nothing."""
