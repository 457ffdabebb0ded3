"""What every store does, on every engine: the old server and the modern one pass the same tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from monitoring.blocks import BlockError
from monitoring.errors import RunNotFound, SchemaError, StoreError
from monitoring.rows import CLOSED, ITEM_BYTES, CaptureRow, RunRecord, encode_rows
from monitoring.store import Store
from monitoring.store import sql as sql_module

pytestmark = pytest.mark.native_backend

MakeRows = Callable[..., list[CaptureRow]]
STRANGE = 'it\'s \\ a "run"\n\0\t\u00e9\U0001f600; DROP TABLE captures --'


def by_seq(rows: Any) -> list[CaptureRow]:
    return sorted(rows, key=lambda row: row.seq)


def test_rows_come_back_bit_for_bit(store: Store, make_rows: MakeRows) -> None:
    rows = make_rows(40)
    store.write_block(encode_rows(rows[:25]))
    store.write_block(encode_rows(rows[25:]))
    assert by_seq(store.read_rows("r")) == rows
    assert by_seq(store.read_index("r")) == [replace(row, data=b"") for row in rows]


def test_every_dtype_and_extreme_comes_back(store: Store) -> None:
    rows = [
        CaptureRow(
            run_id="r", request_id="", site="module:a.b", layer=layer, shard_rank=65535, step=2**64 - 1, seq=seq,
            call=65535, token_start=2**32 - 2, token_end=2**32 - 1, dtype=dtype, shape=shape,
            data=bytes(ITEM_BYTES[dtype] * (0 if 0 in shape else 2)), inserted_at=2**63,
        )
        for seq, (dtype, (shape, layer)) in enumerate(
            itertools.product(ITEM_BYTES, (((2,), -1), ((1, 2, 1), 32767), ((0, 3), 0)))
        )
    ]  # fmt: skip
    scalar = replace(rows[0], seq=len(rows), dtype="float64", shape=(), data=bytes(range(248, 256)))
    store.write_block(encode_rows([*rows, scalar]))
    assert by_seq(store.read_rows("r")) == [*rows, scalar]


def test_a_resent_batch_is_read_once(store: Store, make_rows: MakeRows) -> None:
    rows = make_rows(30)
    for _ in range(3):
        store.write_block(encode_rows(rows))
    store.write_block(encode_rows([replace(row, inserted_at=9) for row in rows[5:20]]))
    assert [row.seq for row in by_seq(store.read_rows("r"))] == list(range(30))


def test_rows_that_differ_in_one_part_of_the_key_all_stay(store: Store, make_rows: MakeRows) -> None:
    base = make_rows(1)[0]
    rows = [base, *(replace(base, seq=seq) for seq in (1, 2)), replace(base, call=1), replace(base, shard_rank=1)]
    rows += [replace(base, request_id="other"), replace(base, site="q"), replace(base, layer=9), replace(base, step=4)]
    for row in rows:
        store.write_block(encode_rows([row]))
    if hasattr(store, "_carrier"):
        store._carrier.execute(f"OPTIMIZE TABLE {store.tables.full(store.tables.captures)} FINAL")  # type: ignore[attr-defined]
    assert {row.key for row in store.read_rows("r")} == {row.key for row in rows}


def test_two_runs_stay_apart(store: Store, make_rows: MakeRows) -> None:
    for run in ("a", "b", STRANGE):
        store.write_block(encode_rows(make_rows(7, run=run)))
    for run in ("a", "b", STRANGE):
        assert by_seq(store.read_rows(run)) == make_rows(7, run=run)
    assert list(store.read_rows("c")) == []


def test_selections(store: Store, make_rows: MakeRows) -> None:
    rows = [*make_rows(20), *(replace(row, site="final_ln", layer=-1, seq=row.seq + 20) for row in make_rows(20))]
    store.write_block(encode_rows(rows))
    for chosen, wanted in (
        ({"sites": ["final_ln"]}, lambda row: row.site == "final_ln"),
        ({"layers": [1]}, lambda row: row.layer == 1),
        ({"requests": ["q1"]}, lambda row: row.request_id == "q1"),
        ({"sites": ["resid_pre"], "layers": [0, -1], "requests": ["q0", "q2"]},
         lambda row: row.site == "resid_pre" and row.layer == 0 and row.request_id != "q1"),
        ({"sites": []}, lambda row: False),
        ({"sites": [STRANGE], "requests": [STRANGE]}, lambda row: False),
    ):  # fmt: skip
        assert by_seq(store.read_rows("r", **chosen)) == [row for row in rows if wanted(row)]


def test_reading_in_pieces_gives_all(store: Store, make_rows: MakeRows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_module, "READ_BYTES", 4000)
    monkeypatch.setattr(sql_module, "READ_ROWS", 11)
    rows = make_rows(100, size=900)
    store.write_block(encode_rows(rows))
    store.write_block(encode_rows(rows[:50]))
    assert by_seq(store.read_rows("r")) == rows


def test_many_small_rows_fit_the_statement_limit(store: Store, make_rows: MakeRows) -> None:
    rows = make_rows(2 * sql_module.READ_ROWS + 1, first=2**40)
    rows = [replace(row, token_start=at, token_end=at + 1, step=at) for at, row in enumerate(rows)]
    store.write_block(encode_rows(rows))
    assert len(list(store.read_rows("r"))) == len(rows)


def test_run_records(store: Store) -> None:
    first = RunRecord(
        run_id=STRANGE, model_id="m", shard_count=2, started_at=5, expected=(("resid_pre", 0), ("final_ln", -1)),
        details={"family": "gpt2 'x'"}, updated_at=10,
    )  # fmt: skip
    closed = replace(
        first, state=CLOSED, seq_end=9, accepted=9, written=8, dropped=1, losses={"oldest": 1}, updated_at=11
    )
    other = RunRecord(run_id="b", started_at=1, updated_at=1)
    for record in (first, closed, replace(first, shard_rank=1), other):
        store.write_run(record)
    assert store.read_runs() == (other, closed, replace(first, shard_rank=1))


def test_deleting_a_run_removes_it_alone(store: Store, make_rows: MakeRows) -> None:
    for run in ("a", STRANGE):
        store.write_block(encode_rows(make_rows(5, run=run)))
        store.write_run(RunRecord(run_id=run, updated_at=1))
    store.delete_run(STRANGE)
    assert list(store.read_rows(STRANGE)) == []
    assert [record.run_id for record in store.read_runs()] == ["a"]
    assert len(list(store.read_rows("a"))) == 5
    with pytest.raises(RunNotFound, match="holds no run"):
        store.delete_run(STRANGE)


def test_preparing_twice_keeps_the_rows(place: Any, make_rows: MakeRows) -> None:
    for _ in range(2):
        store = place.open()
        store.prepare()
        store.prepare()
        store.write_block(encode_rows(make_rows(3)))
        store.close()
        store.close()
    again = place.open()
    assert len(list(again.read_rows("r"))) == 3
    again.close()


def test_a_second_engine_with_another_table_never_created_it(sql_place: Any, make_rows: MakeRows) -> None:
    """Two stores in one process, each with tables of its own."""
    other = sql_place.url + ("2" if "?" in sql_place.url else "_2")
    stores = [sql_place.open(), type(sql_place)(sql_place.kind, other).open()]
    for number, store in enumerate(stores):
        store.prepare()
        store.write_block(encode_rows(make_rows(3 + number)))
    assert [len(list(store.read_rows("r"))) for store in stores] == [3, 4]
    for store in stores:
        store.close()


@pytest.mark.parametrize("damage", [b"", b"\x01", b"garbage" * 30])
def test_a_damaged_block_is_refused_and_the_next_one_is_taken(
    sql_store: Store, make_rows: MakeRows, damage: bytes
) -> None:
    whole = encode_rows(make_rows(5))
    with pytest.raises((StoreError, BlockError)):
        sql_store.write_block(damage + whole[: len(whole) - 9])
    assert list(sql_store.read_rows("r")) == []
    sql_store.write_block(whole)
    assert len(list(sql_store.read_rows("r"))) == 5


def test_sql_answers_and_refuses_to_write(sql_store: Store, make_rows: MakeRows) -> None:
    sql_store.write_block(encode_rows(make_rows(12)))
    frame = sql_store.query("SELECT layer, count() AS n FROM {captures} GROUP BY layer ORDER BY layer;")
    assert frame.names == ("layer", "n")
    assert [tuple(row) for row in frame.rows] == [(0, 6), (1, 6)]
    data = sql_store.query("/* all */ SELECT data FROM {captures} WHERE seq = 3").rows[0][0]
    assert data == make_rows(12)[3].data
    for statement in ("DROP TABLE {captures}", "INSERT INTO {captures} SELECT * FROM {captures}", "", "SELECTED"):
        with pytest.raises(StoreError, match="only queries that read"):
            sql_store.query(statement)
    with pytest.raises(StoreError) as caught:
        sql_store.query("SELECT nothing FROM nowhere")
    assert "Code: " in caught.value.message
    assert len(caught.value.message) < 800


def test_a_table_of_another_layout_is_refused(sql_place: Any) -> None:
    store = sql_place.open()
    store.prepare()
    store._carrier.execute(f"ALTER TABLE {store.tables.full(store.tables.captures)} DROP COLUMN model_id")
    store._carrier.execute(f"ALTER TABLE {store.tables.full(store.tables.captures)} ADD COLUMN extra UInt8")
    again = sql_place.open()
    for use in (again.prepare, again.read_runs):
        with pytest.raises(SchemaError, match="model_id is missing, expected String") as caught:
            use()
        assert "extra UInt8 is not known" in caught.value.message
    for one in (store, again):
        one.close()


def test_runs_of_a_newer_version_are_refused(sql_place: Any) -> None:
    store = sql_place.open()
    store.prepare()
    store.write_run(RunRecord(run_id="future", schema_version=99, updated_at=1))
    again = sql_place.open()
    with pytest.raises(SchemaError, match="schema version 99"):
        again.prepare()
    for one in (store, again):
        one.close()


def test_reading_where_nothing_was_captured(sql_place: Any) -> None:
    store = sql_place.open()
    with pytest.raises(StoreError, match=r"no table|no store"):
        store.read_runs()
    store.close()


def test_large_rows_come_back(sql_store: Store, make_rows: MakeRows) -> None:
    rows = make_rows(96, size=1 << 18)
    for start in range(0, 96, 32):
        sql_store.write_block(encode_rows(rows[start : start + 32]))
    wanted = rows[50]
    found = list(sql_store.read_rows("r", requests=[wanted.request_id], layers=[wanted.layer]))
    assert wanted in found


def test_an_index_that_the_caller_has_is_not_read_again(
    sql_store: Store, make_rows: MakeRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql_store.write_block(encode_rows(make_rows(9)))
    index = sql_store.read_index("r")
    monkeypatch.setattr(type(sql_store), "read_index", lambda *_: pytest.fail("the index was read twice"))
    assert by_seq(sql_store.read_rows("r", index=index)) == make_rows(9)


def test_rows_that_vanish_while_they_are_read_are_noticed(sql_store: Store, make_rows: MakeRows) -> None:
    sql_store.write_block(encode_rows(make_rows(9)))
    index = sql_store.read_index("r")
    with pytest.raises(StoreError, match=r"1 row\(s\) of run 'r' vanished"):
        list(sql_store.read_rows("r", index=[*index, replace(index[0], seq=77)]))
