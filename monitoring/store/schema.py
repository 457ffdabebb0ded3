"""DDL and checks of the two tables: pure text, portable to ClickHouse 18.16.

`ReplacingMergeTree` ordered by the identity of a record makes a batch that was
sent twice collapse in merges; reads deduplicate as well, for merges come when
they come. The small `index_granularity` is what makes reading one 256 KiB row
take milliseconds: the default of 8192 rows would read 2 GiB around it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from monitoring.errors import SchemaError
from monitoring.rows import COLUMNS, RUN_COLUMNS, RUN_SORTING_KEY, SCHEMA_VERSION, SORTING_KEY
from monitoring.store.url import StoreUrl

CAPTURES_GRANULARITY = 32
RUNS_GRANULARITY = 256
DEDUPLICATION_WINDOW = 1000
"""Newest blocks whose tokens a table remembers (servers that know `insert_deduplication_token`)."""

TOKENS_SINCE = (22, 2)
"""First version with `insert_deduplication_token` and `non_replicated_deduplication_window`."""

FREE_BYTES_SINCE = (24, 10)

MUTATIONS_SYNC_SINCE = (20, 1)

Version = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Tables:
    """Where the two tables are and of which kind; all names are checked identifiers.

    `free_bytes` is the disk space below which inserts are refused (0: the engine's own judgement).
    """

    database: str = "default"
    captures: str = "captures"
    runs: str = "runs"
    cluster: str = ""
    replicated: bool = False
    engine: str = "MergeTree"
    free_bytes: int = 0

    @classmethod
    def of(cls, url: StoreUrl) -> Tables:
        """Read them off a store's URL."""
        name = url.options.get("table", "")
        return cls(
            database=url.database,
            captures=name or "captures",
            runs=f"{name}_runs" if name else "runs",
            cluster=url.options.get("cluster", ""),
            replicated=url.options.get("replicated") == "1",
            engine=url.options.get("engine", "MergeTree"),
        )

    def full(self, name: str) -> str:
        """Give a table's name with its database."""
        return f"{self.database}.{name}"

    def local(self, name: str) -> str:
        """Give the table that holds the rows: behind a Distributed table it has a name of its own."""
        return f"{name}_local" if self.cluster else name


def parse_version(text: str) -> Version:
    """Read `18.16.1` or `26.9.2.1-official` as numbers; raises `SchemaError` for anything else."""
    match = re.match(r"\d+(\.\d+)+", text.strip())
    if match is None:
        raise SchemaError(f"the server gives its version as {text[:40]!r}, expected numbers such as 24.8.1")
    return tuple(int(part) for part in match.group().split("."))


def create_statements(tables: Tables, *, version: Version, database: bool = True) -> tuple[str, ...]:
    """Give the statements that create what is not there yet, in order; `database` also the database."""
    on_cluster = f" ON CLUSTER {tables.cluster}" if tables.cluster else ""
    statements = [f"CREATE DATABASE IF NOT EXISTS {tables.database}{on_cluster}"] if database else []
    for name, columns, key, granularity, replaced_by in (
        (tables.captures, COLUMNS, SORTING_KEY, CAPTURES_GRANULARITY, ""),
        (tables.runs, RUN_COLUMNS, RUN_SORTING_KEY, RUNS_GRANULARITY, "updated_at"),
    ):
        body = ", ".join(f"{column} {kind}" for column, kind in columns)
        engine = _engine(tables, name, key=key, granularity=granularity, replaced_by=replaced_by, version=version)
        local = tables.full(tables.local(name))
        statements.append(f"CREATE TABLE IF NOT EXISTS {local}{on_cluster} ({body}) ENGINE = {engine}")
        if tables.cluster:
            shards = f"Distributed({tables.cluster}, {tables.database}, {tables.local(name)}, cityHash64(run_id))"
            statements.append(f"CREATE TABLE IF NOT EXISTS {tables.full(name)}{on_cluster} ({body}) ENGINE = {shards}")
    return tuple(statements)


def delete_statements(tables: Tables, run_id: str, *, version: Version) -> tuple[str, ...]:
    """Give the mutations that remove a run; without `mutations_sync` (old servers) the caller waits."""
    on_cluster = f" ON CLUSTER {tables.cluster}" if tables.cluster else ""
    wait = " SETTINGS mutations_sync = 2" if version >= MUTATIONS_SYNC_SINCE else ""
    return tuple(
        f"ALTER TABLE {tables.full(tables.local(name))}{on_cluster} DELETE WHERE run_id = {quote(run_id)}{wait}"
        for name in (tables.captures, tables.runs)
    )


def check_layout(name: str, found: Mapping[str, str], expected: Sequence[tuple[str, str]], *, where: str) -> None:
    """Raise `SchemaError` listing every column that an existing table has otherwise."""
    problems = [
        f"column {column} is missing, expected {kind}" if column not in found
        else f"column {column} is {found[column]}, expected {kind}"
        for column, kind in expected if found.get(column) != kind
    ]  # fmt: skip
    names = {column for column, _ in expected}
    problems += [f"column {column} {kind} is not known" for column, kind in found.items() if column not in names]
    if problems:
        raise SchemaError(
            f"table {name} of {where} has another layout than version {SCHEMA_VERSION}:\n"
            + "\n".join(f"  - {problem}" for problem in problems),
            hint="read it with the version that wrote it, or name another table with ?table=NAME (another folder)",
        )


def check_schema_version(found: int, *, where: str) -> None:
    """Raise `SchemaError` when a store's runs were written by a newer layout."""
    if found > SCHEMA_VERSION:
        raise SchemaError(
            f"{where} holds runs of schema version {found}, this library knows up to {SCHEMA_VERSION}",
            hint="upgrade lockgate, or write to another table with ?table=NAME (another folder)",
        )


def quote(text: str) -> str:
    """Give a string literal; every character that could end it is escaped."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\0", "\\0").replace("\n", "\\n")
    return f"'{escaped}'"


def _engine(
    tables: Tables, name: str, *, key: Sequence[str], granularity: int, replaced_by: str, version: Version
) -> str:
    if tables.engine == "Null" and name == tables.captures:
        return "Null"
    settings = [f"index_granularity = {granularity}"]
    if tables.free_bytes and version >= FREE_BYTES_SINCE:
        settings.append(f"min_free_disk_bytes_to_perform_insert = {tables.free_bytes}")
    if tables.replicated:
        # The macros are the server's; each table has a path of its own in the coordination service.
        place = f"'/clickhouse/tables/{{shard}}/{tables.database}/{tables.local(name)}', '{{replica}}'"
        engine = f"ReplicatedReplacingMergeTree({', '.join(part for part in (place, replaced_by) if part)})"
    else:
        engine = f"ReplacingMergeTree({replaced_by})"
        if version >= TOKENS_SINCE:
            settings.append(f"non_replicated_deduplication_window = {DEDUPLICATION_WINDOW}")
    return f"{engine} ORDER BY ({', '.join(key)}) SETTINGS {', '.join(settings)}"
