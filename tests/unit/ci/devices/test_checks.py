"""Every check of a machine has its own message, and only hardware faults end a run that has devices to spare."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ci.devices.checks import check_devices
from ci.devices.model import GIB, Device, GpuProcess, Inventory, NvmlFault
from ci.devices.requirement import Requirement, require_devices
from ci.stages.model import Stage
from ci.stages.table import default_settings

pytestmark = pytest.mark.cpu

Gpu = Callable[..., Device]
Machine = Callable[..., Inventory]


def need(count: int) -> Requirement:
    """Require `count` devices."""
    return Requirement(stage="gpu_smoke", devices=count)


def test_a_fit_machine_has_no_problem_and_no_note(gpu: Gpu, machine: Machine) -> None:
    verdict = check_devices(need(2), machine(gpu(0), gpu(1)))
    assert (verdict.problems, verdict.notes, len(verdict.devices)) == ((), (), 2)


@pytest.mark.parametrize(
    ("code", "message", "hint"),
    [
        (-1, "libnvidia-ml.so.1 was not found", "no NVIDIA driver"),
        (18, "version mismatch", "reboot, or reload the module"),
        (9, "Driver Not Loaded", "modprobe nvidia"),
        (4, "Insufficient Permissions", "permissions of /dev/nvidia*"),
        (999, "Unknown Error", "run `nvidia-smi`"),
    ],
)
def test_nvml_that_cannot_be_used_is_the_only_problem(code: int, message: str, hint: str) -> None:
    verdict = check_devices(need(2), Inventory(fault=NvmlFault(code=code, message=message)))
    (problem,) = verdict.problems
    assert problem.check == "nvml"
    assert message in problem.message
    assert hint in problem.hint


@pytest.mark.parametrize(
    ("fields", "check", "message"),
    [
        ({"fault": "GPU is lost"}, "reachable", "GPU 1 does not answer: GPU is lost"),
        ({"ecc_uncorrected": 3}, "ecc", "GPU 1 has 3 uncorrected ECC error(s)"),
        ({"remap_pending": True}, "remap", "replaced at the next reset only"),
        ({"remap_failed": True}, "remap", "no spare row left"),
        ({"prohibited": True}, "mode", "compute mode PROHIBITED"),
    ],
)
def test_a_hardware_fault_is_a_problem_even_with_devices_to_spare(
    fields: dict[str, object], check: str, message: str, gpu: Gpu, machine: Machine
) -> None:
    verdict = check_devices(need(1), machine(gpu(0), gpu(1, **fields)))
    assert [problem.check for problem in verdict.problems] == [check]
    assert message in verdict.problems[0].message
    assert verdict.problems[0].hint
    assert [device.index for device in verdict.devices] == [0]


@pytest.mark.parametrize(
    ("fields", "check", "message"),
    [
        (
            {"processes": (GpuProcess(pid=42, name="train.py", memory=3 * GIB),)},
            "processes",
            "train.py (pid 42, 3.0 GiB)",
        ),
        ({"memory_free": 8 * GIB}, "memory", "8.0 of 80.0 GiB free, 80% must be"),
    ],
)
def test_a_busy_device_is_left_out_with_a_note_or_ends_the_run(
    fields: dict[str, object], check: str, message: str, gpu: Gpu, machine: Machine
) -> None:
    here = machine(gpu(0), gpu(1, **fields))
    spare = check_devices(need(1), here)
    assert spare.problems == ()
    assert [device.index for device in spare.devices] == [0]
    assert message in spare.notes[0]
    assert "left out, 1 other device(s) are free" in spare.notes[0]
    short = check_devices(need(2), here)
    assert [problem.check for problem in short.problems] == [check, "count"]
    assert message in short.problems[0].message


def test_a_device_that_another_run_holds_is_in_use_and_not_broken(gpu: Gpu, machine: Machine) -> None:
    busy = gpu(0, processes=(GpuProcess(pid=42, name="rank"),), memory_free=1 * GIB)
    verdict = check_devices(need(1), machine(busy), held=frozenset({busy.uuid}))
    assert verdict.problems == ()
    assert verdict.devices == (busy,)


def test_too_few_devices_name_the_mask_that_hides_them(gpu: Gpu, machine: Machine) -> None:
    here = machine(gpu(0), mask="0", hidden=(gpu(1),))
    (problem,) = check_devices(need(2), here).problems
    assert problem.check == "count"
    assert "CUDA_VISIBLE_DEVICES='0' shows 1 and hides 1" in problem.message
    assert problem.hint == "widen CUDA_VISIBLE_DEVICES"


def test_no_device_at_all_is_said_plainly(machine: Machine) -> None:
    (problem,) = check_devices(need(1), machine()).problems
    assert "1 CUDA device(s) are needed for gpu_smoke, 0 can be used; the machine has 0" in problem.message


def test_all_problems_are_listed_at_once(gpu: Gpu, machine: Machine) -> None:
    here = machine(gpu(0, ecc_uncorrected=1), gpu(1, remap_pending=True), gpu(2, fault="GPU is lost"))
    verdict = check_devices(need(2), here)
    assert [problem.check for problem in verdict.problems] == ["reachable", "ecc", "remap", "count"]


def test_another_driver_branch_is_only_a_note(gpu: Gpu, machine: Machine) -> None:
    verdict = check_devices(need(1), machine(gpu(0), nvml_version="12.560.35.02", driver="561.09"))
    assert verdict.problems == ()
    assert "another branch" in verdict.notes[0]


def test_the_requirement_comes_from_the_row() -> None:
    settings = default_settings()
    assert require_devices(settings.stage("cpu_gate")).devices == 0
    assert require_devices(settings.stage("gpu_smoke")).devices == 1
    assert require_devices(settings.stage("multi_gpu")).devices == 2
    assert require_devices(Stage(name="x", devices=1, ranks=4)).devices == 4
    assert require_devices(Stage(name="x", devices=0, ranks=4)).devices == 0
