"""The device that a GPU test was given computes what the CPU computes; in a simulated run the CPU stands in for it."""

from __future__ import annotations

import os
from typing import Any

import pytest

from ci.stages.guards import require_cuda, require_gpus

pytestmark = [pytest.mark.gpu, require_gpus(1)]


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.fixture
def device(torch: Any) -> Any:
    return torch.device("cpu" if os.environ.get("LOCKGATE_SIMULATED") else "cuda")


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_a_matrix_product_agrees_with_the_cpu(torch, device, name):
    dtype = getattr(torch, name)
    torch.manual_seed(11)
    # Small whole numbers: products and sums are exact in both types, so equality needs no tolerance.
    left, right = (torch.randint(-2, 3, (64, 64)).to(dtype) for _ in range(2))
    found = (left.to(device) @ right.to(device)).cpu()
    assert torch.equal(found.float(), left.float() @ right.float())


def test_this_process_sees_exactly_the_device_that_it_holds(torch, device):
    held = os.environ.get("LOCKGATE_DEVICES", "")
    if not held:
        pytest.skip("needs devices: this process was not given one; `lockgate run gpu_smoke` does that")
    assert len(held.split(",")) == 1
    if device.type == "cuda":
        assert torch.cuda.device_count() == 1
        assert str(torch.cuda.get_device_properties(0).uuid) in held


@require_cuda()
def test_memory_comes_back_when_tensors_are_gone(torch):
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    held = torch.ones(1 << 20, device="cuda")
    assert torch.cuda.memory_allocated() > before
    del held
    assert torch.cuda.memory_allocated() == before


@require_cuda()
def test_an_event_times_work_on_the_device(torch):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    torch.ones(1 << 22, device="cuda").sum()
    end.record()
    torch.cuda.synchronize()
    assert begin.elapsed_time(end) > 0
