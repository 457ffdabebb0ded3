"""How processes on a device are named: enough to find them, nothing that is secret."""

from __future__ import annotations

import os

import pytest

from ci.devices.probe import name_process, probe_devices, read_process_name

pytestmark = pytest.mark.cpu


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["/usr/bin/python3.11", "/home/x/train.py", "--token=secret"], "python3.11 train.py"),
        (["python", "-u", "-m", "pytest", "--password", "x"], "python -m pytest"),
        (["python", "-c", "import secret", ""], "python -c"),
        (["python", "-m"], "python -m"),
        (["python"], "python"),
        (["/opt/bin/server", "--key", "secret"], "server"),
        ([""], "a process without a name"),
        ([], "a process without a name"),
    ],
)
def test_a_process_is_named_without_its_arguments(words: list[str], expected: str) -> None:
    assert name_process(words) == expected


def test_a_process_that_is_gone_is_named_so() -> None:
    assert read_process_name(2**22 + 1) == "a process that cannot be seen from here"
    assert read_process_name(os.getpid()).startswith("python")


def test_the_inventory_of_this_machine_never_raises() -> None:
    found = probe_devices({"CUDA_VISIBLE_DEVICES": "0"})
    assert found.mask == "0"
    assert found.fault is not None or found.nvml_version
