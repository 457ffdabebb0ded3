"""The view follows the logs: plain lines through a pipe, lanes on a terminal, and never a broken run."""

from __future__ import annotations

import io
import re
import time
from dataclasses import asdict
from pathlib import Path

import pytest
from rich.console import Console

from ci.report.model import DeviceRecord, Outcome
from ci.running.events import EventLog, Kind
from ci.running.view import PLAIN_EVERY, open_view

pytestmark = pytest.mark.cpu

DEVICE = DeviceRecord(uuid="SIM-0", index=0, name="simulated", simulated=True)
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def write_run(folder: Path) -> None:
    """Write the logs of a short run: one passed, one crashed, one still out."""
    with EventLog(folder / "events-main.jsonl", clock=time.time) as log:
        log.write(Kind.SESSION, stage="multi_gpu", simulated=True, devices=[asdict(DEVICE)])
        log.write(Kind.COLLECTED, tests=["a", "b", "c"])
        log.write(Kind.START, test="a", width=1, devices=["SIM-0"])
        log.write(Kind.FINISH, test="a", outcome=Outcome.PASSED, duration=0.1)
        reason = "rank 1 crashed: [red]SIGSEGV[/]\nmore"
        log.write(Kind.FINISH, test="b", outcome=Outcome.CRASHED, duration=0.1, result={"reason": reason})
        log.write(Kind.RESTART, set="w1-0", reason="SIGSEGV")
        log.write(Kind.LIMIT, limit="grace", seconds=5.0, test="c")
        log.write(Kind.RETRY, test="c", attempt=2, reason="flaky")
        log.write(Kind.START, test="c", width=1, devices=["SIM-0"], attempt=2)


def test_through_a_pipe_only_what_is_bad_is_told_line_by_line(tmp_path: Path) -> None:
    stream = io.StringIO()
    with open_view(Console(file=stream, width=40), tmp_path, estimates={}):
        write_run(tmp_path)
    assert stream.getvalue().splitlines() == [
        "CRASHED b: rank 1 crashed: [red]SIGSEGV[/]",
        "RESTART of set w1-0: SIGSEGV",
        "LIMIT grace of 5.0 s struck c",
        "RETRY c (attempt 2): flaky",
    ]


def test_a_note_on_why_nothing_moves_is_told_at_once_whatever_else_is_not(tmp_path: Path) -> None:
    stream = io.StringIO()
    log = EventLog(tmp_path / "events-main.jsonl", clock=time.time)
    with log, open_view(Console(file=stream, width=40), tmp_path, estimates={}, tell=False):
        log.write(Kind.NOTE, message="waits for GPU 0, held by python train.py (pid 7)", now=True)
        log.write(Kind.NOTE, message="for the report alone")
    assert stream.getvalue().splitlines() == ["waits for GPU 0, held by python train.py (pid 7)"]


def test_progress_is_told_now_and_then_through_a_pipe(tmp_path: Path) -> None:
    stream = io.StringIO()
    now = [100.0]
    with open_view(Console(file=stream, width=40), tmp_path, estimates={}, tell=False, clock=lambda: now[0]):
        write_run(tmp_path)
        now[0] += PLAIN_EVERY + 1
    (line,) = stream.getvalue().splitlines()
    assert line.startswith("2/3  1 crashed, 1 passed, 0 skipped, 0 not-run  11 s, about ")
    assert line.endswith("left  [simulated]")


def test_a_terminal_shows_what_each_device_does(tmp_path: Path) -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=100, force_terminal=True)
    with open_view(console, tmp_path, estimates={"c": 30.0}):
        write_run(tmp_path)
        end = time.monotonic() + 5
        while "sim 0" not in stream.getvalue() and time.monotonic() < end:
            time.sleep(0.02)
    text = ESCAPES.sub("", stream.getvalue())
    assert "c (attempt 2)" in text
    assert "2/3" in text
    assert "CRASHED b" in text


def test_a_log_that_cannot_be_read_ends_the_view_and_not_the_run(tmp_path: Path) -> None:
    stream = io.StringIO()
    (tmp_path / "events-main.jsonl").mkdir()
    with open_view(Console(file=stream), tmp_path, estimates={}):
        end = time.monotonic() + 5
        while "the live view has ended" not in stream.getvalue() and time.monotonic() < end:
            time.sleep(0.02)
    assert stream.getvalue().count("the live view has ended: IsADirectoryError") == 1


def test_lines_of_others_are_printed_as_they_are(tmp_path: Path) -> None:
    stream = io.StringIO()
    with open_view(Console(file=stream, width=20), tmp_path, estimates={}) as view:
        view.line("[bold]a long line of pytest's own that is not wrapped[/]")
    assert stream.getvalue() == "[bold]a long line of pytest's own that is not wrapped[/]\n"
