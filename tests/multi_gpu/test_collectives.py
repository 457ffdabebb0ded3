"""Collectives over the ranks that `lockgate run multi_gpu` starts: NCCL on devices, gloo where they are simulated."""

from __future__ import annotations

import os
from typing import Any

import pytest

pytestmark = pytest.mark.multi_gpu

DTYPES = ("float32", "float64", "bfloat16", "float16", "int64")


@pytest.fixture
def dist() -> Any:
    """The process group that the rank has joined; a bare pytest has none."""
    torch = pytest.importorskip("torch")
    if not torch.distributed.is_initialized():
        pytest.skip("needs ranks: this process has joined no group; `lockgate run multi_gpu` starts the ranks")
    return torch.distributed


@pytest.fixture
def device() -> Any:
    """The device of this rank; the CPU in a simulated run."""
    import torch

    if os.environ.get("LOCKGATE_SIMULATED"):
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ["LOCAL_RANK"]))


def test_ranks_are_numbered_and_each_has_a_device_of_its_own(dist, device):
    assert dist.get_world_size() == int(os.environ["WORLD_SIZE"])
    assert dist.get_rank() == int(os.environ["RANK"])
    names: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(names, (str(device), os.getpid()))
    assert len({pid for _, pid in names}) == dist.get_world_size()
    if device.type == "cuda":
        assert len({name for name, _ in names}) == dist.get_world_size()


@pytest.mark.parametrize("name", DTYPES)
def test_all_reduce_adds_exactly(dist, device, name):
    import torch

    # Small whole numbers: every dtype here holds their sums exactly, in any order.
    own = torch.arange(257, device=device).to(getattr(torch, name)) % 16 + dist.get_rank()
    dist.all_reduce(own)
    size = dist.get_world_size()
    expected = (torch.arange(257) % 16) * size + size * (size - 1) // 2
    assert torch.equal(own.cpu().to(torch.int64), expected)


@pytest.mark.parametrize("source", [0, 1])
def test_broadcast_carries_the_bits_of_the_source(dist, device, source):
    import torch

    torch.manual_seed(7)
    expected = torch.randn(1023, dtype=torch.float32)
    held = expected.to(device) if dist.get_rank() == source else torch.full((1023,), -1.0, device=device)
    dist.broadcast(held, src=source)
    assert torch.equal(held.cpu(), expected)


def test_all_gather_keeps_the_order_of_ranks(dist, device):
    import torch

    own = torch.full((5,), float(dist.get_rank()), device=device)
    parts = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, own)
    assert [part[0].item() for part in parts] == list(range(dist.get_world_size()))


def test_a_subgroup_does_not_disturb_the_world(dist, device):
    import torch

    alone = dist.new_group([0])
    if dist.get_rank() == 0:
        one = torch.ones(1, device=device)
        dist.all_reduce(one, group=alone)
        assert one.item() == 1
    everyone = torch.ones(1, device=device)
    dist.all_reduce(everyone)
    assert everyone.item() == dist.get_world_size()
    if dist.get_rank() == 0:
        dist.destroy_process_group(alone)


def test_gradients_of_a_parallel_model_are_the_mean_over_ranks(dist, device):
    import torch

    torch.manual_seed(3)
    model = torch.nn.Linear(4, 1, bias=False).to(device)
    parallel = torch.nn.parallel.DistributedDataParallel(
        model, device_ids=[device.index] if device.type == "cuda" else None
    )
    parallel(torch.full((1, 4), float(dist.get_rank() + 1), device=device)).sum().backward()
    size = dist.get_world_size()
    assert model.weight.grad is not None
    assert torch.allclose(model.weight.grad.cpu(), torch.full((1, 4), (size + 1) / 2))


@pytest.mark.multi_gpu(launch="dynamic")
def test_a_test_that_starts_its_own_workers_gets_a_fresh_process(tmp_path):
    torch = pytest.importorskip("torch")
    assert not torch.distributed.is_initialized()
    assert "RANK" not in os.environ
    backend = "gloo" if os.environ.get("LOCKGATE_SIMULATED") or not torch.cuda.is_available() else "nccl"
    torch.multiprocessing.spawn(run_worker, (backend, str(tmp_path / "store")), nprocs=2)


def run_worker(rank: int, backend: str, store: str) -> None:
    import torch
    import torch.distributed as dist

    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=2)
    value = torch.full((3,), float(rank + 1), device=device)
    dist.all_reduce(value)
    dist.destroy_process_group()
    if value.tolist() != [3.0, 3.0, 3.0]:
        raise ValueError(f"worker {rank} holds {value.tolist()}, expected threes")
