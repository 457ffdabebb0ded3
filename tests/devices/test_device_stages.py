"""`lockgate run` on fake machines: what is not fit ends with 3 before any test, what is masked stays masked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

pytestmark = [pytest.mark.cpu, pytest.mark.slow]

CONFIGURATION = """
[tool.lockgate.stages.one]
select = "gpu"
devices = 1
test_timeout = 20
[tool.lockgate.stages.pairs]
select = "multi_gpu"
devices = 2
ranks = 2
test_timeout = 20
grace = 2
[tool.pytest.ini_options]
markers = ["gpu: tier", "multi_gpu: tier"]
"""
TESTS = """
import json, os, pathlib, pytest
SEEN = pathlib.Path(os.environ["SEEN"])
def note(name):
    (SEEN / f"{name}-{os.environ.get('RANK', 'x')}").write_text(os.environ.get("CUDA_VISIBLE_DEVICES", "not set"))
@pytest.mark.gpu
def test_one(): note("one")
@pytest.mark.multi_gpu
@pytest.mark.parametrize("number", range(4))
def test_pair(number): note(f"pair{number}")
@pytest.mark.multi_gpu(nproc=4)
def test_four(): note("four")
"""
UUID = "GPU-{}0000000-1111-2222-3333-444444444444"


@dataclass(frozen=True, kw_only=True)
class Ran:
    """One finished run."""

    code: int
    output: str
    folder: Path
    seen: dict[str, str]

    @property
    def report(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.folder / "report.json").read_text(encoding="utf-8"))
        return document

    @property
    def outcomes(self) -> dict[str, str]:
        return {one["id"].rpartition("::")[2]: one["outcome"] for one in self.report["results"]}


@pytest.fixture
def lockgate(tmp_path: Path) -> Callable[..., Ran]:
    """Give a function that runs a stage of a small repository on a machine."""
    root, seen = tmp_path / "repository", tmp_path / "seen"
    (root / "tests").mkdir(parents=True)
    seen.mkdir()
    (root / "pyproject.toml").write_text(CONFIGURATION, encoding="utf-8")
    (root / "tests" / "test_devices.py").write_text(TESTS, encoding="utf-8")

    def run(stage: str, environ: Mapping[str, str], *words: str) -> Ran:
        hidden = ("CI", "GITHUB_", "PYTEST_", "COVERAGE_", "NOX_")
        own = {"SEEN": os.fspath(seen), "LOCKGATE_LOCK_DIR": os.fspath(tmp_path / "locks")}
        command = [sys.executable, "-m", "ci", "run", stage, "--process-group", "none", "--preload", "", *words]
        done = subprocess.run(
            command,
            cwd=root,
            env={key: value for key, value in environ.items() if not key.startswith(hidden)} | own,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        notes = {path.name: path.read_text() for path in seen.iterdir()}
        return Ran(code=done.returncode, output=done.stdout, folder=root / ".lockgate" / "report" / stage, seen=notes)

    return run


Machine = Callable[..., dict[str, str]]
Run = Callable[..., Ran]
SHALLOW = {"LOCKGATE_VERIFY": "shallow"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"INIT": 18}, "reboot, or reload the module"),
        ({"INIT": 9}, "modprobe nvidia"),
        ({"COUNT": 0}, "0 can be used; the machine has 0"),
        ({"COUNT": 1}, "2 CUDA device(s) are needed for pairs, 1 can be used"),
        ({"COUNT": 2, "GPU1_HANDLE": 15}, "GPU 1 does not answer: GPU is lost"),
        ({"COUNT": 2, "GPU0_PIDS": 1}, "GPU 0 is used by"),
        ({"COUNT": 2, "GPU0_ECC": 2}, "GPU 0 has 2 uncorrected ECC error(s)"),
        ({"COUNT": 2, "GPU0_PENDING": 1}, "bad row of memory"),
        ({"COUNT": 2, "visible": "0"}, "CUDA_VISIBLE_DEVICES='0' shows 1 and hides 1"),
        ({"COUNT": 2, "visible": ""}, "CUDA_VISIBLE_DEVICES is empty"),
        ({"COUNT": 3, "visible": "GPU-1,GPU-9,GPU-0"}, "'GPU-9' names no device"),
    ],
)
def test_a_machine_that_is_not_fit_runs_no_test_and_says_what_is_missing(
    settings: dict[str, Any], words: str, machine: Machine, lockgate: Run
) -> None:
    ran = lockgate("pairs", machine(**settings) | SHALLOW)
    assert ran.code == 3, ran.output
    assert words in ran.output
    assert "--simulate 2" in ran.output
    assert "Traceback" not in ran.output
    assert ran.seen == {}
    assert ran.report["exit_code"] == 3
    assert ran.report["infrastructure"]
    errors = [case.find("error") for case in ET.parse(ran.folder / "junit.xml").getroot().iter("testcase")]
    assert errors
    assert all(error is not None and error.attrib["type"] == "infrastructure" for error in errors)


def test_no_driver_at_all_is_the_same(machine: Machine, lockgate: Run, tmp_path: Path) -> None:
    ran = lockgate("one", machine(INIT=12) | {"LD_LIBRARY_PATH": os.fspath(tmp_path)})
    assert ran.code == 3, ran.output
    assert "NVML cannot be used" in ran.output
    assert ran.seen == {}


def test_every_process_is_given_uuids_inside_the_callers_mask(machine: Machine, lockgate: Run) -> None:
    ran = lockgate("pairs", machine(COUNT=4, visible="3,1") | SHALLOW, "-k", "pair")
    assert ran.code == 0, ran.output
    assert len(ran.seen) == 8
    assert set(ran.seen.values()) == {f"{UUID.format(3)},{UUID.format(1)}"}


def test_a_mask_narrower_than_a_test_is_an_infrastructure_outcome_of_that_test(machine: Machine, lockgate: Run) -> None:
    ran = lockgate("pairs", machine(COUNT=4, visible="GPU-0,GPU-2") | SHALLOW)
    assert ran.code == 3, ran.output
    assert ran.outcomes == {**{f"test_pair[{number}]": "passed" for number in range(4)}, "test_four": "infrastructure"}
    assert "needs 4 devices, the pool has 2" in ran.output


def test_a_single_device_test_sees_a_single_device(machine: Machine, lockgate: Run) -> None:
    ran = lockgate("one", machine(COUNT=3, visible="GPU-2,GPU-1") | SHALLOW)
    assert ran.code == 0, ran.output
    assert set(ran.seen.values()) <= {UUID.format(1), UUID.format(2)}


def test_mig_instances_are_devices_of_their_own(machine: Machine, lockgate: Run) -> None:
    ran = lockgate("one", machine(COUNT=1, GPU0_MIG=2, visible="MIG-01") | SHALLOW)
    assert ran.code == 0, ran.output
    assert set(ran.seen.values()) == {"MIG-01000000-aaaa-bbbb-cccc-dddddddddddd"}


def test_a_busy_device_that_is_not_needed_is_left_out_with_a_note(machine: Machine, lockgate: Run) -> None:
    ran = lockgate("one", machine(COUNT=2, GPU0_PIDS=1) | SHALLOW)
    assert ran.code == 0, ran.output
    assert set(ran.seen.values()) == {UUID.format(1)}
    assert any("GPU 0 is used by" in note and "left out" in note for note in ran.report["notes"])


def test_a_device_that_breaks_during_the_run_makes_it_infrastructure(
    machine: Machine, lockgate: Run, tmp_path: Path
) -> None:
    settings = tmp_path / "settings"
    settings.write_text("")
    environ = machine(COUNT=1, FILE=settings) | SHALLOW
    tests = tmp_path / "repository" / "tests" / "test_devices.py"
    tests.write_text(
        "import pathlib, pytest, time\n"
        "@pytest.mark.gpu\n"
        "def test_one():\n"
        f"    pathlib.Path({os.fspath(settings)!r}).write_text('FAKE_NVML_0_XID=79\\n')\n"
        "    time.sleep(1)\n"
    )
    ran = lockgate("one", environ)
    assert ran.code == 3, ran.output
    assert ran.outcomes == {"test_one": "passed"}
    assert "Xid 79" in ran.output


def test_what_a_run_leaves_on_a_device_makes_it_infrastructure(machine: Machine, lockgate: Run, tmp_path: Path) -> None:
    settings = tmp_path / "settings"
    settings.write_text("")
    environ = machine(COUNT=1, FILE=settings) | SHALLOW
    tests = tmp_path / "repository" / "tests" / "test_devices.py"
    tests.write_text(
        "import pathlib, pytest\n"
        "@pytest.mark.gpu\n"
        f"def test_one():\n    pathlib.Path({os.fspath(settings)!r}).write_text('FAKE_NVML_0_USED=4096\\n')\n"
    )
    ran = lockgate("one", environ)
    assert ran.code == 3, ran.output
    assert "4.0 GiB less free memory than before the run" in ran.output


def test_each_rank_on_mig_instances_sees_its_own_alone(machine: Machine, lockgate: Run) -> None:
    """A process can use one MIG instance only, whatever its mask names."""
    ran = lockgate("pairs", machine(COUNT=1, GPU0_MIG=2) | SHALLOW, "-k", "pair and 0")
    assert ran.code == 0, ran.output
    assert ran.seen == {f"pair0-{rank}": f"MIG-0{rank}000000-aaaa-bbbb-cccc-dddddddddddd" for rank in range(2)}


def test_a_simulated_machine_shows_no_real_device(machine: Machine, lockgate: Run) -> None:
    ran = lockgate("pairs", machine(INIT=9), "--simulate", "2", "-k", "pair")
    assert ran.code == 0, ran.output
    assert set(ran.seen.values()) == {""}
    assert ran.report["simulated"] is True
    assert ran.report["fingerprint"] == "simulated:2"
    assert "SIMULATED" in ran.output
