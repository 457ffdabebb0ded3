"""What goes into the ring comes out of the encoder, byte for byte, with its identity."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitoring import rows as row_layout
from monitoring.errors import CaptureError
from monitoring.native import load_native
from monitoring.ring import Ring, describe
from monitoring.rows import decode_rows, encode_rows

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.native_backend, pytest.mark.ring_native]


def capture(action, **options):
    """Run `action(ring)` and give the rows that it stored."""
    blocks = []
    native = load_native()
    sink = native.CallbackSink(lambda block, rows, token: blocks.append(block), name="rows")
    with Ring(sink, run_id="run", model_id="model", flush_seconds=0.0, capacity_bytes=1 << 20, **options) as ring:
        result = action(ring)
    assert ring.stats().balanced
    assert ring.stats().lost == 0
    return [row for block in blocks for row in decode_rows(block)], result, blocks


def test_the_column_table_and_the_element_sizes_are_those_of_the_row_layout(native):
    assert native.COLUMNS == row_layout.COLUMNS
    assert dict(row_layout.ITEM_BYTES) == native.ITEM_BYTES


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float8_e4m3fn", "int64", "bool", "complex64"])
def test_a_tensor_comes_back_bit_equal(dtype):
    tensor = torch.arange(24).reshape(2, 3, 4).to(getattr(torch, dtype))
    rows, inside, _ = capture(
        lambda ring: ring.push(
            tensor, site="resid_pre", request="a", layer=3, shard_rank=1, step=7, call=2, tokens=(5, 8)
        )
    )
    assert inside
    (row,) = rows
    assert (row.run_id, row.model_id, row.request_id, row.site) == ("run", "model", "a", "resid_pre")
    assert (row.layer, row.shard_rank, row.step, row.call, row.seq) == (3, 1, 7, 2, 0)
    assert (row.token_start, row.token_end, row.dtype, row.shape) == (5, 8, dtype, (2, 3, 4))
    assert row.data == bytes(tensor.contiguous().view(torch.uint8).flatten().tolist())


def test_the_encoder_and_the_python_codec_write_the_same_bytes():
    tensors = [torch.randn(3, 5), torch.zeros(0, 4), torch.randn(4000), torch.tensor(2.5)]

    def push(ring):
        for step, tensor in enumerate(tensors):
            ring.push(tensor, site=f"site{step}", request="räquest", step=step, layer=-1, tokens=(step, step + 1))

    rows, _, blocks = capture(push)
    assert len(rows) == len(tensors)
    again = b"".join(encode_rows(list(decode_rows(block))) for block in blocks)
    assert again == b"".join(blocks)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_rows_of_a_batch_are_the_slices_that_torch_gives(data):
    batch = data.draw(st.integers(1, 4))
    columns = data.draw(st.integers(1, 6))
    before = data.draw(st.lists(st.integers(1, 3), max_size=2))
    after = data.draw(st.lists(st.integers(1, 3), max_size=2))
    shape = (batch, *before, columns, *after)
    tensor = torch.randn(shape)
    token_dim = 1 + len(before)
    column = data.draw(st.integers(0, 3))
    plan = []
    for row in range(batch):
        first = data.draw(st.integers(0, column + columns))
        last = data.draw(st.integers(first, column + columns))
        plan.append((f"r{row}", row, first, last, data.draw(st.integers(0, 1000))))
    rows, inside, _ = capture(lambda ring: ring.push_rows(tensor, plan, site="z", token_dim=token_dim, column=column))

    expected = []
    for name, row, first, last, token in plan:
        begin = max(first, column)
        if begin < last:
            part = tensor[row].narrow(token_dim - 1, begin - column, last - begin)
            expected.append(
                (
                    name,
                    tuple(part.shape),
                    token + begin - first,
                    token + last - first,
                    part.contiguous().numpy().tobytes(),
                )
            )
    assert inside == len(expected)
    assert [(row.request_id, row.shape, row.token_start, row.token_end, row.data) for row in rows] == expected


def test_a_plan_that_does_not_fit_the_tensor_records_nothing(make_ring, collector):
    ring = make_ring(collector)
    slot, request = ring.declare("q", 0, 0, "float32"), ring.request("a")
    tensor = torch.zeros(2, 4, 3)
    for rows, problem in [
        ([(request, 2, 0, 4, 0)], "batch row 2, the tensor has 2"),
        ([(request, 0, 0, 4, 0), (request, 1, 0, 5, 0)], "columns up to 5 of batch row 1, the tensor ends at column 4"),
    ]:
        with pytest.raises(ValueError, match=problem):
            ring.push_rows(slot, ring.plan(0, rows), 0, 1, (2, 4, 3), tensor.data_ptr(), tensor.nbytes)
    with pytest.raises(ValueError, match="token_dim is 3, expected 1 to 2"):
        ring.push_rows(slot, ring.plan(0, []), 0, 3, (2, 4, 3), tensor.data_ptr(), tensor.nbytes)
    with pytest.raises(ValueError, match="end before they begin"):
        ring.plan(0, [(request, 0, 3, 2, 0)])
    assert ring.stats()["accepted"] == 0


def test_old_plans_and_unknown_numbers_are_refused(make_ring, collector):
    ring = make_ring(collector)
    slot, request = ring.declare("q", 0, 0, "float32"), ring.request("a")
    first = ring.plan(0, [(request, 0, 0, 1, 0)])
    for step in range(64):
        ring.plan(step, [])
    tensor = torch.zeros(1, 1)
    with pytest.raises(ValueError, match="plan 0 is not kept"):
        ring.push_rows(slot, first, 0, 1, (1, 1), tensor.data_ptr(), 4)
    with pytest.raises(ValueError, match=re.escape("slot 9 was never declared (there are 1)")):
        ring.push(9, request, 0, 0, 0, 1, (1,), tensor.data_ptr(), 4)
    with pytest.raises(ValueError, match="request 9 is not known"):
        ring.push(slot, 9, 0, 0, 0, 1, (1,), tensor.data_ptr(), 4)
    assert ring.stats()["accepted"] == 0


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"nbytes": 5}, "5 bytes does not hold 1 elements of float32"),
        ({"data_ptr": 0}, "data_ptr is 0"),
        ({"shape": (1,) * 9}, "9 dimensions, expected at most 8"),
        ({"call": 65536}, "call is 65536, expected 0 to 65535"),
        ({"tokens": (3, 2)}, "are not a range"),
        ({"tokens": (0, 1 << 32)}, "are not a range"),
    ],
)
def test_a_push_of_nonsense_is_a_value_error_and_counts_nothing(make_ring, collector, change, problem):
    ring = make_ring(collector)
    tensor = torch.zeros(1)
    values = {"call": 0, "tokens": (0, 1), "shape": (1,), "data_ptr": tensor.data_ptr(), "nbytes": 4, **change}
    slot, request = ring.declare("q", 0, 0, "float32"), ring.request("a")
    with pytest.raises(ValueError, match=re.escape(problem)):
        ring.push(
            slot, request, 0, values["call"], *values["tokens"], values["shape"], values["data_ptr"], values["nbytes"]
        )
    assert ring.stats()["accepted"] == 0


def test_wrong_types_are_type_errors(make_ring, collector):
    ring = make_ring(collector)
    with pytest.raises(TypeError):
        ring.push("slot", 0, 0, 0, 0, 1, (1,), 0, 0)
    with pytest.raises(TypeError):
        ring.push(ring.declare("q", 0, 0, "float32"), ring.request("a"), 0, 0, 0, 1, (1.5,), 1, 4)


def test_interning_gives_one_number_per_meaning(make_ring, collector):
    ring = make_ring(collector)
    assert ring.declare("q", 1, 0, "float32") == ring.declare("q", 1, 0, "float32")
    assert ring.declare("q", 2, 0, "float32") != ring.declare("q", 1, 0, "float32")
    assert ring.request("a") == ring.request("a") != ring.request("b")
    with pytest.raises(ValueError, match="dtype is 'float31', expected one of: bool, uint8"):
        ring.declare("q", 1, 0, "float31")
    with pytest.raises(ValueError, match="layer is 40000, expected -32768 to 32767"):
        ring.declare("q", 40000, 0, "float32")


def test_a_forgotten_requests_number_is_used_again_only_after_its_records_are_settled(
    make_ring, collector, eventually, feeder
):
    ring = make_ring(collector, flush_seconds=0.0)
    collector.gate.clear()
    feed = feeder(ring)
    feed.push(3)
    ring.forget(feed.request)
    with pytest.raises(ValueError, match="is not known"):
        feed.push()
    assert ring.request("other") != feed.request
    collector.gate.set()
    assert ring.flush(5.0)
    assert eventually(lambda: ring.request("third") == feed.request)
    assert {row.request_id for row in collector.rows()} == {"r0"}


def test_memory_that_is_not_the_tensors_values_is_refused():
    base = torch.randn(4, 4, dtype=torch.complex64)
    for tensor, problem in [
        (base.conj(), "lazy conjugate"),
        (base.conj().imag, "lazy negative"),
        (torch.randn(4, 4).t(), "strides are"),
        (torch.randn(4, 4).to_sparse(), "layout is"),
        (torch.empty(2, 2, device="meta"), "is on meta"),
    ]:
        with pytest.raises(CaptureError, match=problem):
            describe(tensor)
    view = describe(torch.zeros(2, 3, dtype=torch.bfloat16))
    assert (view.nbytes, view.shape, view.dtype, view.device) == (12, (2, 3), "bfloat16", -1)


def test_the_ring_keeps_a_copy_never_a_view(make_ring, collector):
    ring = make_ring(collector)
    tensor = torch.ones(64)
    slot, request = ring.declare("q", 0, 0, "float32"), ring.request("a")
    ring.push(slot, request, 0, 0, 0, 1, (64,), tensor.data_ptr(), tensor.nbytes)
    tensor.fill_(7)
    assert ring.flush(5.0)
    assert collector.rows()[0].data == torch.ones(64).numpy().tobytes()
