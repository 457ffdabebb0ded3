"""What makes a stage red, green or neither, by the command line and with real sessions."""

from __future__ import annotations

import itertools
import json

import pytest

pytestmark = [pytest.mark.cpu, pytest.mark.slow]

CPU = "import os, signal, time, pytest\npytestmark = pytest.mark.cpu\n"


def set_row(project, name: str, rows: str) -> None:
    path = project.root / "pyproject.toml"
    text = path.read_text(encoding="utf-8")
    path.write_text(
        text.replace(f"[tool.lockgate.stages.{name}]", f"[tool.lockgate.stages.{name}]\n{rows}"), encoding="utf-8"
    )


def test_a_green_run_writes_every_file_and_says_so(project):
    project.write("tests/test_a.py", CPU + "def test_a(): pass\n")
    ran = project.run("plain")
    assert ran.code == 0
    assert ran.report["totals"]["passed"] == 1
    assert ran.junit == {"test_a": []}
    assert {path.name for path in ran.folder.iterdir()} >= {
        "report.json",
        "junit.xml",
        "timeline.html",
        "events-main.jsonl",
    }


def test_faults_of_plain_tests_cost_one_test_each(project):
    body = """
def test_before(): pass
def test_segv(): os.kill(os.getpid(), signal.SIGSEGV)
def test_between(): assert False, "told"
def test_exit(): os._exit(0)
def test_hang(): time.sleep(60)
def test_after(): pass
"""
    project.write("tests/test_a.py", CPU + body)
    ran = project.run("plain")
    assert ran.outcomes == {
        "test_before": "passed", "test_segv": "crashed", "test_between": "failed", "test_exit": "crashed",
        "test_hang": "hung", "test_after": "passed",
    }  # fmt: skip
    assert ran.results["test_segv"]["reason"] == "SIGSEGV"
    assert ran.results["test_exit"]["reason"] == "exited with code 0 in the middle of a test"
    assert "in test_hang" in ran.results["test_hang"]["output"]
    assert ran.code == 1
    assert "AssertionError: told" in ran.output  # also of a session that died later
    assert ran.left == set()


def test_an_empty_selection_is_red(project):
    project.write("tests/test_a.py", "def test_unmarked(): pass\n")
    ran = project.run("plain")
    assert ran.code == 1
    assert "selects no test at all" in ran.output


def test_an_empty_selection_by_arguments_is_red(project):
    project.write("tests/test_a.py", CPU + "def test_a(): pass\n")
    ran = project.run("plain", "-k", "nothing_like_it")
    assert ran.code == 1
    assert "the arguments select no test at all" in ran.output


def test_may_be_empty_is_green_when_no_test_exists(project):
    set_row(project, "plain", "may_be_empty = true")
    project.write("tests/test_a.py", "import pytest\n@pytest.mark.own\ndef test_a(): pass\n")
    assert project.run("plain").code == 0


def test_may_be_empty_is_red_when_a_file_that_skipped_itself_may_hold_tests(project):
    set_row(project, "plain", "may_be_empty = true")
    project.write(
        "tests/test_a.py", "import pytest\npytest.importorskip('no_such_module')\n" + CPU + "def test_a(): pass\n"
    )
    ran = project.run("plain", environ={"LOCKGATE_RUNNER": "plain"})
    assert ran.code == 1
    assert "these files may hold some: tests/test_a.py" in ran.output


def test_a_renamed_marker_turns_the_stage_red_also_where_it_may_be_empty(project):
    set_row(project, "plain", "may_be_empty = true")
    path = project.root / "pyproject.toml"
    path.write_text(path.read_text(encoding="utf-8").replace('"cpu: tier"', '"cpu_only: tier"'), encoding="utf-8")
    project.write("tests/test_a.py", "import pytest\n@pytest.mark.cpu_only\ndef test_a(): pass\n")
    ran = project.run("plain")
    assert ran.code == 1
    assert "cpu, which is no registered marker: was it renamed?" in ran.output


def test_too_few_tests_are_red_unless_a_person_narrowed_the_selection(project):
    set_row(project, "plain", "min_tests = 3")
    project.write("tests/test_a.py", CPU + "def test_a(): pass\ndef test_b(): pass\n")
    ran = project.run("plain")
    assert ran.code == 1
    assert "2 tests executed, the stage needs 3" in ran.output
    assert project.run("plain", "-k", "test_a").code == 0


SKIPS = """
def test_a(): pass
def test_b(): pytest.skip("needs clickhouse: no server; start one")
"""


def test_an_undeclared_skip_is_green_at_home_and_red_on_the_stages_own_runner(project):
    project.write("tests/test_a.py", CPU + SKIPS)
    home = project.run("plain")
    assert home.code == 0
    assert "skipped 1 (clickhouse, undeclared): needs clickhouse: no server; start one" in home.output
    for environ in ({"LOCKGATE_RUNNER": "plain"}, {"CI": "true"}):
        own = project.run("plain", environ=environ)
        assert own.code == 1
        assert "of a class that the row does not allow: clickhouse" in own.output
    assert project.run("plain", environ={"LOCKGATE_RUNNER": "another"}).code == 0


@pytest.mark.parametrize("entry", ["clickhouse", "needs click*"])
def test_a_declared_skip_is_green_everywhere(project, entry):
    set_row(project, "plain", f'allow_skips = ["{entry}"]')
    project.write("tests/test_a.py", CPU + SKIPS)
    ran = project.run("plain", environ={"LOCKGATE_RUNNER": "plain"})
    assert ran.code == 0
    assert ran.results["test_b"]["declared"]


def test_a_module_that_skips_itself_is_counted_where_it_may_hold_selected_tests(project):
    project.write("tests/test_a.py", CPU + "def test_a(): pass\n")
    project.write(
        "tests/test_b.py", "import pytest\npytest.importorskip('no_such_module')\n" + CPU + "def test_b(): pass\n"
    )
    project.write(
        "tests/test_c.py", "import pytest\npytest.importorskip('no_such_module')\npytestmark = pytest.mark.own\n"
    )
    ran = project.run("plain", environ={"LOCKGATE_RUNNER": "plain"})
    assert ran.code == 1
    skipped = {result["id"]: result["skip_class"] for result in ran.report["results"] if result["outcome"] == "skipped"}
    assert skipped == {"tests/test_b.py": "import:no_such_module"}


def test_a_file_that_cannot_be_collected_is_red_and_named(project):
    project.write("tests/test_a.py", CPU + "def test_a(): pass\n")
    project.write("tests/test_b.py", "import no_such_module\n")
    ran = project.run("plain")
    assert ran.code == 1
    assert "tests/test_b.py" in {result["id"] for result in ran.report["results"] if result["outcome"] == "error"}


def test_a_test_file_that_vanished_is_red(project):
    set_row(project, "plain", 'paths = ["tests/test_gone.py"]')
    project.write("tests/test_a.py", CPU + "def test_a(): pass\n")
    ran = project.run("plain")
    assert ran.code == 1
    assert "pytest did not accept its arguments" in ran.output


def test_every_failing_check_is_listed_and_the_tests_run_all_the_same(project):
    checks = """
[tool.lockgate.checks.one]
command = ["python", "-c", "print('first complaint'); raise SystemExit(1)"]
stages = ["plain"]
[tool.lockgate.checks.two]
command = ["no-such-program"]
stages = ["plain"]
[tool.lockgate.checks.slow]
command = ["python", "-c", "import time; time.sleep(60)"]
stages = ["plain"]
timeout = 1
[tool.lockgate.checks.good]
command = ["python", "-c", "pass"]
stages = ["plain"]
[tool.lockgate.checks.other]
command = ["python", "-c", "raise SystemExit(1)"]
stages = ["ranks"]
"""
    path = project.root / "pyproject.toml"
    path.write_text(path.read_text(encoding="utf-8") + checks, encoding="utf-8")
    project.write("tests/test_a.py", CPU + "def test_a(): pass\n")
    ran = project.run("plain")
    assert ran.code == 1
    assert ran.outcomes == {"test_a": "passed"}
    assert {check["name"]: check["passed"] for check in ran.report["checks"]} == {
        "one": False, "two": False, "slow": False, "good": True,
    }  # fmt: skip
    assert "first complaint" in ran.output
    assert "no-such-program was not found on PATH" in ran.output
    assert "ran past its limit of 1 s" in ran.output


def test_the_stage_limit_is_named_when_it_strikes(project):
    set_row(project, "plain", "timeout = 2\ntest_timeout = 60".replace("\n", "\n"))
    path = project.root / "pyproject.toml"
    lines = path.read_text(encoding="utf-8").replace(
        'test_timeout = 60\nselect = "cpu"\ntest_timeout = 3\ntimeout = 60', 'test_timeout = 60\nselect = "cpu"'
    )
    path.write_text(lines, encoding="utf-8")
    project.write("tests/test_a.py", CPU + "def test_a(): time.sleep(60)\ndef test_b(): pass\n")
    ran = project.run("plain")
    assert ran.code == 1
    assert "the stage ran past its limit of 2 s" in ran.output
    assert ran.outcomes == {"test_a": "not-run", "test_b": "not-run"}
    assert ran.left == set()


@pytest.mark.parametrize("stage", ["plain", "ranks"])
def test_stop_at_the_first_failure_leaves_the_rest_not_run(project, stage):
    head = CPU if stage == "plain" else CPU.replace("mark.cpu", "mark.multi_gpu")
    project.write("tests/test_a.py", head + "def test_a(): assert False\ndef test_b(): pass\n")
    ran = project.run(stage, "-x", *(("--process-group", "none", "--preload", "") if stage == "ranks" else ()))
    assert ran.code == 1
    assert ran.outcomes == {"test_a": "failed", "test_b": "not-run"}
    assert "1 not-run" in ran.first_line


@pytest.mark.parametrize("stage", ["plain", "ranks"])
def test_last_failed_runs_what_failed(project, stage):
    head = CPU if stage == "plain" else CPU.replace("mark.cpu", "mark.multi_gpu")
    words = ("--process-group", "none", "--preload", "") if stage == "ranks" else ()
    project.write("tests/test_a.py", head + "def test_a(): assert False\ndef test_b(): pass\n")
    project.run(stage, *words)
    ran = project.run(stage, "--lf", *words)
    assert ran.outcomes == {"test_a": "failed"}


def test_an_exit_code_of_pytest_that_no_test_explains_is_red(project):
    project.write("tests/test_a.py", CPU + "def test_a(): pass\n")
    project.write("conftest.py", "def pytest_sessionfinish(session):\n    session.exitstatus = 1\n")
    ran = project.run("plain")
    assert ran.code == 1
    assert "pytest answered 1 though no test failed" in ran.output


def test_a_session_that_dies_while_it_collects_is_red_and_does_not_loop(project):
    project.write("tests/test_a.py", CPU + "os.kill(os.getpid(), signal.SIGSEGV)\n")
    ran = project.run("plain")
    assert ran.code == 1
    assert "pytest ended with SIGSEGV outside of any test" in ran.output


def test_markers_of_another_repository_run_on_ranks_through_the_row(project):
    path = project.root / "pyproject.toml"
    row = '[tool.lockgate.stages.theirs]\nselect = "own"\nranks = 2\ntest_timeout = 5\n'
    path.write_text(row + path.read_text(encoding="utf-8"), encoding="utf-8")
    body = 'import os, pytest\n@pytest.mark.own\ndef test_a(): assert os.environ["WORLD_SIZE"] == "2"\n'
    project.write("tests/test_a.py", body)
    ran = project.run("theirs", "--process-group", "none", "--preload", "")
    assert ran.code == 0
    assert ran.results["test_a"]["width"] == 2


def test_a_stage_with_devices_names_what_is_missing_and_offers_the_simulation(project):
    path = project.root / "pyproject.toml"
    row = '[tool.lockgate.stages.gpus]\nselect = "gpu"\ndevices = 2\n'
    path.write_text(row + path.read_text(encoding="utf-8"), encoding="utf-8")
    project.write("tests/test_a.py", "import os, pytest\n@pytest.mark.gpu\ndef test_a(): pass\n")
    ran = project.run("gpus", environ={"CUDA_VISIBLE_DEVICES": ""})
    assert ran.code == 3
    assert "--simulate 2" in ran.output
    assert ran.report["infrastructure"]
    simulated = project.run("gpus", "--simulate", "2", "--preload", "")
    assert simulated.code == 0
    assert simulated.report["simulated"] is True
    assert simulated.results["test_a"]["width"] == 1
    assert "SIMULATED" in simulated.first_line


def test_shards_split_a_stage_without_loss(project):
    project.write("tests/test_a.py", CPU + "@pytest.mark.parametrize('n', range(7))\ndef test_a(n): pass\n")
    parts = [set(project.run("plain", "--shard", f"{number}/2").outcomes) for number in (1, 2)]
    assert not parts[0] & parts[1]
    assert len(parts[0] | parts[1]) == 7


WRONG = {
    "no such stage": (("nowhere",), 2, "there is no stage 'nowhere'"),
    "bad shard": (("plain", "--shard", "3/2"), 2, "expected I/N"),
    "bad number": (("plain", "--simulate", "x"), 2, "is no number"),
    "debugger": (("plain", "--pdb"), 2, "run pytest itself"),
    "another runner": (("plain", "-n", "4"), 2, "hands the tests to another runner"),
    "option without value": (("plain", "-k"), 2, "expected a value after it"),
    "no file of a node id": (("plain", "tests/nope.py::test_a"), 2, "there is no file for 'tests/nope.py::test_a'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_command_line_is_a_clear_error(project, name):
    words, code, message = WRONG[name]
    project.write("tests/test_a.py", CPU + "def test_a(): pass\n")
    child = project.start(*words)
    output, _ = child.communicate(timeout=30)
    assert child.returncode == code, output
    assert message in output
    assert "Traceback" not in output


def test_tests_with_the_same_fixed_port_never_run_at_once(project):
    body = """
import socket, time, pytest
pytestmark = pytest.mark.gpu
@pytest.mark.lockgate_port(48765)
@pytest.mark.parametrize("n", range(3))
def test_port(n):
    with socket.create_server(("127.0.0.1", 48765), reuse_port=False):
        time.sleep(0.4)
@pytest.mark.parametrize("n", range(2))
def test_free(n): time.sleep(0.1)
"""
    path = project.root / "pyproject.toml"
    row = '[tool.lockgate.stages.gpus]\nselect = "gpu"\ndevices = 2\ntest_timeout = 20\n'
    path.write_text(row + path.read_text(encoding="utf-8"), encoding="utf-8")
    project.write("tests/test_ports.py", body)
    ran = project.run("gpus", "--simulate", "2", "--preload", "")
    assert set(ran.outcomes.values()) == {"passed"}, ran.output
    assert len({one["devices"][0] for one in ran.report["results"]}) == 2


def test_two_runs_share_one_pool_without_ever_meeting_on_a_device(project):
    body = "import os, time, pytest\npytestmark = pytest.mark.multi_gpu\n"
    body += "@pytest.mark.parametrize('n', range(3))\ndef test_a(n): time.sleep(0.3)\n"
    project.write("tests/test_a.py", body)
    words = ("ranks", "--process-group", "none", "--preload", "", "--simulate", "2")
    children = [project.start(*words, "--report", f"report-{number}") for number in (1, 2)]
    spans = []
    for number, child in enumerate(children, start=1):
        output, _ = child.communicate(timeout=90)
        assert child.returncode == 0, output
        report = json.loads((project.root / f"report-{number}" / "report.json").read_text(encoding="utf-8"))
        spans += [(one["started"], one["started"] + one["duration"], number) for one in report["results"]]
    assert len(spans) == 6
    spans.sort()
    for before, after in itertools.pairwise(spans):
        assert before[2] == after[2] or before[1] <= after[0] + 0.01, spans
