"""The event logs alone give the report, whoever died while writing them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from ci.errors import ReportError
from ci.report.build import CUT_SHORT, NEVER_STARTED, build_run
from ci.report.model import DeviceRecord, Mark, Outcome, Problem, RankResult, TestResult
from ci.report.write import build_report
from ci.running.events import Event, EventLog, Kind

pytestmark = pytest.mark.cpu

DEVICE = DeviceRecord(uuid="SIM-0", index=0, name="simulated", simulated=True)


def event(t: float, kind: Kind, **fields: Any) -> Event:
    """Make an event; what `Event` has no field for becomes its data."""
    own = {"test", "rank", "device", "outcome", "duration"}
    data = {key: value for key, value in fields.items() if key not in own}
    return Event(t=t, event=kind, data=data, **{key: value for key, value in fields.items() if key in own})


SESSION = event(
    1.0, Kind.SESSION, stage="multi_gpu", commit="abc", simulated=True, devices=[asdict(DEVICE)], shard="1/2"
)
COLLECTED = event(2.0, Kind.COLLECTED, tests=["a", "b", "c"])
START_A = event(3.0, Kind.START, test="a", width=2, devices=["SIM-0"])
FINISH_A = event(
    4.0,
    Kind.FINISH,
    test="a",
    outcome=Outcome.FAILED,
    duration=1.0,
    result={"outcome": "failed", "duration": 1.0, "ranks": [{"rank": 0, "outcome": "failed"}]},
)
END = event(9.0, Kind.END, code=1, reasons=["1 failed"])


def test_a_whole_run_becomes_a_report() -> None:
    run = build_run([SESSION, COLLECTED, START_A, FINISH_A, END])
    assert (run.stage, run.commit, run.simulated, run.shard) == ("multi_gpu", "abc", True, "1/2")
    assert (run.started, run.finished, run.exit_code, run.reasons) == (1.0, 9.0, 1, ("1 failed",))
    assert run.devices == (DEVICE,)
    first = run.results[0]
    assert first.ranks == (RankResult(rank=0, outcome=Outcome.FAILED),)
    assert (first.started, first.width, first.devices) == (3.0, 2, ("SIM-0",))


def test_tests_without_an_answer_are_not_run_and_say_why() -> None:
    run = build_run([SESSION, COLLECTED, START_A, FINISH_A, event(5.0, Kind.START, test="b", width=1)])
    by_id = {one.id: one for one in run.results}
    assert (by_id["b"].outcome, by_id["b"].reason, by_id["b"].started) == (Outcome.NOT_RUN, CUT_SHORT, 5.0)
    assert (by_id["c"].outcome, by_id["c"].reason, by_id["c"].started) == (Outcome.NOT_RUN, NEVER_STARTED, 0.0)
    assert not run.is_complete
    assert not run.is_green
    assert "never gave its answer" in run.notes[0]


def test_the_last_answer_of_a_test_counts() -> None:
    late = event(5.0, Kind.FINISH, test="a", outcome=Outcome.ERROR, result={"outcome": "error", "reason": "teardown"})
    run = build_run([SESSION, START_A, FINISH_A, late])
    assert [(one.id, one.outcome) for one in run.results] == [("a", Outcome.ERROR)]


def test_an_answer_without_details_is_still_an_answer() -> None:
    bare = event(4.0, Kind.FINISH, test="x", outcome=Outcome.ERROR, duration=0.5)
    assert build_run([SESSION, bare]).results == (TestResult(id="x", outcome=Outcome.ERROR, duration=0.5),)


def test_what_ranks_write_about_themselves_is_no_result() -> None:
    own = event(3.5, Kind.START, test="b", rank=1)
    answer = event(3.6, Kind.RANK, test="b", rank=1, outcome=Outcome.PASSED)
    run = build_run([SESSION, own, answer])
    assert run.results == ()


def test_only_the_supervisor_ends_a_run() -> None:
    run = build_run([SESSION, event(8.0, Kind.END, code=0, worker="main")])
    assert run.exit_code is None
    assert not run.is_complete


def test_restarts_retries_and_limits_are_marks() -> None:
    run = build_run(
        [
            SESSION,
            event(5.0, Kind.RESTART, set="s1", reason="SIGSEGV", devices=["SIM-0"], test="a"),
            event(6.0, Kind.LIMIT, limit="grace", seconds=5.0, test="a"),
            event(7.0, Kind.RETRY, test="a", attempt=2, reason="flaky"),
        ]
    )
    assert run.marks == (
        Mark(time=5.0, kind="restart", text="SIGSEGV: a", devices=("SIM-0",)),
        Mark(time=6.0, kind="limit", text="grace limit: a"),
        Mark(time=7.0, kind="retry", text="flaky: a"),
    )


def test_problems_and_notes_are_kept_once() -> None:
    problem = {"check": "nvml", "message": "missing", "hint": "install", "devices": []}
    rows = [event(2.0 + at, Kind.PROBLEM, problem=problem) for at in range(2)]
    notes = [event(3.0, Kind.NOTE, message="plan not used"), event(3.1, Kind.NOTE, message="plan not used")]
    run = build_run([SESSION, *rows, *notes, END])
    assert run.infrastructure == (Problem(check="nvml", message="missing", hint="install"),)
    assert run.notes == ("plan not used",)


def test_checks_are_kept() -> None:
    row = event(2.0, Kind.CHECK, result={"name": "ruff", "command": ["ruff", "check"], "passed": False, "output": "E1"})
    (check,) = build_run([SESSION, row, END]).checks
    assert (check.name, check.command, check.passed, check.output) == ("ruff", ("ruff", "check"), False, "E1")


def test_no_event_at_all_is_a_report_error() -> None:
    with pytest.raises(ReportError, match="no event"):
        build_run([])


def test_an_event_of_another_version_is_a_report_error() -> None:
    with pytest.raises(ReportError, match="outcome is 'splendid'"):
        build_run([event(4.0, Kind.FINISH, test="a", outcome=Outcome.PASSED, result={"outcome": "splendid"})])


def test_a_line_that_a_kill_cut_is_left_out_and_told(tmp_path: Path) -> None:
    path = tmp_path / "events-main.jsonl"
    with EventLog(path, clock=lambda: 1.0) as log:
        log.write(Kind.SESSION, stage="cpu_gate")
        log.write(Kind.COLLECTED, tests=["a"])
        log.write(Kind.FINISH, test="a", outcome=Outcome.PASSED, duration=0.1)
    with path.open("ab") as stream:
        stream.write(b'{"t": 2.0, "event": "fini')
    run = build_report(tmp_path)
    assert [one.outcome for one in run.results] == [Outcome.PASSED]
    assert any("1 line(s) of the event logs were cut" in note for note in run.notes)


def test_a_folder_without_logs_is_a_report_error(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="holds no event log"):
        build_report(tmp_path)
