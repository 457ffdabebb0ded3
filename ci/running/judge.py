"""The verdict on a run: why it is not green. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ci.process import describe_exit
from ci.report.model import Outcome, RunReport, TestResult
from ci.running.selection import Selection
from ci.stages.model import Stage

TESTS_RAN = frozenset({0, 1, 5})
"""pytest's answers: all passed, some failed, none collected."""


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What this run was to do.

    `narrowed`: a person or a shard asked for less than the whole stage, so one
    executed test is enough. `planned`: how many tests the plan asked for (None:
    no plan, or one that runs all). `enforce_skips`: this is the stage's own
    runner, where only declared skips are green.
    """

    stage: Stage
    narrowed: bool = False
    planned: int | None = None
    shard: str = ""
    enforce_skips: bool = False
    collect_only: bool = False


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How the sessions ended: what struck them, and the exit code of the one that ended by itself."""

    reasons: tuple[str, ...] = ()
    code: int | None = None


def judge(report: RunReport, selection: Selection, expected: Expectation, *, ended: Ended) -> list[str]:
    """Give the reasons why a run is red, most telling first; none means green.

    `ended` is what the supervisor saw itself (a limit, a signal, an exit code).
    """
    reasons = list(ended.reasons)
    reasons += [f"check {check.name} failed" for check in report.checks if not check.passed]
    reasons += _count_red(report.results)
    reasons += _judge_selection(report, selection, expected)
    reasons += _judge_skips(report.results, expected)
    left = [result for result in report.results if result.outcome is Outcome.NOT_RUN]
    if left and not expected.collect_only:
        reasons.append(f"{_tests(len(left))} selected but not run")
    red = any(result.outcome.is_red for result in report.results)
    if ended.code is not None and (ended.code not in TESTS_RAN or (ended.code == 1 and not red)):
        reasons.append(describe_code(ended.code))
    return reasons


def needs_tests(selection: Selection, expected: Expectation) -> int:
    """Give the least number of tests that this run must execute."""
    stage = expected.stage
    if expected.planned is not None:
        return min(expected.planned, stage.min_tests)
    if expected.shard:
        # The merge of all shards judges the stage's number; a shard answers for its own part.
        return min(1, selection.selected)
    return min(1, stage.min_tests) if expected.narrowed else stage.min_tests


def _judge_selection(report: RunReport, selection: Selection, expected: Expectation) -> list[str]:
    stage = expected.stage
    if expected.collect_only or expected.planned == 0:
        return []
    if selection.unregistered:
        names = ", ".join(selection.unregistered)
        return [f"the stage selects by {names}, which is no registered marker: was it renamed?"]
    executed = sum(result.outcome.is_executed for result in report.results)
    least = needs_tests(selection, expected)
    if selection.selected == 0:
        if expected.shard and selection.deselected:
            return []
        if not stage.may_be_empty:
            what = "the arguments select" if expected.narrowed else f"{stage.select!r} selects"
            return [f"{what} no test at all (pytest's exit 5 is never green)"]
        if selection.unseen:
            return [f"no test was collected, but these files may hold some: {', '.join(selection.unseen[:5])}"]
        return []
    if executed < least:
        return [f"{_tests(executed)} executed, the stage needs {least}"]
    return []


def _judge_skips(results: Sequence[TestResult], expected: Expectation) -> list[str]:
    undeclared = [result for result in results if result.outcome is Outcome.SKIPPED and not result.declared]
    if not undeclared or not expected.enforce_skips:
        return []
    classes = sorted({result.skip_class for result in undeclared})
    return [
        f"{_tests(len(undeclared))} skipped on the stage's own runner, of a class that the row does not allow: "
        + ", ".join(classes)
    ]


def _count_red(results: Sequence[TestResult]) -> list[str]:
    red = (Outcome.CRASHED, Outcome.HUNG, Outcome.FAILED, Outcome.ERROR, Outcome.INFRASTRUCTURE)
    counts = {outcome: sum(result.outcome is outcome for result in results) for outcome in red}
    return [f"{count} {outcome}" for outcome, count in counts.items() if count]


def describe_code(code: int) -> str:
    """Say what an exit code of pytest that is no verdict means."""
    words = {
        1: "pytest answered 1 though no test failed: a plugin or hook is not content (see its output)",
        2: "pytest was interrupted, or stopped at errors while collecting",
        3: "pytest stopped at an internal error",
        4: "pytest did not accept its arguments, or a conftest cannot be imported (its message is above)",
    }
    return words.get(code, f"pytest ended with {describe_exit(code)} after its last test")


def _tests(count: int) -> str:
    return "1 test" if count == 1 else f"{count} tests"
