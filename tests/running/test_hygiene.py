"""The tool is ended in every way there is: nothing of the run lives on, and the report is there."""

from __future__ import annotations

import json
import re
import resource
import signal
import subprocess
import sys
import time

import pytest

pytestmark = [pytest.mark.cpu, pytest.mark.slow]

LEFT_WITHIN = 5.0
RANKS = """
import os, subprocess, sys, time, pytest
pytestmark = pytest.mark.multi_gpu
def test_before(): pass
def test_long():
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    open(os.path.join(os.environ["PLACE"], "running-" + os.environ.get("RANK", "x")), "w").close()
    time.sleep(600)
def test_never(): pass
"""
STAGES = {"ranks": ("ranks", "--process-group", "none", "--preload", ""), "plain": ("plain",)}


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP], ids=lambda one: one.name
)
@pytest.mark.parametrize("stage", STAGES)
def test_no_process_outlives_the_tool(project, stage, number):
    text = RANKS if stage == "ranks" else RANKS.replace("multi_gpu", "cpu")
    project.write("tests/test_long.py", text)
    row = project.root / "pyproject.toml"
    row.write_text(row.read_text(encoding="utf-8").replace("test_timeout = 3", "test_timeout = 60"), encoding="utf-8")
    child = project.start(*STAGES[stage], environ={"PLACE": str(project.root)})
    names = ("running-0", "running-1") if stage == "ranks" else ("running-x",)
    assert project.wait_until(lambda: all((project.root / name).exists() for name in names))
    assert len(project.living()) > 3
    child.send_signal(number)
    begin = time.monotonic()
    assert project.wait_until(lambda: not project.living(), LEFT_WITHIN), "processes are left"
    assert time.monotonic() - begin <= LEFT_WITHIN
    output, _ = child.communicate(timeout=10)
    report = project.root / ".lockgate" / "report" / stage / "report.json"
    assert project.wait_until(report.exists, 5.0)
    document = json.loads(report.read_text(encoding="utf-8"))
    outcomes = {result["id"].rpartition("::")[2]: result["outcome"] for result in document["results"]}
    assert outcomes == {"test_before": "passed", "test_long": "not-run", "test_never": "not-run"}, output
    assert document["exit_code"] == {signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGINT: 130}.get(number)
    assert child.returncode == {signal.SIGKILL: -9}.get(number, document["exit_code"])


def test_the_run_ends_when_the_nox_that_started_it_is_killed(project):
    project.write("tests/test_long.py", RANKS.replace("multi_gpu", "cpu"))
    words = [sys.executable, "-c", f"import subprocess; subprocess.run({project.command('plain')!r})"]
    environ = project.environ({"NOX_CURRENT_SESSION": "gate", "PLACE": str(project.root)})
    parent = subprocess.Popen(
        words, cwd=project.root, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    assert project.wait_until((project.root / "running-x").exists)
    parent.kill()
    parent.wait()
    assert project.wait_until(lambda: not project.living(), LEFT_WITHIN), "processes are left"
    report = json.loads((project.root / ".lockgate/report/plain/report.json").read_text(encoding="utf-8"))
    assert report["exit_code"] == 143


def test_the_end_of_a_plain_run_ends_what_its_tests_started(project):
    body = """
import os, subprocess, sys, time, pytest
pytestmark = pytest.mark.cpu
KEEP = []  # a child that is collected while it runs is a warning
def test_child():
    KEEP.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True))
"""
    project.write("tests/test_child.py", body)
    ran = project.run("plain")
    assert ran.code == 0
    assert ran.left == set()


def test_a_second_run_of_the_same_stage_is_refused_and_the_first_is_not_disturbed(project):
    project.write("tests/test_long.py", "import time, pytest\n@pytest.mark.cpu\ndef test_a(): time.sleep(2)\n")
    first = project.start("plain")
    events = project.root / ".lockgate" / "report" / "plain" / "events-main.jsonl"
    assert project.wait_until(events.exists)
    second = project.run("plain")
    assert second.code == 3
    assert "--report DIR" in second.output
    first.communicate(timeout=30)
    assert first.returncode == 0


def test_output_through_a_pipe_whose_reader_leaves(project):
    project.write(
        "tests/test_many.py",
        "import pytest\n@pytest.mark.cpu\n@pytest.mark.parametrize('n', range(500))\ndef test_a(n): pass\n",
    )
    child = project.start("plain", "-v")
    assert child.stdout is not None
    child.stdout.readline()
    child.stdout.close()
    child.wait(timeout=60)
    assert project.wait_until(lambda: not project.living(), LEFT_WITHIN)
    report = json.loads((project.root / ".lockgate/report/plain/report.json").read_text(encoding="utf-8"))
    assert report["exit_code"] is not None


@pytest.mark.parametrize("stage", STAGES)
def test_a_full_disk_for_the_report_is_an_error_of_its_own(project, stage):
    text = RANKS.replace("def test_long", "def not_a_test")
    many = "\n@pytest.mark.parametrize('n', range(300))\ndef test_many(n): pass\n"
    project.write("tests/test_many.py", (text if stage == "ranks" else text.replace("multi_gpu", "cpu")) + many)
    words = [*project.command(*STAGES[stage])]

    def small() -> None:
        # A file that cannot grow fails like one on a full disk, and needs no rights.
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))

    streams = {"capture_output": True, "text": True, "timeout": 60}
    environ = project.environ({})
    done = subprocess.run(words, cwd=project.root, env=environ, preexec_fn=small, check=False, **streams)
    assert done.returncode == 10, done.stdout + done.stderr
    assert re.search("cannot write the event log|could not be written|cannot be written", done.stderr), done.stderr
    assert "Traceback" not in done.stderr
    assert project.living() == set()
