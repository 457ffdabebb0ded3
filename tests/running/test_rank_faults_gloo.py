"""Faults that need a process group: gloo ranks on the CPU, as `--simulate` starts them."""

from __future__ import annotations

import re

import pytest

pytestmark = [pytest.mark.native_backend, pytest.mark.slow]

HEAD = """
import os, signal, time, pytest, torch, torch.distributed as dist
pytestmark = pytest.mark.multi_gpu
def add():
    value = torch.ones(8) * dist.get_rank()
    dist.all_reduce(value)
    assert value[0] == 1
"""
SUITE = (
    HEAD
    + """
def test_first(): add()
def test_before_the_collective():
    assert dist.get_rank() == 1, "told"
    add()
def test_neighbour_1(): add()
def test_after_the_collective():
    add()
    assert dist.get_rank() == 1, "told"
def test_neighbour_2(): add()
def test_skip_before_the_collective():
    if dist.get_rank() == 0: pytest.skip("not here")
    add()
def test_neighbour_3(): add()
def test_crash_in_the_collective():
    if dist.get_rank() == 1: os.kill(os.getpid(), signal.SIGSEGV)
    add()
def test_neighbour_4(): add()
def test_one_collective_more():
    if dist.get_rank() == 0: dist.all_reduce(torch.ones(1), async_op=True)
def test_neighbour_5(): add()
def test_hang_of_one_rank():
    if dist.get_rank() == 1: time.sleep(600)
    add()
def test_neighbour_6(): add()
"""
)


def test_every_fault_of_a_collective_is_one_failing_test_and_the_group_is_new_after_it(project):
    project.write("tests/test_group.py", SUITE)
    path = project.root / "pyproject.toml"
    text = path.read_text(encoding="utf-8").replace("timeout = 90", "timeout = 300")
    path.write_text(text.replace("test_timeout = 3\ngrace", "test_timeout = 10\ngrace"), encoding="utf-8")
    ran = project.run("ranks", "--simulate", "2", "-p", "no:randomly", limit=280)
    outcomes = ran.outcomes
    assert [outcomes[name] for name in outcomes if "neighbour" in name or "first" in name] == ["passed"] * 7, ran.output
    assert {name: outcome for name, outcome in outcomes.items() if outcome != "passed"} == {
        "test_before_the_collective": "failed",
        "test_after_the_collective": "failed",
        "test_skip_before_the_collective": "failed",
        "test_crash_in_the_collective": "crashed",
        # The process group's own limit is shorter than the test's: the waiting rank names the collective.
        "test_hang_of_one_rank": "failed",
    }
    assert ran.code == 1
    assert ran.left == set()
    assert "SIMULATED" in ran.first_line
    dropped = {mark["text"] for mark in ran.report["marks"] if mark["kind"] == "restart"}
    assert any("out of step (rank 0 at" in text for text in dropped), dropped
    assert not any("after_the_collective" in text for text in dropped), (
        "an assertion after the collective keeps the set"
    )
    stuck = ran.results["test_before_the_collective"]
    assert "all_reduce" in stuck["output"]
    assert re.search("rank 0 failed: AssertionError: told; rank 1 was still in the test", stuck["reason"])


def test_a_crash_is_seen_within_two_seconds(project):
    body = "def test_crash():\n    if dist.get_rank() == 1: os.kill(os.getpid(), signal.SIGSEGV)\n    add()\n"
    project.write("tests/test_group.py", HEAD + body)
    ran = project.run("ranks", "--simulate", "2")
    assert ran.results["test_crash"]["duration"] < 2.0
    assert ran.results["test_crash"]["reason"].startswith("rank 1 crashed: SIGSEGV")


def test_dynamic_tests_start_their_own_workers_in_fresh_processes(project):
    body = """
import torch.multiprocessing as mp
def work(rank, store):
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
    add()
    dist.destroy_process_group()
PIDS = []
@pytest.mark.multi_gpu(launch="dynamic")
@pytest.mark.parametrize("n", range(2))
def test_dynamic(tmp_path, n):
    assert not dist.is_initialized()
    assert "RANK" not in os.environ
    PIDS.append(os.getpid())
    assert len(PIDS) == 1, "the process ran another test before"
    mp.spawn(work, (str(tmp_path / "store"),), nprocs=2)
def test_static(): add()
"""
    project.write("tests/test_group.py", HEAD + body)
    path = project.root / "pyproject.toml"
    path.write_text(
        path.read_text(encoding="utf-8").replace("test_timeout = 3\n", "test_timeout = 60\n"), encoding="utf-8"
    )
    ran = project.run("ranks", "--simulate", "2")
    assert set(ran.outcomes.values()) == {"passed"}, ran.output
    assert ran.code == 0


def test_tests_that_join_the_group_themselves_find_a_free_port_each(project):
    body = """
@pytest.fixture
def group():
    dist.init_process_group("gloo")
    yield
    dist.destroy_process_group()
@pytest.mark.parametrize("n", range(3))
def test_own(group, n): add()
"""
    project.write("tests/test_group.py", HEAD + body)
    ran = project.run("ranks", "--process-group", "none")
    assert set(ran.outcomes.values()) == {"passed"}, ran.output
