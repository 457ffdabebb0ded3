"""Rows as frames, and SQL straight on the store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from monitoring.errors import StoreError
from monitoring.read import read
from monitoring.reading.frames import frame_to_pandas
from monitoring.rows import CLOSED, CaptureRow, RunRecord, encode_rows
from monitoring.store import open_store

pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
pytest.importorskip("chdb")

pytestmark = pytest.mark.native_backend

ROW = CaptureRow(
    run_id="r",
    request_id="q",
    site="resid_pre",
    layer=0,
    seq=0,
    token_end=2,
    dtype="uint8",
    shape=(2, 1),
    data=b"\0\xff",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store = open_store(tmp_path / "store")
    store.prepare()
    rows = [replace(ROW, seq=seq, layer=seq) for seq in range(3)]
    store.write_block(encode_rows(rows))
    store.write_run(RunRecord(run_id="r", state=CLOSED, seq_end=3))
    store.close()
    return tmp_path / "store"


def test_frames_hold_the_rows(folder: Path) -> None:
    internals = read(folder)
    frame = internals.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["seq"]) == [0, 1, 2]
    assert list(frame["data"]) == [b"\0\xff"] * 3
    table = internals.to_arrow()
    assert table.num_rows == 3
    assert table.column("shape").to_pylist() == [[2, 1]] * 3
    assert str(table.schema.field("layer").type) == "int16"


def test_sql_on_the_store_of_a_run(folder: Path) -> None:
    internals = read(str(folder))
    frame = internals.sql("SELECT layer, length(data) AS n FROM {captures} WHERE run_id = 'r' ORDER BY layer")
    assert frame_to_pandas(frame).to_dict("list") == {"layer": [0, 1, 2], "n": [2, 2, 2]}
    with pytest.raises(StoreError, match="only queries that read"):
        internals.sql("TRUNCATE TABLE {captures}")


def test_a_run_read_from_an_open_store_says_where_it_is(folder: Path) -> None:
    store = open_store(folder)
    internals = read(store)
    assert internals.sql("SELECT count() FROM {runs}").rows == [(1,)]
    store.close()
