"""What makes a report green, and that a report survives its file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.errors import ReportError
from ci.report.document import parse_document, render_document
from ci.report.model import CheckResult, DeviceRecord, Outcome, Problem, RankResult, RunReport, TestResult

pytestmark = pytest.mark.cpu

Make = Callable[..., RunReport]
Result = Callable[..., TestResult]


@pytest.mark.parametrize("outcome", list(Outcome))
def test_green_is_passed_xfailed_and_skips_that_the_run_let_pass(
    outcome: Outcome, report: Make, result: Result
) -> None:
    green = outcome in (Outcome.PASSED, Outcome.XFAILED, Outcome.SKIPPED)
    assert report(result("a", outcome=outcome)).is_green is green


def test_a_skip_is_bad_where_nobody_declared_it_and_the_run_is_red(report: Make, result: Result) -> None:
    skip, declared = (result("a", outcome=Outcome.SKIPPED, declared=declared) for declared in (False, True))
    red = report(skip, declared, exit_code=1)
    assert [red.is_bad(one) for one in red.results] == [True, False]
    assert not report(skip).is_bad(skip)


@pytest.mark.parametrize(
    "fields",
    [
        {"exit_code": 1},
        {"exit_code": None},
        {"finished": 0.0},
        {"infrastructure": (Problem(check="nvml", message="missing"),)},
        {"checks": (CheckResult(name="ruff", command=("ruff",), passed=False),)},
    ],
)
def test_no_exit_code_makes_green_what_is_not(fields: dict[str, Any], report: Make, result: Result) -> None:
    assert report(result("a")).is_green
    assert not report(result("a"), **fields).is_green


def test_skips_and_tests_not_run_are_not_executed(report: Make, result: Result) -> None:
    rows = [result(outcome.value, outcome=outcome) for outcome in Outcome]
    assert report(*rows).executed == 6
    assert sum(report(*rows).totals.values()) == len(Outcome)


def test_the_fingerprint_tells_simulated_from_real(report: Make) -> None:
    device = DeviceRecord(uuid="GPU-1", index=0, name="Fake H200", capability="9.0", driver="580")
    real = report(devices=(device, replace(device, uuid="GPU-2")))
    assert real.fingerprint == "cuda:Fake H200/9.0/580,Fake H200/9.0/580"
    assert replace(real, simulated=True).fingerprint == "simulated:2"
    assert report().fingerprint == "cpu"


def test_a_report_survives_its_file(rich_report: RunReport) -> None:
    text = json.dumps(render_document(rich_report))
    assert parse_document(text, source="report.json") == rich_report


TEXT = st.text(max_size=20)
RESULTS = st.builds(
    TestResult,
    id=TEXT,
    outcome=st.sampled_from(Outcome),
    duration=st.floats(0, 1e6),
    ranks=st.lists(
        st.builds(RankResult, rank=st.integers(0, 7), outcome=st.sampled_from(Outcome), reason=TEXT), max_size=3
    ).map(tuple),
    devices=st.lists(TEXT, max_size=2).map(tuple),
    output=TEXT,
    declared=st.booleans(),
)


@given(st.lists(RESULTS, max_size=5), st.one_of(st.none(), st.integers(0, 11)), st.dictionaries(TEXT, TEXT, max_size=3))
def test_any_report_survives_its_file(rows: list[TestResult], code: int | None, environment: dict[str, str]) -> None:
    whole = RunReport(stage="s", results=tuple(rows), exit_code=code, environment=environment)
    assert parse_document(json.dumps(render_document(whole)), source="x") == whole


def test_a_document_carries_totals_and_verdict_for_other_readers(rich_report: RunReport) -> None:
    document = render_document(rich_report)
    assert document["schema"] == "lockgate-report/1"
    assert document["green"] is False
    assert document["totals"]["crashed"] == 2
    assert document["results"][0]["outcome"] == "passed"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": "lockgate-report/9"}, "schema 'lockgate-report/9'"),
        ({"stage": 7}, "stage is int, expected str"),
        ({"results": {}}, "results is dict, expected an array"),
        ({"results": [{"id": "a", "outcome": "green"}]}, "results[0].outcome is 'green', expected one of: passed"),
        ({"results": [{"outcome": "passed"}]}, "results[0] has no 'id'"),
        ({"results": [{"id": "a", "outcome": "passed", "duration": "1"}]}, "results[0].duration is str"),
        ({"results": [{"id": "a", "outcome": "passed", "declared": 1}]}, "results[0].declared is int"),
        ({"exit_code": True}, "exit_code is bool"),
        ({"environment": []}, "environment is list, expected an object"),
    ],
)
def test_a_damaged_document_names_the_place(change: dict[str, Any], words: str, report: Make) -> None:
    document = render_document(report()) | change
    with pytest.raises(ReportError) as caught:
        parse_document(json.dumps(document), source="report.json")
    assert words in caught.value.message
    assert "report.json" in caught.value.message


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7", '"text"'])
def test_a_text_that_is_no_report_is_a_report_error(text: str) -> None:
    with pytest.raises(ReportError, match=r"report\.json"):
        parse_document(text, source="report.json")


def test_a_reader_outlives_new_keys(report: Make) -> None:
    document = render_document(report()) | {"news": [1, 2]}
    assert parse_document(json.dumps(document), source="x") == report()
