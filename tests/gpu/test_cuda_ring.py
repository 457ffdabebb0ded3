"""The CUDA ring keeps the contract of the host ring: same bytes, same ledger, nothing waits on the model's stream."""

from __future__ import annotations

import threading

import pytest

from ci.stages.guards import require_cuda
from monitoring.errors import CaptureError
from monitoring.native import load_native
from monitoring.ring import Ring
from monitoring.rows import decode_rows

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.gpu, pytest.mark.ring_native, require_cuda()]


@pytest.fixture
def native():
    module = load_native()
    assert module.features()["mode"] == "cuda", "build it: invoke build-native --cuda"
    return module


@pytest.fixture
def blocks():
    return []


@pytest.fixture
def ring(native, blocks):
    sink = native.CallbackSink(lambda block, rows, token: blocks.append(block), name="blocks")
    with Ring(sink, run_id="run", device=0, capacity_bytes=8 << 20, flush_seconds=0.05) as made:
        yield made
    assert made.stats().balanced


def rows_of(blocks):
    return [row for block in blocks for row in decode_rows(block)]


def test_the_library_sees_the_device(native):
    assert native.cuda_device_count() >= 1
    assert native.cuda_status().startswith("built with CUDA, ")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int64", "bool", "float8_e4m3fn"])
@pytest.mark.parametrize("shape", [(1,), (3, 5), (2, 3, 7), (0, 4), (1, 1, 4096), (33, 129)])
def test_a_tensor_comes_back_bit_equal(ring, blocks, dtype, shape):
    tensor = torch.randn(shape, device="cuda").mul(50).to(getattr(torch, dtype))
    assert ring.push(tensor, site="resid_pre", request="a", tokens=(0, 1))
    assert ring.flush(30.0)
    (row,) = rows_of(blocks)
    assert (row.shape, row.dtype) == (shape, dtype)
    assert row.data == tensor.cpu().contiguous().view(torch.uint8).numpy().tobytes()


def test_rows_of_a_batch_are_cut_by_the_kernel(ring, blocks):
    tensor = torch.randn(3, 4, 9, 5, device="cuda", dtype=torch.bfloat16)
    plan = [("a", 0, 2, 9, 0), ("b", 2, 0, 8, 100)]
    assert ring.push_rows(tensor, plan, site="pattern", token_dim=2) == 2
    assert ring.flush(30.0)
    first, second = rows_of(blocks)
    assert first.data == tensor[0, :, 2:].cpu().contiguous().view(torch.uint8).numpy().tobytes()
    assert second.data == tensor[2, :, :8].cpu().contiguous().view(torch.uint8).numpy().tobytes()
    assert (second.shape, second.token_start, second.token_end) == ((4, 8, 5), 100, 108)


def test_the_copy_follows_the_work_on_its_stream(ring, blocks):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for step in range(20):
            tensor = torch.zeros(1 << 18, device="cuda")
            for _ in range(20):
                tensor += 1
            ring.push(tensor, site="s", request="a", step=step)
            tensor.fill_(-1)  # comes after the copy on the same stream
            del tensor
    assert ring.flush(60.0)
    expected = torch.full((1 << 18,), 20.0).numpy().tobytes()
    assert all(row.data == expected for row in rows_of(blocks))
    assert len(rows_of(blocks)) + ring.stats().lost == 20


def test_a_push_does_not_wait_for_the_device(ring):
    import time

    torch.cuda.synchronize()
    tensor = torch.zeros(1 << 16, device="cuda")
    ring.push(tensor, site="s", request="a")
    torch.cuda.synchronize()
    torch.cuda._sleep(2_000_000_000)  # about a second of the stream's time
    start = time.perf_counter()
    for _ in range(10):
        ring.push(tensor, site="s", request="a")
    pushed = time.perf_counter() - start
    assert not torch.cuda.current_stream().query(), "the device should still be busy"
    assert pushed < 0.5
    assert ring.flush(60.0)


def test_many_records_wrap_around_and_balance(native, blocks):
    sink = native.CallbackSink(lambda block, rows, token: blocks.append(block), name="blocks")
    with Ring(sink, run_id="run", device=0, capacity_bytes=1 << 20, flush_seconds=0.0, deadline=30.0) as ring:
        for step in range(3000):
            tensor = torch.full((step % 700 + 1,), step, device="cuda", dtype=torch.int32)
            assert ring.push(tensor, site="s", request="a", step=step)
    stats = ring.stats()
    assert (stats.written, stats.lost) == (3000, 0)
    for row in rows_of(blocks):
        assert row.data == torch.full(row.shape, row.step, dtype=torch.int32).numpy().tobytes()


@pytest.mark.parametrize("policy", ["drop_newest", "drop_oldest", "sample"])
def test_a_full_device_ring_follows_its_policy(native, blocks, policy):
    sink = native.CallbackSink(lambda block, rows, token: blocks.append(block), name="blocks")
    options = {"policy": policy, "capacity_bytes": 1 << 16, "flush_seconds": 60.0}
    with Ring(sink, run_id="run", device=0, **options) as ring:
        for step in range(500):
            ring.push(torch.full((1000,), step, device="cuda", dtype=torch.int32), site="s", request="a", step=step)
            assert ring.stats().balanced
    stats = ring.stats()
    assert stats.accepted == 500
    assert stats.written == len(rows_of(blocks))
    assert all(int.from_bytes(row.data[:4], "little") == row.step for row in rows_of(blocks))


def test_threads_with_streams_of_their_own(ring, blocks):
    def push(number):
        with torch.cuda.stream(torch.cuda.Stream()):
            for step in range(50):
                ring.push(
                    torch.full((999,), number * 1000 + step, device="cuda"), site=f"s{number}", request="a", step=step
                )

    threads = [threading.Thread(target=push, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ring.flush(60.0)
    assert len(rows_of(blocks)) == 200
    for row in rows_of(blocks):
        assert row.data == torch.full((999,), float(int(row.site[1:]) * 1000 + row.step)).numpy().tobytes()


def test_a_cuda_graph_under_capture_is_refused_and_counted(ring):
    static = torch.zeros(16, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static += 1
        assert not ring.push(static, site="s", request="a")
    assert ring.flush(30.0)
    assert ring.stats().dropped["device"] == 1
    assert "CUDA graph" in ring.stats().last_error


def test_a_host_tensor_and_an_absent_device_are_clear_errors(native, ring):
    with pytest.raises(CaptureError, match="the tensor is on the host, the ring on CUDA device 0"):
        ring.push(torch.zeros(4), site="s", request="a")
    with pytest.raises(RuntimeError, match="there is no CUDA device 99"):
        native.Ring(native.NullSink(), run_id="r", model_id="m", device=99)
