"""What torch answers is judged against the driver and the devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ci.devices.model import Device, Inventory
from ci.devices.requirement import Requirement
from ci.devices.torch_checks import TorchFacts, check_torch, runs_on

pytestmark = pytest.mark.cpu

GOOD = TorchFacts(version="2.9", cuda="12.8", architectures=("sm_80", "sm_90"), count=2, kernels=("", ""))
WANTED = Requirement(stage="multi_gpu", devices=2)
Gpu = Callable[..., Device]
Machine = Callable[..., Inventory]


def judge(facts: TorchFacts, here: Inventory) -> tuple[list[str], list[str], list[str]]:
    """Give the names of the checks, the messages and the notes."""
    problems, notes = check_torch(facts, requirement=WANTED, inventory=here, devices=here.devices)
    return [problem.check for problem in problems], [problem.message for problem in problems], notes


def test_a_good_torch_has_no_problem(gpu: Gpu, machine: Machine) -> None:
    assert judge(GOOD, machine(gpu(0), gpu(1))) == ([], [], [])


@pytest.mark.parametrize(("rocm", "words"), [("", "a CPU build"), ("6.2", "a ROCm build (6.2)")])
def test_a_torch_without_cuda_is_named(rocm: str, words: str, gpu: Gpu, machine: Machine) -> None:
    checks, messages, _ = judge(TorchFacts(version="2.9+cpu", rocm=rocm), machine(gpu(0), gpu(1)))
    assert checks == ["torch"]
    assert words in messages[0]


def test_a_driver_of_an_older_major_version_is_a_problem(gpu: Gpu, machine: Machine) -> None:
    checks, messages, _ = judge(GOOD, machine(gpu(0), gpu(1), driver_cuda=(11, 8), driver="520.1"))
    assert checks == ["cuda"]
    assert "driver 520.1 runs CUDA up to 11.8, torch 2.9 was built with CUDA 12.8" in messages[0]


def test_an_older_minor_version_is_a_note_and_the_kernel_decides(gpu: Gpu, machine: Machine) -> None:
    here = machine(gpu(0), gpu(1), driver_cuda=(12, 2))
    checks, _, notes = judge(GOOD, here)
    assert checks == []
    assert "up to 12.2" in notes[0]
    assert judge(replace(GOOD, kernels=("", "no kernel image")), here)[0] == ["kernel"]


def test_a_capability_that_was_not_built_is_named_per_device(gpu: Gpu, machine: Machine) -> None:
    checks, messages, _ = judge(GOOD, machine(gpu(0), gpu(1, capability=(7, 5), name="T4")))
    assert checks == ["capability"]
    assert messages == ["GPU 1 (T4) has compute capability 7.5, built are sm_80, sm_90"]


def test_a_kernel_that_failed_names_its_device(gpu: Gpu, machine: Machine) -> None:
    checks, messages, _ = judge(replace(GOOD, kernels=("", "3 numbers are wrong")), machine(gpu(0), gpu(1)))
    assert (checks, messages) == (["kernel"], ["a kernel on GPU 1 failed: 3 numbers are wrong"])


def test_a_device_that_torch_does_not_see_is_a_problem(gpu: Gpu, machine: Machine) -> None:
    checks, messages, _ = judge(replace(GOOD, count=1, kernels=("",)), machine(gpu(0), gpu(1)))
    assert (checks, messages) == (["kernel"], ["torch sees 1 of 2 device(s)"])


@pytest.mark.parametrize(
    ("architecture", "capability", "expected"),
    [
        ("sm_80", (8, 0), True),
        ("sm_80", (8, 9), True),
        ("sm_89", (8, 6), False),
        ("sm_80", (9, 0), False),
        ("compute_80", (9, 0), True),
        ("compute_90", (8, 9), False),
        ("sm_90a", (9, 0), True),
        ("sm_100a", (10, 3), False),
        ("sm_100f", (10, 3), True),
        ("sm_100f", (12, 0), False),
        ("compute_90a", (10, 0), False),
        ("sm_120", (12, 1), True),
        ("gfx90a", (9, 0), False),
    ],
)
def test_which_code_runs_on_which_capability(architecture: str, capability: tuple[int, int], expected: bool) -> None:
    assert runs_on(architecture, capability) is expected


def test_facts_are_read_from_the_childs_document() -> None:
    facts = TorchFacts.parse({"version": "2.9", "cuda": None, "architectures": ["sm_90"], "count": 1, "kernels": [""]})
    assert facts == TorchFacts(version="2.9", architectures=("sm_90",), count=1, kernels=("",))
