"""The child processes of the verification, with the torch that is here."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ci.devices.masks import select_devices
from ci.devices.model import Device, simulate_devices
from ci.devices.verify import Children

pytestmark = [pytest.mark.native_backend, pytest.mark.slow]

torch = pytest.importorskip("torch")


def children(root: Path, *, limit: float = 100.0, python: str = sys.executable) -> Children:
    """Start children as the verification does."""
    return Children(environ=os.environ, root=root, python=python, limit=limit)


def test_an_all_reduce_of_two_ranks_gives_the_sum(tmp_path: Path) -> None:
    assert children(tmp_path).check_reduce(simulate_devices(2, scope=tmp_path).devices, backend="gloo") == []


def test_an_all_reduce_that_cannot_start_is_a_problem(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("nccl works on this machine")
    (problem,) = children(tmp_path).check_reduce(simulate_devices(2, scope=tmp_path).devices, backend="nccl")
    assert problem.check == "all-reduce"
    assert "an all-reduce over simulated 0 and simulated 1 failed" in problem.message


def test_a_rank_that_hangs_runs_into_the_limit(tmp_path: Path) -> None:
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    start = time.monotonic()
    (problem,) = children(tmp_path, limit=1.0, python=os.fspath(slow)).check_reduce(
        simulate_devices(2, scope=tmp_path).devices, backend="gloo"
    )
    assert time.monotonic() - start < 10
    assert "ran past its limit of 1 s" in problem.message


def test_the_child_is_not_fooled_by_a_ci_package_of_the_tested_repository(tmp_path: Path) -> None:
    (tmp_path / "ci").mkdir()
    (tmp_path / "ci" / "__init__.py").write_text("raise SystemExit('the wrong package')\n")
    assert children(tmp_path).check_reduce(simulate_devices(2, scope=tmp_path).devices, backend="gloo") == []


def test_a_cpu_build_of_torch_is_told_by_a_child(
    machine: Callable[..., dict[str, str]], show: Callable[..., Any]
) -> None:
    if torch.version.cuda:
        pytest.skip("this torch is a CUDA build")
    done = show(machine(COUNT=2), "--check", "2")
    assert done.returncode == 3
    assert "is a CPU build, a CUDA build is needed" in done.stderr


# No number beyond the last GPU: torch leaves those to the driver.
ENTRIES = st.sampled_from(["0", "1", "2", "-1", "", "x", "1x", "+2", "GPU-a", "GPU-aa", "GPU-b", "GPU-b0", "GPU-z"])


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(entries=st.lists(ENTRIES, min_size=1, max_size=5, unique=True))
def test_masks_are_read_as_torch_reads_them(entries: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """torch holds a second reading of the driver's rules, written by others."""
    uuids = ["GPU-aa-1", "GPU-ab-2", "GPU-b0-3"]
    mask = ",".join(entries)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", mask)
    parsed = torch.cuda._parse_visible_devices()
    if parsed and isinstance(parsed[0], str):
        parsed = torch.cuda._transform_uuid_to_ordinals(parsed, uuids)
    gpus = [Device(index=index, uuid=uuid) for index, uuid in enumerate(uuids)]
    assert [device.index for device in select_devices(mask, gpus).devices] == list(parsed)
