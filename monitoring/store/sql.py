"""What the SQL stores share: one class over a carrier that moves statements and blocks."""

# ruff: noqa: S608 - every name in a statement is a checked identifier, every value goes through `quote`

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

from monitoring.blocks import Block, decode_blocks
from monitoring.errors import RunNotFound, SchemaError, StoreError
from monitoring.rows import (
    COLUMNS,
    RUN_COLUMNS,
    CaptureRow,
    RunRecord,
    decode_rows,
    decode_runs,
    deduplicate,
    encode_runs,
    latest_runs,
    payload_bytes,
)
from monitoring.store.contract import Frame
from monitoring.store.schema import (
    MUTATIONS_SYNC_SINCE,
    Tables,
    Version,
    check_layout,
    check_schema_version,
    create_statements,
    delete_statements,
    parse_version,
    quote,
)

READ_BYTES = 32 << 20
"""Payload that one query of `read_rows` fetches at most (a single larger row comes alone)."""

READ_ROWS = 2000
"""Rows that one query of `read_rows` names at most: a statement has a length limit (256 KiB)."""

MUTATION_LIMIT = 120.0
"""Seconds that `delete_run` waits for an old server to finish a mutation."""

SELECTS = re.compile(
    r"(\s|--[^\n]*\n|/\*.*?\*/|\()*(SELECT|WITH|SHOW|DESCRIBE|DESC|EXPLAIN|EXISTS)\b", re.IGNORECASE | re.DOTALL
)


class Carrier(Protocol):
    """Moves statements and encoded blocks to one ClickHouse engine."""

    def execute(self, sql: str, *, readonly: bool = False) -> bytes:
        """Run one statement and give its answer; raises `StoreError`."""

    def insert(self, into: str, block: bytes | memoryview) -> None:
        """Insert a Native block; `into` is `INSERT INTO table (columns)`; raises `StoreError`."""

    def sink(self, tables: Tables, *, into: str, version: Version) -> object:
        """Make a native sink that inserts into `tables.captures` (`into` says the same as a statement)."""

    def close(self) -> None:
        """Let go of what is held; a second call does nothing."""


class SqlStore:
    """A store in a ClickHouse engine, whichever carrier reaches it."""

    def __init__(self, *, url: str, carrier: Carrier, tables: Tables, own_database: bool = True) -> None:
        """Touch nothing yet; `own_database`: create the database when it is not there."""
        self.url = url
        self.tables = tables
        self._carrier = carrier
        self._own_database = own_database
        self._version: Version = ()
        self._prepared = False

    def __repr__(self) -> str:
        """Show the address without credentials."""
        return f"{type(self).__name__}({self.url})"

    @property
    def version(self) -> Version:
        """The engine's version, asked for once."""
        if not self._version:
            self._version = parse_version(str(self._ask("SELECT version()")[0][0]))
        return self._version

    def prepare(self) -> None:
        """Create the tables, or check the layout of those there."""
        if self._prepared:
            return
        for statement in create_statements(self.tables, version=self.version, database=self._own_database):
            self._carrier.execute(statement)
        self._check()
        self._prepared = True

    def sink(self, run: RunRecord) -> object:  # noqa: ARG002 - all runs share the table
        """Make a native sink onto the captures table."""
        self.prepare()
        into = _into(self.tables.full(self.tables.captures), COLUMNS)
        return self._carrier.sink(self.tables, into=into, version=self.version)

    def write_block(self, block: bytes | memoryview) -> None:
        """Insert one encoded block."""
        self._insert(self.tables.captures, COLUMNS, block)

    def write_run(self, record: RunRecord) -> None:
        """Insert a run's record, stamped now unless it has a time."""
        stamped = record if record.updated_at else replace(record, updated_at=time.time_ns())
        self._insert(self.tables.runs, RUN_COLUMNS, encode_runs([stamped]))

    def read_runs(self) -> tuple[RunRecord, ...]:
        """Give the newest record of each (run, shard)."""
        self._check()
        names = ", ".join(name for name, _ in RUN_COLUMNS)
        return latest_runs(decode_runs(self._select(f"SELECT {names} FROM {self.tables.full(self.tables.runs)}")))

    def read_index(self, run_id: str) -> tuple[CaptureRow, ...]:
        """Give the run's rows without their data, each record once."""
        self._check()
        names = [name for name, _ in COLUMNS if name != "data"]
        where = f"WHERE run_id = {quote(run_id)}"
        data = self._select(f"SELECT {', '.join(names)} FROM {self.tables.full(self.tables.captures)} {where}")
        return tuple(deduplicate(_bare_rows(decode_blocks(data))))

    def read_rows(
        self,
        run_id: str,
        *,
        sites: Collection[str] | None = None,
        layers: Collection[int] | None = None,
        requests: Collection[str] | None = None,
        index: Sequence[CaptureRow] | None = None,
    ) -> Iterator[CaptureRow]:
        """Give the rows asked for, each record once, fetched in pieces of bounded size."""
        wanted = [
            row for row in (self.read_index(run_id) if index is None else index)
            if (sites is None or row.site in sites)
            and (layers is None or row.layer in layers)
            and (requests is None or row.request_id in requests)
        ]  # fmt: skip
        for piece in plan_pieces(wanted):
            keys = {row.key for row in piece}
            for row in decode_rows(self._select(self._piece_sql(run_id, piece))):
                if row.key in keys:
                    keys.discard(row.key)
                    yield row
            if keys:
                raise StoreError(f"{len(keys)} row(s) of run {run_id!r} vanished from {self.url} while they were read")

    def query(self, sql: str) -> Frame:
        """Run one SELECT."""
        if not SELECTS.match(sql):
            raise StoreError(
                f"only queries that read are run, found {sql.strip()[:60]!r}", hint="start with SELECT or WITH"
            )
        filled = sql.strip().rstrip(";").replace("{captures}", self.tables.full(self.tables.captures))
        filled = filled.replace("{runs}", self.tables.full(self.tables.runs))
        data = self._carrier.execute(f"{filled}\nFORMAT Native", readonly=True)
        return _frame(list(decode_blocks(data)))

    def execute(self, sql: str) -> bytes:
        """Run any one statement, for upkeep; give the engine's answer as it came."""
        return self._carrier.execute(sql)

    def delete_run(self, run_id: str) -> None:
        """Remove a run's rows and records, and wait until they are gone."""
        full = self.tables.full
        counts = [
            self._ask(f"SELECT count() FROM {full(name)} WHERE run_id = {quote(run_id)}")[0][0]
            for name in (self.tables.captures, self.tables.runs)
        ]
        if not any(counts):
            raise RunNotFound(f"{self.url} holds no run {run_id!r}")
        for statement in delete_statements(self.tables, run_id, version=self.version):
            self._carrier.execute(statement)
        if self.version < MUTATIONS_SYNC_SINCE:
            self._wait_for_mutations(run_id)

    def close(self) -> None:
        """Let go of the engine."""
        self._carrier.close()

    def _wait_for_mutations(self, run_id: str) -> None:
        names = ", ".join(quote(self.tables.local(name)) for name in (self.tables.captures, self.tables.runs))
        sql = (
            f"SELECT count() FROM system.mutations WHERE database = {quote(self.tables.database)}"
            f" AND table IN ({names}) AND NOT is_done"
        )
        end = time.monotonic() + MUTATION_LIMIT
        while self._ask(sql)[0][0]:
            if time.monotonic() > end:
                raise StoreError(f"{self.url} still removes run {run_id!r} after {MUTATION_LIMIT:g} s")
            time.sleep(0.02)

    def _check(self) -> None:
        if self._prepared:
            return
        for name, layout in ((self.tables.captures, COLUMNS), (self.tables.runs, RUN_COLUMNS)):
            rows = self._ask(
                f"SELECT name, type FROM system.columns WHERE database = {quote(self.tables.database)}"
                f" AND table = {quote(name)}"
            )
            if not rows:
                raise SchemaError(
                    f"{self.url} has no table {self.tables.full(name)}",
                    hint="nothing was captured into it yet, or the database or ?table= is another one",
                )
            check_layout(self.tables.full(name), dict(rows), layout, where=self.url)
        newest = self._ask(f"SELECT max(schema_version) FROM {self.tables.full(self.tables.runs)}")
        check_schema_version(int(newest[0][0]) if newest else 0, where=self.url)

    def _piece_sql(self, run_id: str, piece: Sequence[CaptureRow]) -> str:
        # The first columns of the sorting key prune the index; `seq` picks the rows.
        names = ", ".join(name for name, _ in COLUMNS)
        return (
            f"SELECT {names} FROM {self.tables.full(self.tables.captures)} WHERE run_id = {quote(run_id)}"
            f" AND request_id IN ({', '.join(quote(one) for one in sorted({row.request_id for row in piece}))})"
            f" AND site IN ({', '.join(quote(one) for one in sorted({row.site for row in piece}))})"
            f" AND layer IN ({', '.join(str(one) for one in sorted({row.layer for row in piece}))})"
            f" AND seq IN ({', '.join(str(row.seq) for row in piece)})"
        )

    def _insert(self, table: str, layout: tuple[tuple[str, str], ...], block: bytes | memoryview) -> None:
        self._carrier.insert(_into(self.tables.full(table), layout), block)

    def _select(self, sql: str) -> bytes:
        return self._carrier.execute(f"{sql} FORMAT Native")

    def _ask(self, sql: str) -> Sequence[tuple[Any, ...]]:
        return _frame(list(decode_blocks(self._select(sql)))).rows


def _into(table: str, layout: tuple[tuple[str, str], ...]) -> str:
    return f"INSERT INTO {table} ({', '.join(name for name, _ in layout)})"


def plan_pieces(rows: Iterable[CaptureRow]) -> Iterator[list[CaptureRow]]:
    """Group rows in key order so that one query stays within `READ_BYTES` and `READ_ROWS`."""
    piece: list[CaptureRow] = []
    size = 0
    for row in sorted(rows, key=lambda one: one.key):
        nbytes = payload_bytes(row)
        if piece and (size + nbytes > READ_BYTES or len(piece) >= READ_ROWS):
            yield piece
            piece, size = [], 0
        piece.append(row)
        size += nbytes
    if piece:
        yield piece


def _bare_rows(blocks: Iterable[Block]) -> Iterator[CaptureRow]:
    for block in blocks:
        for values in zip(*block.columns, strict=True):
            yield CaptureRow.of(dict(zip((*block.names, "data"), (*values, b""), strict=True)))


def _frame(blocks: Sequence[Block]) -> Frame:
    names = blocks[0].names if blocks else ()
    return Frame(names=names, rows=[row for block in blocks for row in zip(*block.columns, strict=True)])
