"""`python -m ci.devices` on machines that nobody has at hand, through a library that answers like NVML."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# The library is built with cc, and every machine is a process of its own.
pytestmark = [pytest.mark.cpu, pytest.mark.slow]

Machine = Callable[..., dict[str, str]]
Reader = Callable[[dict[str, str]], dict[str, Any]]
Show = Callable[..., subprocess.CompletedProcess[str]]

GPU = "GPU-{}0000000-1111-2222-3333-444444444444"


def seen(document: dict[str, Any]) -> list[str]:
    """Name the devices that tests may use."""
    return [device["uuid"] for device in document["devices"] if device["visible"]]


def test_two_gpus_are_described(machine: Machine, inventory: Reader) -> None:
    found = inventory(machine(COUNT=2, GPU1_NAME="Fake L4", GPU1_CC=89, GPU1_USED=1024, GPU1_PIDS=os.getpid()))
    assert (found["exit_code"], found["driver"], found["driver_cuda"], found["fault"]) == (0, "580.65.06", "13.0", None)
    first, second = found["devices"]
    assert (first["uuid"], first["capability"], first["health"]) == (GPU.format(0), "9.0", "ok")
    assert (second["name"], second["capability"]) == ("Fake L4", "8.9")
    assert second["memory_total"] - second["memory_free"] == 1024 * 1024**2
    (process,) = second["processes"]
    assert process["pid"] == os.getpid()
    assert "python" in process["name"]
    assert process["memory"] == 1024**3


def test_a_process_that_is_gone_is_still_named(machine: Machine, inventory: Reader) -> None:
    (device,) = inventory(machine(GPU0_PIDS="4000000"))["devices"]
    assert device["processes"] == [
        {"pid": 4000000, "name": "a process that cannot be seen from here", "memory": 1024**3}
    ]


def test_without_the_library_the_driver_is_missing(machine: Machine, show: Show, tmp_path: Path) -> None:
    """A broken library of this name stands in: the real one of a machine with GPUs cannot be hidden otherwise."""
    (tmp_path / "libnvidia-ml.so.1").write_text("no ELF file")
    done = show(machine() | {"LD_LIBRARY_PATH": os.fspath(tmp_path)})
    assert done.returncode == 3
    assert "libnvidia-ml.so.1 was not found" in done.stderr
    assert "no NVIDIA driver" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (18, "reboot, or reload the module"),
        (9, "modprobe nvidia"),
        (4, "permissions of /dev/nvidia*"),
        (999, "nvidia-smi"),
    ],
)
def test_a_library_that_cannot_start_says_why(code: int, words: str, machine: Machine, show: Show) -> None:
    done = show(machine(INIT=code))
    assert done.returncode == 3
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_machine_without_devices_is_shown_and_not_fit(machine: Machine, show: Show) -> None:
    assert "there is no CUDA device" in show(machine(COUNT=0)).stdout
    done = show(machine(COUNT=0), "--check", "1")
    assert done.returncode == 3
    assert "0 can be used; the machine has 0" in done.stderr


@pytest.mark.parametrize("setting", ["GPU1_HANDLE", "GPU1_ERROR"])
def test_a_lost_gpu_hides_nothing_else(setting: str, machine: Machine, inventory: Reader) -> None:
    found = inventory(machine(COUNT=3, **{setting: 15}))
    assert [device["health"] for device in found["devices"]] == ["ok", "GPU is lost", "ok"]


@pytest.mark.parametrize(
    ("settings", "check", "words"),
    [
        ({"GPU1_HANDLE": 15}, "reachable", "GPU 1 does not answer: GPU is lost"),
        ({"GPU1_ECC": 5}, "ecc", "GPU 1 has 5 uncorrected ECC error(s)"),
        ({"GPU0_PENDING": 1}, "remap", "GPU 0 has a bad row of memory"),
        ({"GPU0_FAILED": 1}, "remap", "no spare row left"),
        ({"GPU0_PENDING": -1, "GPU0_RETIRED": 1}, "remap", "GPU 0 has a bad row of memory"),
        ({"GPU0_MODE": 2}, "mode", "compute mode PROHIBITED"),
        ({"GPU1_PIDS": 1}, "processes", "(pid 1, 1.0 GiB)"),
        ({"GPU1_USED": 40960}, "memory", "40.0 of 80.0 GiB free"),
    ],
)
def test_a_machine_that_is_not_fit_ends_with_3_and_the_check(
    settings: dict[str, object], check: str, words: str, machine: Machine, show: Show
) -> None:
    done = show(machine(COUNT=2, **settings), "--check", "2")
    assert done.returncode == 3, done.stderr
    assert f"- {check}: " in done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_questions_that_a_driver_does_not_know_are_no_fault(machine: Machine, show: Show) -> None:
    environ = machine(COUNT=2, GPU0_ECC=-1, GPU1_ECC=-1, GPU0_PENDING=-1, GPU1_PENDING=-1, CUDA=0)
    done = show(environ | {"LOCKGATE_VERIFY": "shallow"}, "--check", "2")
    assert done.returncode == 0, done.stderr
    assert "2 device(s) are fit" in done.stderr
    assert "neither a kernel nor an all-reduce was tried" in done.stderr


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        ("1", [1]),
        ("1,0", [1, 0]),
        ("", []),
        ("-1", []),
        ("0,9,1", [0]),
        ("GPU-1", [1]),
        (GPU.format(2), [2]),
        ("GPU-2,GPU-0", [2, 0]),
        ("GPU-", []),
        ("1,1", []),
    ],
)
def test_masks_are_read_as_cuda_does(mask: str, expected: list[int], machine: Machine, inventory: Reader) -> None:
    found = inventory(machine(COUNT=3, visible=mask))
    assert seen(found) == [GPU.format(index) for index in expected]
    assert len(found["devices"]) == 3


def test_a_mask_narrower_than_the_stage_is_named(machine: Machine, show: Show) -> None:
    done = show(machine(COUNT=4, visible="GPU-2"), "--check", "2")
    assert done.returncode == 3
    assert "CUDA_VISIBLE_DEVICES='GPU-2' shows 1 and hides 3" in done.stderr
    assert "widen CUDA_VISIBLE_DEVICES" in done.stderr


def test_entries_without_effect_are_told(machine: Machine, show: Show) -> None:
    done = show(machine(COUNT=2, visible="0,7,1"))
    assert done.returncode == 0
    assert "'7' names no device of this machine, and CUDA ignores what stands behind it: 1" in done.stderr


def test_numbers_on_unlike_gpus_are_doubtful(machine: Machine, show: Show) -> None:
    environ = machine(COUNT=2, GPU1_NAME="Fake L4", visible="0")
    assert "CUDA_DEVICE_ORDER is not PCI_BUS_ID" in show(environ).stderr
    assert "PCI_BUS_ID" not in show(environ | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}).stderr


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (None, ["MIG-00000000-", "MIG-01000000-", GPU.format(1)]),
        ("0", ["MIG-00000000-"]),
        ("MIG-01", ["MIG-01000000-"]),
        (f"MIG-{GPU.format(0)}/8/0", ["MIG-01000000-"]),
        ("GPU-0", ["MIG-00000000-"]),
    ],
)
def test_a_partitioned_gpu_gives_its_instances(
    mask: str | None, expected: list[str], machine: Machine, inventory: Reader
) -> None:
    found = seen(inventory(machine(COUNT=2, GPU0_MIG=2, visible=mask)))
    assert len(found) == len(expected)
    assert all(uuid.startswith(start) for uuid, start in zip(found, expected, strict=True))


def test_the_preflight_never_imports_torch(machine: Machine) -> None:
    code = (
        "import sys; from ci.devices.verify import verify_devices; from ci.devices.requirement import Requirement;"
        "from pathlib import Path; import os;"
        "result = verify_devices(Requirement(stage='x', devices=2), environ=os.environ, root=Path('.'), deep=False);"
        "assert result.is_fit, result; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], env=machine(COUNT=2), check=True, timeout=60)
