"""DDL as text: the portable tables, clusters, and the checks of what is already there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitoring.errors import SchemaError
from monitoring.rows import COLUMNS, RUN_COLUMNS, SCHEMA_VERSION, SORTING_KEY
from monitoring.store.schema import (
    Tables,
    check_layout,
    check_schema_version,
    create_statements,
    delete_statements,
    parse_version,
    quote,
)
from monitoring.store.server import insert_settings, server_error
from monitoring.store.url import parse_store_url

pytestmark = pytest.mark.cpu

OLD, NEW = (18, 16, 1), (26, 9, 2)


def tables(options: str = "") -> Tables:
    return Tables.of(parse_store_url(f"clickhouse://h/base{options}"))


def test_plain_tables_are_portable() -> None:
    database, captures, runs = create_statements(tables(), version=OLD)
    assert database == "CREATE DATABASE IF NOT EXISTS base"
    assert captures.startswith("CREATE TABLE IF NOT EXISTS base.captures (run_id String, ")
    assert (
        f"ENGINE = ReplacingMergeTree() ORDER BY ({', '.join(SORTING_KEY)}) SETTINGS index_granularity = 32" in captures
    )
    assert "ENGINE = ReplacingMergeTree(updated_at) ORDER BY (run_id, shard_rank)" in runs
    for statement in (captures, runs):
        for modern in ("CODEC", "TTL", "LowCardinality", "DateTime64", "window", "PARTITION"):
            assert modern not in statement


def test_modern_settings_come_after_a_version_check() -> None:
    _, captures, _ = create_statements(tables(), version=NEW)
    assert captures.endswith("SETTINGS index_granularity = 32, non_replicated_deduplication_window = 1000")
    assert "mutations_sync = 2" in delete_statements(tables(), "r", version=NEW)[0]
    assert "mutations_sync" not in delete_statements(tables(), "r", version=OLD)[0]


def test_space_is_kept_free_where_the_engine_can() -> None:
    roomy = replace(tables(), free_bytes=1 << 20)
    assert "min_free_disk_bytes_to_perform_insert = 1048576" in create_statements(roomy, version=NEW)[1]
    assert "min_free" not in create_statements(roomy, version=OLD)[1]
    assert "min_free" not in create_statements(tables(), version=NEW)[1]


def test_a_cluster_gets_local_and_distributed_tables() -> None:
    made = create_statements(tables("?cluster=c1&replicated=1&table=t"), version=NEW)
    assert len(made) == 5
    assert all("ON CLUSTER c1" in statement for statement in made)
    assert (
        "ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/base/t_local', '{replica}') ORDER BY"
        in made[1]
    )
    assert made[2].endswith("ENGINE = Distributed(c1, base, t_local, cityHash64(run_id))")
    assert "'{replica}', updated_at)" in made[3]
    assert made[4].endswith("ENGINE = Distributed(c1, base, t_runs_local, cityHash64(run_id))")
    assert delete_statements(tables("?cluster=c1&table=t"), "r", version=OLD) == (
        "ALTER TABLE base.t_local ON CLUSTER c1 DELETE WHERE run_id = 'r'",
        "ALTER TABLE base.t_runs_local ON CLUSTER c1 DELETE WHERE run_id = 'r'",
    )
    assert insert_settings(parse_store_url("clickhouse://h/d?cluster=c1")) == {"insert_distributed_sync": "1"}


def test_replicated_without_a_cluster() -> None:
    _, captures, _ = create_statements(tables("?replicated=1"), version=OLD)
    assert "ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/base/captures', '{replica}')" in captures


def test_engine_null_keeps_runs() -> None:
    _, captures, runs = create_statements(tables("?engine=Null"), version=OLD)
    assert captures.endswith("ENGINE = Null")
    assert "ReplacingMergeTree" in runs


@pytest.mark.parametrize(
    ("text", "version"), [("18.16.1", OLD), ("26.9.2.1", (26, 9, 2, 1)), ("24.8.1-official", (24, 8, 1))]
)
def test_versions(text: str, version: tuple[int, ...]) -> None:
    assert parse_version(text) == version


def test_no_version() -> None:
    with pytest.raises(SchemaError, match="'latest'"):
        parse_version("latest")


def test_an_existing_table_is_compared_column_by_column() -> None:
    check_layout("t", dict(COLUMNS), COLUMNS, where="w")
    found = {name: kind for name, kind in COLUMNS if name != "call"} | {"layer": "String", "extra": "UInt8"}
    with pytest.raises(SchemaError) as caught:
        check_layout("t", found, COLUMNS, where="w")
    for line in ("call is missing, expected UInt16", "layer is String, expected Int16", "extra UInt8 is not known"):
        assert line in caught.value.message


def test_a_newer_schema_version_is_refused() -> None:
    check_schema_version(SCHEMA_VERSION, where="w")
    with pytest.raises(SchemaError, match=f"schema version {SCHEMA_VERSION + 1}"):
        check_schema_version(SCHEMA_VERSION + 1, where="w")


@given(st.text())
def test_a_quoted_string_cannot_end_early(text: str) -> None:
    body = quote(text)[1:-1]
    rest = body.replace("\\\\", "").replace("\\'", "")
    assert "'" not in rest
    assert "\0" not in body


def test_the_layouts_name_each_column_once() -> None:
    for layout in (COLUMNS, RUN_COLUMNS):
        names = [name for name, _ in layout]
        assert len(names) == len(set(names))


def test_a_servers_error_is_short_has_a_hint_and_no_password() -> None:
    url = parse_store_url("clickhouse://u:s3cret@h/d")
    text = "Code: 516. DB::Exception: u: wrong s3cret. (AUTH)\nStack trace:\n0. long\n1. long"
    error = server_error(text, status=500, url=url)
    assert "s3cret" not in str(error)
    assert "long" not in str(error)
    assert "check user and password" in error.hint
    assert "HTTP status 502" in str(server_error("", status=502, url=url))
