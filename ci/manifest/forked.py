"""One test in a process of its own: fork, run, ship reports and records back."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import warnings
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from ci.manifest.trace import children
from ci.manifest.trace.state import State


def obstacle() -> str:
    """Say why a fork of this process could hang or break, or ""."""
    if not hasattr(os, "fork"):
        return "no-fork"
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        return "cuda-initialised"
    if threading.active_count() > 1:
        return "threads"
    return ""


def run(state: State, item: pytest.Item) -> list[pytest.TestReport]:
    """Run one test with all its fixtures in a fork; give its reports, made up for a process that died."""
    answer = os.path.join(state.folder, f"fork-{os.getpid()}.json")
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        # Python 3.12 warns of forks beside threads that native libraries started; those hold no lock of ours.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = children.own_fork(state)
    if pid == 0:
        code = 70
        try:
            _run_here(state, item, answer)
            code = 0
        except BaseException as error:  # noqa: BLE001 - the border of a process: the parent must hear of it
            sys.stderr.write(f"lockgate: the recording of {item.nodeid} failed: {error!r}\n")
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            state.leave(code)
    status = _wait(pid)
    try:
        with open(answer, "rb") as stream:
            value = json.loads(stream.read())
        os.unlink(answer)
    except (OSError, ValueError):
        state.current.opaque.add("crashed")
        return [_crashed(item, status)]
    if status != 0:
        state.current.opaque.add("crashed")
        return [_crashed(item, status)]
    state.absorb(value["record"])
    if value["exit"]:
        pytest.exit(value["exit"])
    hook = item.config.hook
    return [hook.pytest_report_from_serializable(config=item.config, data=data) for data in value["reports"]]


def _run_here(state: State, item: pytest.Item, answer: str) -> None:
    state.merge = True
    state.forget()
    leaving = ""
    reports: list[pytest.TestReport] = []
    try:
        # Without a next test everything is torn down here, wider fixtures too.
        reports = runtestprotocol(item, nextitem=None, log=False)
    except pytest.exit.Exception as error:
        leaving = str(error) or "pytest.exit"
    problem = state.recorder.problem()
    if problem:
        state.current.opaque.add(problem)
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util._exit_function()  # noqa: SLF001 - joins the test's own workers
    state.active = False
    hook = item.config.hook
    data = [hook.pytest_report_to_serializable(config=item.config, report=report) for report in reports]
    record: dict[str, Any] = {**state.dump(), "lines": state.recorder.lines()}
    if not record["lines"].get(state.label) and not record["contexts"].get(state.label, {}).get("ran"):
        record["contexts"].setdefault(state.label, {}).setdefault("opaque", []).append("nothing-recorded")
    text = json.dumps({"reports": data, "record": record, "exit": leaving}, default=str, separators=(",", ":"))
    with open(answer, "w", encoding="utf-8") as stream:
        stream.write(text)


def _wait(pid: int) -> int:
    while True:
        try:
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        except InterruptedError:  # pragma: no cover - Python retries itself unless a handler raises
            continue
        except KeyboardInterrupt:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise


def _crashed(item: pytest.Item, status: int) -> pytest.TestReport:
    how = signal.Signals(-status).name if status < 0 else f"exit code {status}"
    return pytest.TestReport(
        nodeid=item.nodeid, location=item.location, keywords={item.name: 1}, outcome="failed",
        longrepr=f"the process of {item.nodeid} ended with {how} in the middle of the test", when="call",
    )  # fmt: skip
