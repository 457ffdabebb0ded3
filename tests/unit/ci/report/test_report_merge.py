"""Shards become one report, and nothing that one runner would have found is lost on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ci.errors import ReportError
from ci.report.merge import merge_reports
from ci.report.model import Outcome, Problem, RunReport, TestResult

pytestmark = pytest.mark.cpu

Make = Callable[..., RunReport]
Result = Callable[..., TestResult]


@pytest.fixture
def shards(report: Make, result: Result) -> Callable[..., list[RunReport]]:
    """Give a function that makes the two green shards of a run; keywords change the second."""

    def make(**fields: Any) -> list[RunReport]:
        first = report(result("a"), result("b"), shard="1/2", environment={"split": "x"})
        rows = fields.pop("rows", [result("c")])
        values: dict[str, Any] = {"shard": "2/2", "environment": {"split": "x"}, "started": 5.0}
        return [first, report(*rows, **(values | fields))]

    return make


def test_two_green_shards_are_one_green_report(shards: Callable[..., list[RunReport]]) -> None:
    merged = merge_reports(shards()[::-1])
    assert merged.is_green
    assert merged.shard == ""
    assert [one.id for one in merged.results] == ["a", "b", "c"]
    assert merged.started == 5.0
    assert merged.executed == 3


@pytest.mark.parametrize(("code", "expected"), [(1, 1), (3, 3), (10, 10)])
def test_the_worst_exit_code_is_the_whole(code: int, expected: int, shards: Callable[..., list[RunReport]]) -> None:
    merged = merge_reports(shards(exit_code=code, reasons=("why",)))
    assert merged.exit_code == expected
    assert merged.reasons == ("shard 2/2: why",)
    assert not merged.is_green


def test_a_missing_shard_is_never_green(report: Make, result: Result) -> None:
    merged = merge_reports([report(result("a"), shard="2/3")])
    assert merged.exit_code == 1
    assert "missing shard(s): 1/3, 3/3" in merged.reasons[0]


def test_a_shard_that_never_ended_is_never_green(shards: Callable[..., list[RunReport]]) -> None:
    merged = merge_reports(shards(exit_code=None, finished=0.0))
    assert not merged.is_complete
    assert "a shard never gave its answer" in merged.reasons


def test_shards_split_from_other_estimates_may_have_lost_a_test(shards: Callable[..., list[RunReport]]) -> None:
    merged = merge_reports(shards(environment={"split": "y"}))
    assert merged.exit_code == 1
    assert "different estimates" in merged.reasons[0]


def test_a_test_that_two_shards_ran_is_told_and_the_worse_result_counts(
    shards: Callable[..., list[RunReport]], result: Result
) -> None:
    merged = merge_reports(shards(rows=[result("a", outcome=Outcome.CRASHED), result("c")], exit_code=1))
    assert [(one.id, one.outcome) for one in merged.results] == [
        ("a", Outcome.CRASHED),
        ("b", Outcome.PASSED),
        ("c", Outcome.PASSED),
    ]
    assert any("run by more than one shard: a" in reason for reason in merged.reasons)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"stage": "nightly"}, "stages: multi_gpu, nightly"),
        ({"commit": "ffff"}, "commits: "),
        ({"simulated": True}, "kinds of devices: real, simulated"),
        ({"shard": "2/3"}, "splits: 2, 3"),
        ({"shard": ""}, "splits: 2, not split"),
        ({"shard": "1/2"}, "given more than once: 1/2"),
    ],
)
def test_reports_that_do_not_belong_together_are_refused(
    fields: dict[str, Any], words: str, shards: Callable[..., list[RunReport]]
) -> None:
    with pytest.raises(ReportError) as caught:
        merge_reports(shards(**fields))
    assert words in caught.value.message


def test_nothing_to_merge_is_an_error() -> None:
    with pytest.raises(ReportError, match="no report to merge"):
        merge_reports([])


def test_a_problem_of_a_machine_stays_a_problem(shards: Callable[..., list[RunReport]]) -> None:
    problem = Problem(check="ecc", message="GPU 1 has errors")
    merged = merge_reports(shards(exit_code=3, infrastructure=(problem,)))
    assert merged.infrastructure == (problem,)
    assert merged.exit_code == 3
