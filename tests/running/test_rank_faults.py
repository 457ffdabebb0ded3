"""The fault list with real processes: one failing test per fault, neighbours pass, nothing is left."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

pytestmark = [pytest.mark.cpu, pytest.mark.slow]

GRACE, LIMIT = 1.0, 3.0
HEAD = """
import os, signal, subprocess, sys, time, pytest
pytestmark = pytest.mark.multi_gpu
RANK = int(os.environ.get("RANK", "-1"))
def test_before(): pass
"""
TAIL = """
def test_after(): pass
"""


@dataclass(frozen=True)
class Fault:
    name: str
    body: str
    outcome: str
    reason: str
    within: float
    """Seconds that the test itself may take."""


FAULTS = [
    Fault(
        "rank 0 asserts, rank 1 waits for it",
        "def test_fault():\n    assert RANK == 1, 'told'\n    time.sleep(60)",
        "failed",
        r"rank 0 failed: AssertionError: told; rank 1 was still in the test \(grace of 1 s\)",
        GRACE + 1,
    ),
    Fault(
        "rank 1 asserts",
        "def test_fault():\n    assert RANK == 0",
        "failed",
        "rank 1 failed: assert 1 == 0; rank 0 passed",
        1,
    ),
    Fault(
        "rank 0 skips, rank 1 hangs",
        "def test_fault():\n    if RANK == 0: pytest.skip('not here')\n    time.sleep(60)",
        "failed",
        "rank 0 skipped: not here; rank 1 was still in the test",
        GRACE + 1,
    ),
    Fault(
        "rank 0 skips",
        "def test_fault():\n    if RANK == 0: pytest.skip('not here')",
        "failed",
        "rank 0 skipped: not here; rank 1 passed",
        1,
    ),
    Fault(
        "SIGSEGV in rank 1",
        "def test_fault():\n    if RANK == 1: os.kill(os.getpid(), signal.SIGSEGV)\n    time.sleep(60)",
        "crashed",
        "rank 1 crashed: SIGSEGV; rank 0 was still in the test",
        2,
    ),
    Fault(
        "os._exit(0)",
        "def test_fault():\n    if RANK == 1: os._exit(0)\n    time.sleep(60)",
        "crashed",
        "rank 1 crashed: exited with code 0 in the middle of a test",
        2,
    ),
    Fault(
        "exit 3 in rank 1",
        "def test_fault():\n    if RANK == 1: os._exit(3)",
        "crashed",
        "rank 1 crashed: exited with code 3 in the middle of a test; rank 0 passed",
        2,
    ),
    Fault(
        "killed from outside",
        "def test_fault():\n    if RANK == 0: os.kill(os.getpid(), signal.SIGKILL)",
        "crashed",
        "rank 0 crashed: SIGKILL; rank 1 passed",
        2,
    ),
    Fault(
        "one rank hangs",
        "def test_fault():\n    if RANK == 1: time.sleep(60)",
        "hung",
        r"rank 1 hung; rank 0 passed \(test limit of 3 s\)",
        LIMIT + 5,
    ),
    Fault("all hang", "def test_fault(): time.sleep(60)", "hung", "rank 0 hung; rank 1 hung", LIMIT + 5),
    Fault(
        "teardown error on one rank",
        "@pytest.fixture\ndef f():\n    yield\n    assert RANK == 0, 'left over'\ndef test_fault(f): pass",
        "error",
        "rank 1 error: teardown failed: AssertionError: left over; rank 0 passed",
        1,
    ),
    Fault(
        "setup error on one rank",
        "@pytest.fixture\ndef f():\n    assert RANK == 0, 'no port'\ndef test_fault(f): pass",
        "error",
        "rank 1 error: setup failed: AssertionError: no port; rank 0 passed",
        1,
    ),
    Fault(
        "xfail on one rank",
        "@pytest.mark.xfail(strict=False)\ndef test_fault(): assert RANK == 0",
        "failed",
        "rank 0 passed; rank 1 xfailed",
        1,
    ),
    Fault(
        "a rank asks to end the session",
        "def test_fault():\n    if RANK == 1: pytest.exit('enough')",
        "failed",
        "rank 1 failed: asked to end the whole session",
        1,
    ),
    Fault(
        "a rank closes its wire",
        "def test_fault():\n    if RANK == 1:\n        os.closerange(3, 256)\n        time.sleep(60)",
        "crashed",
        "rank 1 crashed: closed its connection while it ran on",
        LIMIT + 2,
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_one_fault_is_one_failing_test(project, fault):
    project.write("tests/test_fault.py", HEAD + fault.body + TAIL)
    ran = project.ranks()
    assert ran.outcomes == {"test_before": "passed", "test_fault": fault.outcome, "test_after": "passed"}, ran.output
    result = ran.results["test_fault"]
    assert re.search(fault.reason, result["reason"]), result["reason"]
    assert result["duration"] <= fault.within
    assert len(result["ranks"]) == 2
    assert ran.code == 1
    assert ran.report["exit_code"] == 1
    assert {name: bool(tags) for name, tags in ran.junit.items()} == {
        "test_before": False, "test_fault": True, "test_after": False,
    }  # fmt: skip
    assert ran.left == set()


def test_stacks_of_all_ranks_are_attached_when_all_hang(project):
    project.write("tests/test_fault.py", HEAD + "def helper(): time.sleep(60)\ndef test_fault(): helper()\n")
    ran = project.ranks()
    output = ran.results["test_fault"]["output"]
    assert output.count("in helper") == 2
    assert "rank 0 output" in output
    assert "rank 1 output" in output
    assert "_pytest" not in output


def test_output_of_every_rank_is_attached_to_a_failure_also_after_a_crash(project):
    body = "def test_fault():\n    print('said by', RANK)\n    if RANK == 1: os.kill(os.getpid(), signal.SIGSEGV)\n"
    project.write("tests/test_fault.py", HEAD + body)
    output = project.ranks().results["test_fault"]["output"]
    assert "said by 0" in output
    assert "said by 1" in output
    assert "Segmentation fault" in output


def test_each_rank_skips_another_test_is_never_green(project):
    body = """
def test_left():
    if RANK == 0: pytest.skip("left")
def test_right():
    if RANK == 1: pytest.skip("right")
"""
    project.write("tests/test_fault.py", HEAD + body + TAIL)
    ran = project.ranks()
    assert ran.outcomes == {
        "test_before": "passed",
        "test_left": "failed",
        "test_right": "failed",
        "test_after": "passed",
    }
    assert ran.code == 1


def test_all_ranks_skip_is_a_skip_and_all_xfail_is_an_xfail(project):
    body = """
def test_skip(): pytest.skip("needs clickhouse: none here")
@pytest.mark.xfail
def test_xfail(): assert False
"""
    project.write("tests/test_fault.py", HEAD + body)
    ran = project.ranks()
    assert ran.outcomes == {"test_before": "passed", "test_skip": "skipped", "test_xfail": "xfailed"}
    assert ran.results["test_skip"]["skip_class"] == "clickhouse"
    assert ran.code == 0
    assert "1 skipped" in ran.first_line
    assert "0 not-run" in ran.first_line


def test_flaky_on_one_rank_is_rerun_on_all_ranks_together(project):
    body = """
def test_fault(tmp_path_factory):
    mark = os.path.join(os.environ["PLACE"], f"seen-{RANK}")
    first = not os.path.exists(mark)
    open(mark, "w").close()
    assert not (first and RANK == 1)
"""
    project.write("tests/test_fault.py", HEAD + body + TAIL)
    ran = project.ranks("--reruns", "1", environ={"PLACE": str(project.root)})
    assert ran.outcomes == {"test_before": "passed", "test_fault": "passed", "test_after": "passed"}
    assert ran.results["test_fault"]["attempts"] == 2
    assert ran.code == 0
    assert "flaky: tests/test_fault.py::test_fault passed at attempt 2" in ran.output


def test_rerun_after_a_crash_gets_a_new_set(project):
    body = """
@pytest.mark.flaky(reruns=2)
def test_fault():
    mark = os.path.join(os.environ["PLACE"], "seen")
    if RANK == 1 and not os.path.exists(mark):
        open(mark, "w").close()
        os._exit(7)
"""
    project.write("tests/test_fault.py", HEAD + body + TAIL)
    ran = project.ranks(environ={"PLACE": str(project.root)})
    assert set(ran.outcomes.values()) == {"passed"}
    assert ran.results["test_fault"]["attempts"] == 2
    assert ran.code == 0


CONFTESTS = {
    "deselected on one rank": (
        "items[:] = [item for item in items if item.name != 'test_after' or rank != '1']",
        r"rank 1 did not collect tests/test_fault.py::test_after",
    ),
    "zero tests on one rank": ("if rank == '0': items[:] = []", r"rank 0 did not collect .*test_before"),
}


@pytest.mark.parametrize("name", CONFTESTS)
def test_ranks_that_collect_differently_are_an_infrastructure_outcome(project, name):
    line, message = CONFTESTS[name]
    project.write("tests/test_fault.py", HEAD + TAIL)
    project.write(
        "conftest.py",
        f"import os\ndef pytest_collection_modifyitems(items):\n    rank = os.environ.get('RANK')\n    {line}\n",
    )
    ran = project.ranks()
    assert ran.code == 3
    assert re.search(message, ran.report["infrastructure"][0]["message"])
    assert set(ran.outcomes.values()) == {"not-run"}
    assert ran.left == set()


def test_an_extra_test_on_one_rank_is_an_infrastructure_outcome(project):
    project.write("tests/test_fault.py", HEAD + "if RANK == 1:\n    def test_extra(): pass\n")
    ran = project.ranks()
    assert ran.code == 3
    assert "rank 1 collected more than the controller: tests/test_fault.py::test_extra" in ran.output


def test_ranks_start_processes_as_any_process_does_and_not_as_they_were_started(project):
    body = """
import multiprocessing
def test_default(): assert multiprocessing.get_start_method(allow_none=True) is None
def test_own():
    multiprocessing.set_start_method("spawn")  # an error if one were set already
"""
    project.write("tests/test_start.py", HEAD + body)
    ran = project.ranks()
    assert set(ran.outcomes.values()) == {"passed"}, ran.output


def test_another_order_on_one_rank_is_harmless(project):
    project.write("tests/test_fault.py", HEAD + "def test_more(): pass\n" + TAIL)
    project.write(
        "conftest.py",
        "import os\ndef pytest_collection_modifyitems(items):\n    if os.environ.get('RANK') == '1': items.reverse()\n",
    )
    ran = project.ranks()
    assert ran.code == 0
    assert ran.outcomes == {"test_before": "passed", "test_more": "passed", "test_after": "passed"}


def test_a_file_that_vanished_between_collections_is_an_infrastructure_outcome(project):
    project.write("tests/test_gone.py", HEAD)
    project.write(
        "conftest.py",
        "import os\n"
        "def pytest_sessionstart():\n"
        "    if os.environ.get('RANK') == '1': os.remove('tests/test_gone.py')\n",
    )
    ran = project.ranks()
    assert ran.code == 3
    assert "rank 1 did not collect tests/test_gone.py::test_before" in ran.output


def test_a_crash_while_a_rank_collects_is_told_with_its_log(project):
    project.write(
        "tests/test_fault.py",
        HEAD + "if RANK == 1:\n    print('importing')\n    os.kill(os.getpid(), signal.SIGSEGV)\n",
    )
    ran = project.ranks()
    assert ran.code == 3
    assert "rank 1: SIGSEGV before its first test" in ran.output
    assert "importing" in ran.output


def test_a_test_wider_than_the_pool_is_an_infrastructure_outcome_and_its_neighbours_pass(project):
    body = "@pytest.mark.multi_gpu(nproc=4)\ndef test_wide(): pass\n"
    project.write("tests/test_fault.py", HEAD + body + TAIL)
    ran = project.ranks("--simulate", "2")
    assert ran.code == 3
    assert ran.outcomes == {"test_before": "passed", "test_wide": "infrastructure", "test_after": "passed"}
    assert "needs 4 devices, the pool has 2" in ran.output
    assert "SIMULATED" in ran.first_line


def test_processes_that_left_their_group_do_not_outlive_the_set(project):
    body = """
KEEP = []  # a child that is collected while it runs is a warning
def test_fault():
    KEEP.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True))
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
"""
    project.write("tests/test_fault.py", HEAD + body + TAIL)
    ran = project.ranks()
    assert set(ran.outcomes.values()) == {"passed"}
    assert ran.left == set()
