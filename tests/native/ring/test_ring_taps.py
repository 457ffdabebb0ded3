"""The short way from a hook into the ring takes plain tensors alone, and says no to the rest without a trace."""

from __future__ import annotations

import threading

import pytest

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.native_backend, pytest.mark.ring_native]

FLOAT = 2


@pytest.fixture
def tapped(native, make_ring, collector):
    """A ring, its taps, and a request; tap 0 takes float32 [b, q, ...]."""
    ring = make_ring(collector)
    taps = native.Taps(ring, torch.Tensor.__dlpack_c_exchange_api__, torch.Tensor, 3)
    taps.bind(0, ring.declare("resid_pre", 0, 0, "float32"), 1, FLOAT, 32)
    return ring, taps, ring.request("a")


def test_a_plain_tensor_is_recorded_row_by_row_with_call_numbers(tapped, collector):
    ring, taps, request = tapped
    tensor = torch.randn(2, 5, 3, requires_grad=True)
    taps.enter(ring.plan(7, [(request, 0, 2, 5, 0), (request, 1, 0, 5, 10)]), 2)
    assert taps.take(0, tensor) == 2
    assert taps.call(0) == 1
    assert taps.take(0, tensor) == 2
    assert ring.flush(5.0)
    rows = collector.rows()
    assert [(row.step, row.call, row.shape, row.token_start, row.token_end) for row in rows] == [
        (7, 0, (3, 3), 0, 3), (7, 0, (5, 3), 10, 15), (7, 2, (3, 3), 0, 3), (7, 2, (5, 3), 10, 15),
    ]  # fmt: skip
    assert rows[0].data == tensor[0, 2:].detach().numpy().tobytes()


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(2, 3, 5).transpose(1, 2),
        torch.nn.Parameter(torch.zeros(2, 5, 3)),
        torch.zeros(2, 5, 3, dtype=torch.float64),
        torch.zeros(2, 5, 3, dtype=torch.int32),
        torch.zeros(1, 5, 3),
        torch.zeros(2, 4, 3),
        torch.zeros(2),
        torch.zeros(2, 5, 3, device="meta"),
        torch.zeros(2, 5, 3).to_sparse(),
        torch.zeros((2, 5, *(1,) * 7)),
        None,
        "text",
    ],
    ids=[
        "strided",
        "parameter",
        "float64",
        "int32",
        "batch",
        "columns",
        "flat",
        "meta",
        "sparse",
        "dims",
        "none",
        "text",
    ],
)
def test_what_is_not_plain_is_refused_and_leaves_no_trace(tapped, tensor):
    ring, taps, request = tapped
    taps.enter(ring.plan(0, [(request, 0, 0, 5, 0), (request, 1, 0, 5, 0)]), 2)
    assert taps.take(0, tensor) == -1
    assert ring.stats()["accepted"] == 0
    assert taps.call(0) == 0


def test_outside_a_pass_and_without_a_binding_nothing_is_taken(tapped):
    ring, taps, request = tapped
    tensor = torch.zeros(1, 1, 1)
    assert taps.take(0, tensor) == taps.call(0) == -1
    taps.enter(ring.plan(0, [(request, 0, 0, 1, 0)]), 1)
    assert taps.take(1, tensor) == taps.take(99, tensor) == -1
    taps.leave()
    taps.leave()
    assert taps.take(0, tensor) == -1


def test_each_thread_has_its_own_pass(tapped, collector):
    ring, taps, request = tapped
    tensor = torch.ones(1, 1, 4)
    answers = {}
    barrier = threading.Barrier(3)

    def run(step):
        if step:
            taps.enter(ring.plan(step, [(request, 0, 0, 1, step)]), 1)
        barrier.wait()
        answers[step] = taps.take(0, tensor)
        barrier.wait()
        taps.leave()

    threads = [threading.Thread(target=run, args=(step,)) for step in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {0: -1, 1: 1, 2: 1}
    assert ring.flush(5.0)
    assert sorted((row.step, row.call) for row in collector.rows()) == [(1, 0), (2, 0)]


def test_two_taps_objects_do_not_disturb_each_other(native, make_ring, tapped):
    ring, taps, request = tapped
    other_ring = make_ring(native.NullSink())
    other = native.Taps(other_ring, torch.Tensor.__dlpack_c_exchange_api__, torch.Tensor, 1)
    other.bind(0, other_ring.declare("x", 0, 0, "float32"), 1, FLOAT, 32)
    taps.enter(ring.plan(0, [(request, 0, 0, 1, 0)]), 1)
    assert other.take(0, torch.zeros(1, 1)) == -1
    other.enter(other_ring.plan(0, [(other_ring.request("b"), 0, 0, 1, 0)]), 1)
    assert taps.take(0, torch.zeros(1, 1)) == other.take(0, torch.zeros(1, 1)) == 1
    taps.leave()
    assert other.take(0, torch.zeros(1, 1)) == 1


def test_nonsense_at_the_start_is_refused(native, tapped):
    ring, taps, _ = tapped
    exchange = torch.Tensor.__dlpack_c_exchange_api__
    with pytest.raises(TypeError):
        native.Taps(ring, "capsule", torch.Tensor, 1)
    with pytest.raises(TypeError, match="tensor_type is not a type"):
        native.Taps(ring, exchange, 5, 1)
    with pytest.raises(ValueError, match="tap 3 of 3"):
        taps.bind(3, 0, 1, FLOAT, 32)
    with pytest.raises(ValueError, match="elements of 4 bytes, not of 16 bits"):
        taps.bind(0, 0, 1, FLOAT, 16)
    with pytest.raises(ValueError, match="plan 5 is not kept"):
        taps.enter(5, 1)
