"""A full disk: the error says so with its own exit code, and nothing half-written stands in the way."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ci.report.model import Outcome, RunReport, TestResult
from ci.report.write import write_report

pytestmark = [pytest.mark.cpu, pytest.mark.slow]

LIBC = ctypes.CDLL(None, use_errno=True)
ROOM = 64 * 1024
FULL = ("No space left on device", "File too large")


@pytest.fixture(params=["small file system", "limit of the process"])
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Give a folder with room for 64 KiB: a file system of that size where mounting is allowed, else a limit."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = False
    if request.param == "small file system":
        mounted = LIBC.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, b"size=64k") == 0
    try:
        yield folder
    finally:
        if mounted:
            LIBC.umount(os.fsencode(folder))


def big_report() -> RunReport:
    """Make a report that is larger than the disk."""
    rows = tuple(
        TestResult(id=f"tests/test_a.py::test_{at}", outcome=Outcome.FAILED, output="x" * 1000) for at in range(100)
    )
    return RunReport(stage="cpu_gate", results=rows, started=1.0, finished=2.0, exit_code=1)


def run_report(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run `lockgate report` in a process that cannot write a file of more than 64 KiB."""
    environ = {**os.environ, "PYTHONPATH": os.fspath(Path(__file__).parents[2])}
    code = "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2);"
    code += "sys.argv = ['ci', *sys.argv[2:]]; runpy.run_module('ci', run_name='__main__')"
    command = [sys.executable, "-c", code, str(ROOM), "report", *words]
    return subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, timeout=60, check=False)


def test_a_merge_onto_a_full_disk_ends_with_10_and_leaves_no_part(small_disk: Path, tmp_path: Path) -> None:
    write_report(tmp_path / "whole", big_report())
    done = run_report("merge", "whole", "-o", os.fspath(small_disk / "merged"), cwd=tmp_path)
    assert done.returncode == 10, done.stderr
    assert any(words in done.stderr for words in FULL)
    assert "free some space" in done.stderr
    assert "Traceback" not in done.stderr
    assert list((small_disk / "merged").iterdir()) == []


def test_an_old_report_stays_whole_when_the_new_one_does_not_fit(small_disk: Path, tmp_path: Path) -> None:
    small = RunReport(stage="cpu_gate", started=1.0, finished=2.0, exit_code=0)
    write_report(small_disk, small)
    before = (small_disk / "report.json").read_text()
    write_report(tmp_path / "whole", big_report())
    assert run_report("merge", "whole", "-o", os.fspath(small_disk), cwd=tmp_path).returncode == 10
    assert (small_disk / "report.json").read_text() == before


@pytest.fixture
def logs(tmp_path: Path) -> Callable[[], Path]:
    """Give a function that writes event logs into a folder that may not be written any more."""

    def write() -> Path:
        folder = tmp_path / "logs"
        folder.mkdir()
        line = '{"t": 1.0, "event": "session", "stage": "cpu_gate"}\n'
        (folder / "events-main.jsonl").write_text(line)
        return folder

    return write


def test_files_can_be_built_once_there_is_room_again(logs: Callable[[], Path], tmp_path: Path) -> None:
    folder = logs()
    done = run_report("build", os.fspath(folder), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "cpu_gate: never finished" in done.stdout
