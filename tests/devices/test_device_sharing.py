"""Several runs on one machine: a device is never used by two, and a run that dies gives its devices to the next."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.cpu, pytest.mark.slow]

CONFIGURATION = """
[tool.lockgate.stages.pairs]
select = "multi_gpu"
ranks = 2
test_timeout = 60
grace = 2
[tool.pytest.ini_options]
markers = ["multi_gpu: tier"]
"""
TESTS = """
import os, pathlib, pytest, time
@pytest.mark.multi_gpu
@pytest.mark.parametrize("number", range(2))
def test_pair(number):
    pathlib.Path(os.environ["STARTED"]).touch()
    end = time.monotonic() + float(os.environ["SECONDS"])
    while time.monotonic() < end and not os.path.exists(os.environ["RELEASE"]):
        time.sleep(0.02)
"""
LIMIT = 60.0


class Machine:
    """A repository and the runs that were started in it; every run writes a report of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.children: list[subprocess.Popen[str]] = []
        (root / "tests").mkdir()
        (root / "pyproject.toml").write_text(CONFIGURATION, encoding="utf-8")
        (root / "tests" / "test_pairs.py").write_text(TESTS, encoding="utf-8")

    def start(self, name: str, *, seconds: float, simulate: int = 2) -> subprocess.Popen[str]:
        """Start a run of two tests that each take `seconds`, or until the run is released."""
        environ = {key: value for key, value in os.environ.items() if not key.startswith(("CI", "GITHUB_", "PYTEST_"))}
        environ |= {
            "PYTHONPATH": os.fspath(Path(__file__).parents[2]),
            "LOCKGATE_LOCK_DIR": os.fspath(self.root / "locks"),
            "STARTED": os.fspath(self.root / f"{name}.started"),
            "RELEASE": os.fspath(self.root / f"{name}.release"),
            "SECONDS": str(seconds),
        }
        words = ["run", "pairs", "--simulate", str(simulate), "--process-group", "none", "--preload", ""]
        child = subprocess.Popen(
            [sys.executable, "-m", "ci", *words, "--report", name],
            cwd=self.root,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.children.append(child)
        return child

    def wait_started(self, name: str) -> None:
        """Wait until the first test of a run is on its devices."""
        end = time.monotonic() + LIMIT
        while not (self.root / f"{name}.started").exists():
            assert time.monotonic() < end, f"run {name} has not started a test"
            time.sleep(0.02)

    def wait_told(self, name: str, words: str) -> None:
        """Wait until the controller of a run has logged these words."""
        log = self.root / name / "events-main.jsonl"
        end = time.monotonic() + LIMIT
        while not (log.exists() and words in log.read_text(encoding="utf-8")):
            assert time.monotonic() < end, f"run {name} has not told {words!r}"
            time.sleep(0.02)

    def release(self, name: str) -> None:
        """Let the tests of a run end."""
        (self.root / f"{name}.release").touch()

    def spans(self, name: str) -> list[tuple[str, float, float]]:
        """Give (device, begin, end) of every test of a run."""
        document: dict[str, Any] = json.loads((self.root / name / "report.json").read_text(encoding="utf-8"))
        return [
            (device, one["started"], one["started"] + one["duration"])
            for one in document["results"]
            for device in one["devices"]
        ]


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Machine]:
    """Give a machine; what was started on it is ended."""
    made = Machine(tmp_path)
    yield made
    for child in made.children:
        if child.poll() is None:
            child.terminate()
        child.communicate(timeout=20)


def finish(child: subprocess.Popen[str]) -> str:
    """Wait for a run that must be green."""
    output, _ = child.communicate(timeout=LIMIT)
    assert child.returncode == 0, output
    return output


def test_a_second_run_waits_for_the_devices_of_the_first(runs: Machine) -> None:
    first = runs.start("first", seconds=55)
    runs.wait_started("first")
    second = runs.start("second", seconds=0.1)
    runs.wait_told("second", "held by")
    runs.release("first")
    finish(first)
    assert "held by" in finish(second)
    assert min(begin for _, begin, _ in runs.spans("second")) >= max(end for _, _, end in runs.spans("first"))


def test_a_wider_machine_has_room_for_both(runs: Machine) -> None:
    first = runs.start("first", seconds=55, simulate=2)
    runs.wait_started("first")
    second = runs.start("second", seconds=0.1, simulate=4)
    finish(second)
    assert first.poll() is None, "the second run waited though two devices were free"
    runs.release("first")
    finish(first)
    assert not {device for device, _, _ in runs.spans("first")} & {device for device, _, _ in runs.spans("second")}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda one: str(one.name))
def test_a_run_that_dies_gives_its_devices_to_the_next(number: signal.Signals, runs: Machine) -> None:
    first = runs.start("first", seconds=50)
    runs.wait_started("first")
    second = runs.start("second", seconds=0.1)
    runs.wait_told("second", "held by")
    assert not (runs.root / "second.started").exists()
    first.send_signal(number)
    begin = time.monotonic()
    finish(second)
    assert time.monotonic() - begin < 20


def test_a_stopped_run_keeps_its_devices(runs: Machine, request: pytest.FixtureRequest) -> None:
    """A tool that is stopped (Ctrl-Z) has ranks on the devices that nobody else may use."""
    first = runs.start("first", seconds=55)
    runs.wait_started("first")
    first.send_signal(signal.SIGSTOP)
    request.addfinalizer(lambda: first.send_signal(signal.SIGCONT))
    second = runs.start("second", seconds=0.1)
    runs.wait_told("second", "held by")
    assert not (runs.root / "second.started").exists()
    first.send_signal(signal.SIGCONT)
    runs.release("first")
    finish(first)
    finish(second)


def test_a_run_inside_a_test_of_a_run_does_not_wait_for_itself(runs: Machine) -> None:
    """The outer run holds the devices of this repository; the inner one is part of it."""
    (runs.root / "tests" / "test_pairs.py").write_text(
        "import os, subprocess, sys, pytest\n"
        "@pytest.mark.multi_gpu(nproc=1)\n"
        "def test_outer():\n"
        "    if os.environ.get('INNER'):\n"
        "        return\n"
        "    words = ['run', 'pairs', '--simulate', '1', '--process-group', 'none', '--preload', '']\n"
        "    words += ['--report', 'inner']\n"
        "    environ = {**os.environ, 'INNER': '1'}\n"
        "    subprocess.run([sys.executable, '-m', 'ci', *words], check=True, timeout=40, env=environ)\n",
        encoding="utf-8",
    )
    finish(runs.start("outer", seconds=0, simulate=1))
    assert {device for device, _, _ in runs.spans("inner")} == {device for device, _, _ in runs.spans("outer")}
