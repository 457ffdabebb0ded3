"""What was executed more than a few seconds before a rank was killed is in the coverage data."""

from __future__ import annotations

import coverage
import pytest

pytestmark = [pytest.mark.cpu, pytest.mark.slow]

BODY = """
import os, signal, time, pytest, mine
pytestmark = pytest.mark.multi_gpu
RANK = os.environ.get("RANK")
def test_early(): mine.early(RANK)
def test_wait(): time.sleep(4.5)
def test_killed(): os.kill(os.getpid(), signal.SIGKILL)
def test_exit():
    mine.before_exit()
    os._exit(0)
def test_child():
    if os.fork() == 0:
        mine.in_a_child()
        os._exit(0)
    os.wait()
"""
MINE = """
def early(rank):
    if rank == "0":
        return "zero"
    return "one"

def before_exit():
    return "exit"

def in_a_child():
    return "child"

def never():
    return "never"
"""


def test_coverage_survives_killed_exited_and_forked_ranks(project):
    project.write("mine.py", MINE)
    project.write("tests/test_cover.py", BODY)
    path = project.root / "pyproject.toml"
    text = path.read_text(encoding="utf-8")
    path.write_text(
        text.replace("test_timeout = 3\n", "test_timeout = 20\n") + 'pythonpath = ["."]\n', encoding="utf-8"
    )
    ran = project.ranks("--coverage")
    outcomes = ran.outcomes
    good = {"test_early": "passed", "test_wait": "passed", "test_child": "passed"}
    assert outcomes == {**good, "test_killed": "crashed", "test_exit": "crashed"}, ran.output
    data = coverage.CoverageData(str(ran.folder / "coverage" / ".coverage"))
    data.read()
    lines = set(data.lines(str(project.root / "mine.py")) or ())
    assert {3, 4, 5} <= lines, "what ran before the kill, on both ranks"
    assert 8 in lines, "before os._exit"
    assert 11 in lines, "in a forked child"
    assert 14 not in lines
