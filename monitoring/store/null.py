"""`null:`: takes everything and keeps nothing, for measuring the capture alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from monitoring.errors import RunNotFound, StoreError
from monitoring.rows import CaptureRow, RunRecord
from monitoring.store.contract import Frame
from monitoring.store.sinks import null_sink
from monitoring.store.url import StoreUrl


def open_url(url: StoreUrl) -> NullStore:  # noqa: ARG001 - there is but one
    """Give a null store."""
    return NullStore()


class NullStore:
    """A store without content."""

    url = "null:"

    def prepare(self) -> None:
        """Nothing to create."""

    def sink(self, run: RunRecord) -> object:  # noqa: ARG002 - all runs alike
        """Give the native sink that counts and discards."""
        return null_sink()

    def write_block(self, block: bytes | memoryview) -> None:
        """Discard the block."""

    def write_run(self, record: RunRecord) -> None:
        """Discard the record."""

    def read_runs(self) -> tuple[RunRecord, ...]:
        """Give no runs."""
        return ()

    def read_index(self, run_id: str) -> tuple[CaptureRow, ...]:
        """Refuse: what was written here is gone."""
        raise RunNotFound(f"null: keeps nothing, so it holds no run {run_id!r}", hint="capture into a folder instead")

    def read_rows(
        self,
        run_id: str,
        *,
        sites: Collection[str] | None = None,  # noqa: ARG002 - the contract's
        layers: Collection[int] | None = None,  # noqa: ARG002 - the contract's
        requests: Collection[str] | None = None,  # noqa: ARG002 - the contract's
        index: Sequence[CaptureRow] | None = None,  # noqa: ARG002 - the contract's
    ) -> Iterator[CaptureRow]:
        """Refuse: what was written here is gone."""
        raise RunNotFound(f"null: keeps nothing, so it holds no run {run_id!r}", hint="capture into a folder instead")

    def query(self, sql: str) -> Frame:  # noqa: ARG002 - refused whatever it says
        """Refuse: there is nothing to ask."""
        raise StoreError("null: keeps nothing, so it cannot run SQL", hint="capture into a folder instead")

    def delete_run(self, run_id: str) -> None:
        """Refuse: there are no runs."""
        raise RunNotFound(f"null: holds no run {run_id!r}")

    def close(self) -> None:
        """Nothing to let go of."""
