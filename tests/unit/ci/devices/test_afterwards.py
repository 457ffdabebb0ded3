"""After a run the devices are compared with what they were before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from ci.devices.afterwards import check_afterwards, verify_afterwards
from ci.devices.model import GIB, Device, GpuProcess, Inventory, NvmlFault, simulate_devices
from ci.devices.watch import XidEvent, check_events

pytestmark = pytest.mark.cpu

Gpu = Callable[..., Device]
Machine = Callable[..., Inventory]


def test_an_unchanged_device_is_fine(gpu: Gpu, machine: Machine) -> None:
    assert check_afterwards([gpu(0)], machine(gpu(0))) == []


@pytest.mark.parametrize(
    ("fields", "check", "words"),
    [
        (
            {"processes": (GpuProcess(pid=7, name="rank"),)},
            "after: processes",
            "still used after the run by rank (pid 7)",
        ),
        ({"memory_free": 70 * GIB}, "after: memory", "9.0 GiB less free memory"),
        ({"ecc_uncorrected": 2}, "after: ecc", "counted 2 uncorrected ECC error(s) during the run"),
        ({"remap_pending": True}, "remap", "replaced at the next reset"),
        ({"fault": "GPU is lost"}, "reachable", "does not answer"),
    ],
)
def test_each_change_for_the_worse_has_its_message(
    fields: dict[str, object], check: str, words: str, gpu: Gpu, machine: Machine
) -> None:
    (problem,) = check_afterwards([gpu(0)], machine(gpu(0, **fields)))
    assert problem.check == check
    assert words in problem.message


def test_a_process_that_was_there_before_is_not_ours(gpu: Gpu, machine: Machine) -> None:
    there = gpu(0, processes=(GpuProcess(pid=7, name="daemon"),))
    assert check_afterwards([there], machine(there)) == []


def test_a_device_that_is_gone_is_named(gpu: Gpu, machine: Machine) -> None:
    (problem,) = check_afterwards([gpu(0), gpu(1)], machine(gpu(0)))
    assert "GPU 1" in problem.message
    assert "has gone during the run" in problem.message


def test_nvml_that_broke_during_the_run_is_a_problem(gpu: Gpu) -> None:
    (problem,) = check_afterwards([gpu(0)], Inventory(fault=NvmlFault(code=999, message="Unknown Error")))
    assert "cannot be used any more" in problem.message


def test_memory_that_comes_back_late_is_waited_for(gpu: Gpu, machine: Machine) -> None:
    slow = [machine(gpu(0, memory_free=GIB)), machine(gpu(0, memory_free=GIB)), machine(gpu(0))]
    now = [0.0]

    def probe(_: Mapping[str, str]) -> Inventory:
        return slow.pop(0)

    def sleep(seconds: float) -> None:
        now[0] += seconds

    problems = verify_afterwards([gpu(0)], environ={}, limit=5, probe=probe, clock=lambda: now[0], sleep=sleep)
    assert problems == []
    assert slow == []


def test_the_wait_ends_at_its_limit(gpu: Gpu, machine: Machine) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    worse = machine(gpu(0, memory_free=GIB))
    problems = verify_afterwards(
        [gpu(0)], environ={}, limit=1, probe=lambda _: worse, clock=lambda: now[0], sleep=sleep
    )
    assert [problem.check for problem in problems] == ["after: memory"]
    assert 1 <= now[0] < 1.5


def test_simulated_devices_are_not_looked_at(tmp_path: Path) -> None:
    def probe(_: Mapping[str, str]) -> Inventory:
        raise AssertionError("nothing must be probed")

    assert verify_afterwards(simulate_devices(2, scope=tmp_path).devices, environ={}, probe=probe) == []


@pytest.mark.parametrize(("code", "ours"), [(13, False), (31, False), (43, False), (48, True), (63, True), (79, True)])
def test_a_programs_own_fault_says_nothing_about_the_machine(code: int, ours: bool) -> None:
    event = XidEvent(time=1.0, uuid="GPU-1", code=code)
    problems = check_events([event])
    assert bool(problems) is ours
    assert f"Xid {code} on GPU-1" in str(event)


def test_simulated_devices_depend_on_the_repository() -> None:
    one, same, other = (simulate_devices(2, scope=Path(name)).devices for name in ("/a", "/a", "/b"))
    assert one == same
    assert not {device.uuid for device in one} & {device.uuid for device in other}
    assert all(device.simulated for device in one)
    assert replace(one[0], simulated=False) != one[0]
