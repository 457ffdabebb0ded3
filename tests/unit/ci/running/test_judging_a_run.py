from __future__ import annotations

import pytest

from ci.report.model import CheckResult, Outcome, RunReport, TestResult
from ci.running.judge import Ended, Expectation, judge
from ci.running.selection import Selection
from ci.stages.model import Stage

pytestmark = pytest.mark.cpu

STAGE = Stage(name="gate", select="cpu")


def report(*outcomes: Outcome, **more: object) -> RunReport:
    results = tuple(TestResult(id=f"t{number}", outcome=outcome) for number, outcome in enumerate(outcomes))
    return RunReport(stage="gate", results=results, **more)


def reasons(run: RunReport, selection: Selection | None = None, code: int | None = 0, **more: object) -> list[str]:
    expected = Expectation(**{"stage": STAGE, **more})
    return judge(run, selection or Selection(selected=len(run.results)), expected, ended=Ended(code=code))


def test_a_run_of_passes_and_xfails_is_green():
    assert reasons(report(Outcome.PASSED, Outcome.XFAILED)) == []


@pytest.mark.parametrize("outcome", [one for one in Outcome if one.is_red])
def test_every_red_outcome_is_counted(outcome):
    assert reasons(report(Outcome.PASSED, outcome, outcome), code=1) == [f"2 {outcome}"]


def test_a_test_that_was_not_run_is_red():
    assert reasons(report(Outcome.PASSED, Outcome.NOT_RUN)) == ["1 test selected but not run"]


@pytest.mark.parametrize("code", [2, 3, 4, 10, -11])
def test_a_session_that_did_not_end_well_is_red_whatever_the_tests_say(code):
    assert len(reasons(report(Outcome.PASSED), code=code)) == 1


def test_pytests_one_without_a_failing_test_is_red_and_with_one_says_nothing_new():
    assert "though no test failed" in reasons(report(Outcome.PASSED), code=1)[0]
    assert reasons(report(Outcome.FAILED), code=1) == ["1 failed"]


def test_a_failed_check_is_red():
    check = CheckResult(name="lint", command=("ruff",), passed=False)
    assert reasons(report(Outcome.PASSED, checks=(check,))) == ["check lint failed"]


def test_an_empty_selection():
    empty = report()
    assert "selects no test at all" in reasons(empty, code=5)[0]
    assert "the arguments select no test" in reasons(empty, code=5, narrowed=True)[0]
    may = Stage(name="gate", select="cpu", may_be_empty=True)
    assert reasons(empty, code=5, stage=may) == []
    hidden = Selection(unseen=("tests/test_a.py",))
    assert "these files may hold some: tests/test_a.py" in reasons(empty, hidden, code=5, stage=may)[0]


def test_a_renamed_marker_is_red_even_where_the_stage_may_be_empty():
    may = Stage(name="gate", select="cpu", may_be_empty=True)
    assert "was it renamed?" in reasons(report(), Selection(unregistered=("cpu",)), code=5, stage=may)[0]


def test_only_executed_tests_count_towards_the_least_number():
    stage = Stage(name="gate", select="cpu", min_tests=2)
    run = report(Outcome.PASSED, Outcome.SKIPPED)
    assert reasons(run, stage=stage) == ["1 test executed, the stage needs 2"]
    assert reasons(run, stage=stage, narrowed=True) == []
    assert reasons(run, stage=stage, planned=1) == []
    assert reasons(run, stage=stage, shard="1/2") == []


def test_a_stage_of_skips_alone_executed_nothing():
    assert reasons(report(Outcome.SKIPPED)) == ["0 tests executed, the stage needs 1"]


def test_a_plan_that_needs_nothing_is_green_and_one_that_needs_tests_is_not_empty():
    assert reasons(report(), code=None, planned=0) == []
    assert reasons(report(), code=5, planned=3)


def test_an_empty_shard_of_a_stage_that_has_tests_is_green():
    assert reasons(report(), Selection(selected=0, deselected=3), code=5, shard="4/4") == []
    assert reasons(report(), Selection(selected=0, deselected=0), code=5, shard="4/4") != []


def test_undeclared_skips_are_red_only_where_they_are_enforced():
    skip = TestResult(id="t", outcome=Outcome.SKIPPED, skip_class="clickhouse", reason="needs clickhouse: none")
    run = RunReport(stage="gate", results=(TestResult(id="a", outcome=Outcome.PASSED), skip))
    assert reasons(run) == []
    assert "does not allow: clickhouse" in reasons(run, enforce_skips=True)[0]
