# ruff: noqa: E501 - a row of a table is one line
"""Plans as files: written whole, believed only whole and for their own commit."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.errors import ReportError
from ci.impact.plan import Cause, Decision, Identity, Plan, Selected, Shard, names_above
from ci.impact.plan_file import digest_of, parse_plan, read_plan, render_document, render_plan, write_plan
from ci.impact.reasons import Reason

pytestmark = pytest.mark.cpu

PLAN = Plan(
    stage="unit",
    decision=Decision.SUBSET,
    explanation="1 of 2 known tests run",
    tests=(Selected(id="t.py::a", reason=Reason.BODY, detail="m.py: f"),),
    skipped=("t.py::b",),
    reasons={"body-executed": 1},
    causes=(Cause(path="m.py", reason=Reason.BODY, detail="m.py: f", tests=1), Cause(path="x", reason=Reason.LINK, detail="", tests=None)),
    base="b" * 40,
    head="c" * 40,
    merge_base="b" * 40,
    manifest=Identity(source="a" * 40, age_hours=1.5, content_hash="h"),
    policy_hash="p",
    warnings=("old",),
    shards=(Shard(index=1, tests=("t.py::a",), seconds=1.0),),
    known=2,
    selected=1,
    seconds=1.0,
    total_seconds=3.0,
)  # fmt: skip


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    write_plan(PLAN, tmp_path / "deep" / "plan.json")
    assert read_plan(tmp_path / "deep" / "plan.json", head="c" * 40, stage="unit") == PLAN


def test_the_document_holds_the_contract() -> None:
    document = render_document(PLAN)
    assert document["tests"] == [{"id": "t.py::a", "reason": "body-executed", "detail": "m.py: f"}]
    assert document["manifest"] == {"source": "a" * 40, "age_hours": 1.5, "content_hash": "h"}
    assert [document[key] for key in ("decision", "reasons", "head")] == ["subset", {"body-executed": 1}, "c" * 40]
    assert render_document(replace(PLAN, manifest=None))["manifest"] is None


def edited(**values: Any) -> str:
    document = {**render_document(PLAN), **values}
    document["digest"] = digest_of(document)
    return json.dumps(document)


DAMAGED: dict[str, Callable[[], str]] = {
    "empty": lambda: "",
    "cut": lambda: render_plan(PLAN)[:-40],
    "not an object": lambda: "[]",
    "edited by hand": lambda: render_plan(PLAN).replace("t.py::b", "t.py::c"),
    "other schema": lambda: edited(schema=99),
    "unknown decision": lambda: edited(decision="skip"),
    "unknown reason": lambda: edited(tests=[{"id": "x", "reason": "because", "detail": ""}]),
    "none with tests": lambda: edited(decision="none"),
    "subset without tests": lambda: edited(tests=[]),
    "tests of numbers": lambda: edited(tests=[1]),
    "skipped of numbers": lambda: edited(skipped=[1]),
    "counts of words": lambda: edited(counts={"known": "many"}),
    "manifest is a word": lambda: edited(manifest="x"),
    "deep nesting": lambda: "[" * 100_000,
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_plan_runs_everything_and_says_so(tmp_path: Path, text: Callable[[], str]) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text())
    plan = read_plan(path, stage="unit")
    assert plan.decision is Decision.ALL
    assert list(plan.reasons) == ["plan-unusable"]
    assert "plan again for this commit" in plan.explanation


@pytest.mark.parametrize(
    ("head", "stage", "words"), [("d" * 40, "unit", "is for c"), ("", "gpu", "is for stage unit, not gpu")]
)
def test_a_plan_for_anything_else_runs_everything(tmp_path: Path, head: str, stage: str, words: str) -> None:
    write_plan(PLAN, tmp_path / "plan.json")
    plan = read_plan(tmp_path / "plan.json", head=head, stage=stage)
    assert plan.decision is Decision.ALL
    assert words in plan.explanation


def test_an_absent_plan_and_a_folder_run_everything(tmp_path: Path) -> None:
    assert "does not exist" in read_plan(tmp_path / "plan.json", stage="unit").explanation
    assert "cannot be read" in read_plan(tmp_path, stage="unit").explanation


def test_a_plan_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ReportError, match="cannot be written"):
        write_plan(PLAN, tmp_path / "file" / "plan.json")


def test_only_named_tests_are_skipped() -> None:
    assert [PLAN.selects(name) for name in ("t.py::a", "t.py::b", "t.py::new")] == [True, False, True]
    assert replace(PLAN, decision=Decision.ALL).selects("t.py::b")


def test_a_plan_without_a_list_of_skipped_tests_selects_by_its_entries() -> None:
    document = {key: value for key, value in render_document(PLAN).items() if key not in ("skipped", "digest")}
    plan = parse_plan({**document, "tests": [{"id": "t.py", "reason": "new-test", "detail": ""}]})
    assert plan.selects("t.py::C::x[1-a]")
    assert not plan.selects("u.py::a")


def test_names_above_leave_parameters_whole() -> None:
    assert names_above("a.py::C::t[x::y]") == ["a.py::C::t[x::y]", "a.py::C::t", "a.py::C", "a.py"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(key=st.sampled_from([*render_document(PLAN)]), value=json_values)
def test_no_value_of_any_key_raises_anything_but_value_error(key: str, value: Any) -> None:
    document = {name: item for name, item in render_document(PLAN).items() if name != "digest"}
    try:
        plan = parse_plan({**document, key: value})
    except ValueError:
        return
    assert isinstance(plan, Plan)
