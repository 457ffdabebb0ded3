from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ci import process
from ci.errors import ProcessError
from ci.running.tree import find_descendants, find_marked, kill_all, run_mark, sweep

pytestmark = pytest.mark.cpu

HERE = Path(__file__).parent
ENVIRON = {"PATH": os.environ["PATH"]}
SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


def run(*words: str, **more):
    return process.run([sys.executable, "-c", *words], **{"cwd": HERE, "environ": ENVIRON, "limit": 20, **more})


def test_output_and_exit_code_are_captured():
    done = run("import sys; print('out'); print('err', file=sys.stderr)", capture=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "out\n", "err\n")


def test_a_failure_is_an_error_with_the_last_lines_and_the_hint():
    with pytest.raises(ProcessError, match="ended with exit code 3") as error:
        run("import sys; print('the reason', file=sys.stderr); sys.exit(3)", capture=True, hint="do this")
    assert "the reason" in error.value.message
    assert error.value.hint == "do this"


def test_a_failure_that_the_caller_judges_is_no_error():
    assert run("raise SystemExit(3)", check=False).returncode == 3


def test_a_signal_is_named():
    with pytest.raises(ProcessError, match="SIGKILL"):
        run("import os; os.kill(os.getpid(), 9)")
    assert process.describe_exit(-11) == "SIGSEGV"
    assert process.describe_exit(-250) == "signal 250"
    assert process.describe_exit(2) == "exit code 2"


def test_a_missing_program_and_a_missing_folder_are_told_apart():
    with pytest.raises(ProcessError, match="no-such-program was not found on PATH"):
        process.run(["no-such-program"], cwd=HERE, environ=ENVIRON, limit=5)
    with pytest.raises(ProcessError, match="there is no folder"):
        process.run([sys.executable, "-c", ""], cwd=HERE / "nowhere", environ=ENVIRON, limit=5)


def test_the_command_line_is_announced_first():
    said: list[str] = []
    run("pass", announce=said.append)
    assert said[0].endswith("-c pass")


def test_past_its_limit_the_whole_group_is_ended(tmp_path):
    mark = run_mark("limit")
    text = f"import subprocess, time; subprocess.Popen({SLEEP!r}); time.sleep(60)"
    begin = time.monotonic()
    with pytest.raises(ProcessError, match=r"ran past its limit of 0\.7 s"):
        run(text, environ={**ENVIRON, mark: "1"}, limit=0.7)
    assert time.monotonic() - begin < 0.7 + 2 * process.KILL_GRACE
    assert find_marked(mark) == set()


def test_a_child_that_ignores_sigterm_is_killed():
    text = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    child = process.start(
        [sys.executable, "-c", text],
        cwd=HERE, environ=ENVIRON, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None
    child.stdout.readline()
    process.end_group(child, grace=0.2)
    assert child.returncode == -signal.SIGKILL


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a parent's death is told by Linux alone")
def test_a_child_dies_with_the_process_that_started_it():
    mark = run_mark("orphan")
    text = (
        "import os, sys, pathlib; from ci import process\n"
        f"process.start({SLEEP!r}, cwd=pathlib.Path('.'), environ=dict(os.environ))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    environ = {**ENVIRON, mark: "1", "PYTHONPATH": str(Path(process.__file__).parents[1])}
    assert run(text, environ=environ, check=False).returncode == -9
    end = time.monotonic() + 5
    while find_marked(mark) and time.monotonic() < end:
        time.sleep(0.02)
    assert find_marked(mark) == set()


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found through /proc")
def test_a_sweep_ends_children_that_left_their_group_and_spares_the_others():
    mark, other = run_mark("sweep"), run_mark("spared")
    ours = [process.start(SLEEP, cwd=HERE, environ={**ENVIRON, mark: "1"}) for _ in range(2)]
    spared = process.start(SLEEP, cwd=HERE, environ={**ENVIRON, other: "1"})
    try:
        assert {child.pid for child in ours} <= find_descendants(os.getpid())
        assert sweep(mark, limit=5.0) == set()
        assert find_marked(other) == {spared.pid}
    finally:
        kill_all([spared.pid])
        for child in (*ours, spared):
            child.wait()


def test_killing_what_has_ended_is_no_error():
    child = process.start([sys.executable, "-c", ""], cwd=HERE, environ=ENVIRON)
    child.wait()
    kill_all([child.pid])
