"""The native ring's blocks in every store: what was pushed is what is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from monitoring.errors import RunNotFound
from monitoring.rows import COLUMNS, ITEM_BYTES, RunRecord, decode_rows, encode_rows
from monitoring.store import Store, open_store
from monitoring.store.server import HttpCarrier
from monitoring.store.url import parse_store_url

native = pytest.importorskip("monitoring._native", reason="the native library is not built")

pytestmark = [pytest.mark.native_backend, pytest.mark.ring_native]


def test_the_encoder_and_the_layout_agree() -> None:
    assert native.COLUMNS == COLUMNS


def test_the_native_encoder_writes_what_the_python_one_does(push_rows: Callable[..., Any]) -> None:
    blocks: list[bytes] = []
    ring = native.Ring(
        native.CallbackSink(lambda block, rows, token: blocks.append(block), name="test"), run_id="r", model_id="m"
    )
    push_rows(ring, 40)
    assert ring.close(10.0)
    rows = [row for block in blocks for row in decode_rows(block)]
    assert b"".join(blocks) == b"".join(encode_rows(list(decode_rows(block))) for block in blocks)
    assert [row.seq for row in rows] == list(range(40))


def test_every_dtype_that_the_encoder_knows_can_be_read() -> None:
    blocks: list[bytes] = []
    ring = native.Ring(
        native.CallbackSink(lambda block, rows, token: blocks.append(block), name="test"), run_id="r", model_id="m"
    )
    import ctypes

    source = ctypes.create_string_buffer(64)
    known = []
    for dtype, size in ITEM_BYTES.items():
        try:
            slot = ring.declare("q", 0, 0, dtype)
        except ValueError:
            continue
        known.append(dtype)
        assert ring.push(slot, ring.request("a"), 0, 0, 0, 2, (2,), ctypes.addressof(source), 2 * size)
    assert ring.close(10.0)
    assert [row.dtype for block in blocks for row in decode_rows(block)] == known
    assert {"float32", "bfloat16", "float16", "int64", "bool", "float8_e4m3fn"} <= set(known)


def test_pushed_records_are_read_back(store: Store, push_rows: Callable[..., Any]) -> None:
    ring = native.Ring(store.sink(RunRecord(run_id="r")), run_id="r", model_id="m")
    pushed = push_rows(ring, 300)
    assert ring.flush(30.0), ring.stats()
    pushed += push_rows(ring, 20, first=300)
    assert ring.close(30.0), ring.stats()
    stats = ring.stats()
    assert stats["accepted"] == stats["written"] == 320
    rows = sorted(store.read_rows("r"), key=lambda row: row.seq)
    assert [(row.seq, row.layer, row.token_start, row.data) for row in rows] == pushed
    assert {(row.run_id, row.model_id, row.site, row.dtype) for row in rows} == {("r", "m", "resid_pre", "float32")}


def test_the_null_store_counts(push_rows: Callable[..., Any]) -> None:
    store = open_store("null:")
    store.prepare()
    ring = native.Ring(store.sink(RunRecord(run_id="r")), run_id="r", model_id="m")
    push_rows(ring, 50)
    assert ring.close(10.0)
    assert ring.stats()["written"] == 50
    for use in (store.read_index, store.read_rows, store.delete_run):
        with pytest.raises(RunNotFound):
            use("r")


def test_tokens_of_the_native_client_deduplicate_on_the_modern_engine(
    modern_server: Any, push_rows: Callable[..., Any]
) -> None:
    store = open_store(f"{modern_server.url}?table=tokens")
    store.prepare()
    modern_server.tokens.clear()
    ring = native.Ring(store.sink(RunRecord(run_id="r")), run_id="r", model_id="m")
    push_rows(ring, 10)
    assert ring.close(10.0)
    assert all(modern_server.tokens)
    # The same block again under the same token leaves no second copy, even before any merge.
    carrier = HttpCarrier(parse_store_url(modern_server.url))
    block = encode_rows(sorted(store.read_rows("r"), key=lambda row: row.seq))
    into = f"INSERT INTO default.tokens ({', '.join(name for name, _ in COLUMNS)})"
    token = modern_server.tokens[0]
    with modern_server.lock:
        modern_server.carrier.insert(f"{into} SETTINGS insert_deduplication_token = '{token}'", block)
    assert store.query("SELECT count() FROM {captures}").rows[0][0] == 10
    carrier.close()
    store.close()
