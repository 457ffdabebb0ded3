"""The row layout: rows and run records through blocks and back."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitoring.blocks import Block, BlockError, encode_block
from monitoring.rows import (
    CLOSED,
    COLUMNS,
    ITEM_BYTES,
    RUN_COLUMNS,
    SORTING_KEY,
    CaptureRow,
    RunRecord,
    decode_rows,
    decode_runs,
    deduplicate,
    encode_rows,
    encode_runs,
    latest_runs,
)

pytestmark = pytest.mark.cpu

UINT32 = st.integers(0, 2**32 - 1)
UINT64 = st.integers(0, 2**64 - 1)


@st.composite
def capture_rows(draw: st.DrawFn) -> CaptureRow:
    dtype = draw(st.sampled_from(list(ITEM_BYTES)))
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
    size = ITEM_BYTES[dtype]
    for extent in shape:
        size *= extent
    return CaptureRow(
        run_id=draw(st.text()), model_id=draw(st.text()), request_id=draw(st.text()), site=draw(st.text()),
        layer=draw(st.integers(-1, 2**15 - 1)), shard_rank=draw(st.integers(0, 65535)), step=draw(UINT64),
        seq=draw(UINT64), call=draw(st.integers(0, 65535)), token_start=draw(UINT32), token_end=draw(UINT32),
        dtype=dtype, shape=shape, data=draw(st.binary(min_size=size, max_size=size)), inserted_at=draw(UINT64),
    )  # fmt: skip


@given(st.lists(capture_rows(), max_size=4))
def test_rows_come_back_as_they_were(rows: list[CaptureRow]) -> None:
    assert list(decode_rows(encode_rows(rows))) == rows


@given(
    st.builds(
        RunRecord, run_id=st.text(), model_id=st.text(), seq_end=UINT64, updated_at=UINT64,
        expected=st.lists(st.tuples(st.text(), st.integers(-1, 99)), max_size=4).map(tuple),
        losses=st.dictionaries(st.text(), UINT64, max_size=3),
        details=st.dictionaries(st.text(), st.text(), max_size=3),
    )
)  # fmt: skip
def test_run_records_come_back_as_they_were(record: RunRecord) -> None:
    assert list(decode_runs(encode_runs([record]))) == [record]


def test_the_layout_covers_the_values_and_the_key() -> None:
    assert {name for name, _ in COLUMNS} == {item.name for item in fields(CaptureRow)}
    assert {name for name, _ in RUN_COLUMNS} == {item.name for item in fields(RunRecord)}
    assert set(SORTING_KEY) < {name for name, _ in COLUMNS}


def test_a_row_whose_bytes_do_not_fit_its_shape_is_refused() -> None:
    good = CaptureRow(run_id="r", request_id="q", site="s", seq=0, dtype="float32", shape=(2,), data=bytes(8))
    for bad, what in (
        (replace(good, data=bytes(7)), "7 bytes, expected 8"),
        (replace(good, dtype="float33"), "dtype 'float33'"),
        (replace(good, shape=(3,)), "expected 12"),
    ):
        with pytest.raises(BlockError, match=what):
            list(decode_rows(encode_rows([bad])))


def test_a_block_of_another_layout_is_refused() -> None:
    for block in (
        Block(names=("run_id",), types=("String",), columns=(["r"],)),
        Block(names=("x",), types=("UInt8",), columns=([1],)),
        Block(names=("run_id", "run_id"), types=("String", "String"), columns=(["r"], ["r"])),
    ):
        with pytest.raises(BlockError, match="has the columns"):
            list(decode_rows(encode_block(block)))
        with pytest.raises(BlockError, match="has the columns"):
            list(decode_runs(encode_block(block)))


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("expected", "[1]"),
        ("expected", "{"),
        ("losses", "[]"),
        ("details", "7"),
        ("state", "odd"),
        ("losses", "[" * 9999),
    ],
)
def test_a_damaged_run_record_is_refused(column: str, text: str) -> None:
    record = RunRecord(run_id="r")
    plain = {name: getattr(record, name) for name, _ in RUN_COLUMNS} | {
        "expected": "[]",
        "losses": "{}",
        "details": "{}",
    }
    plain[column] = text
    block = Block(
        names=tuple(plain),
        types=tuple(kind for _, kind in RUN_COLUMNS),
        columns=tuple([value] for value in plain.values()),
    )
    with pytest.raises(BlockError, match="run 'r' is damaged"):
        list(decode_runs(encode_block(block)))


def test_a_resent_row_is_given_once_and_distinct_rows_never_collapse() -> None:
    base = CaptureRow(run_id="r", request_id="q", site="s", seq=0, dtype="uint8", shape=(1,), data=b"a", token_end=1)
    others = [
        replace(base, **{name: value})
        for name, value in (
            ("run_id", "r2"), ("request_id", "q2"), ("site", "s2"), ("layer", 3), ("shard_rank", 1),
            ("step", 1), ("seq", 1), ("call", 1), ("token_start", 1),
        )
    ]  # fmt: skip
    sent = [base, *others, replace(base, inserted_at=5), *others]
    assert list(deduplicate(sent)) == [base, *others]


def test_the_newest_record_of_each_shard_wins_and_closed_beats_open() -> None:
    opened = RunRecord(run_id="b", started_at=2, updated_at=10)
    closed = replace(opened, state=CLOSED, updated_at=9)
    shard = replace(opened, shard_rank=1)
    older = RunRecord(run_id="z", started_at=1)
    assert latest_runs([closed, shard, opened, older]) == (older, closed, shard)
