"""A plan in words: tables, Markdown, job outputs, answers about one test or one path; and shards."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from ci.impact.command import split_plan
from ci.impact.decide import decide
from ci.impact.facts import Facts
from ci.impact.plan import Cause, Decision, Plan, Selected, run_everything
from ci.impact.reasons import Reason
from ci.impact.render import explain_path, explain_test, headline, job_outputs, render_markdown

pytestmark = pytest.mark.cpu

PLAN = Plan(
    stage="unit",
    decision=Decision.SUBSET,
    explanation="1 of 3 known tests run",
    tests=(
        Selected(id="t/a.py::x[1]", reason=Reason.BODY, detail="m.py: f"),
        Selected(id="t/new.py", reason=Reason.NEW_TEST, detail="t/new.py added"),
    ),
    skipped=("t/a.py::y", "t/b.py::z"),
    reasons={"body-executed": 1, "new-test": 1},
    causes=(
        Cause(path="m.py", reason=Reason.BODY, detail="m.py: f", tests=1),
        Cause(path="t/new.py", reason=Reason.NEW_TEST, detail="t/new.py added", tests=0),
        Cause(path="README.md", reason=Reason.DOCUMENTATION, detail="README.md changed; listed as *.md", tests=0),
    ),
    known=3,
    selected=1,
    seconds=1.0,
    total_seconds=4.0,
)
ALL = run_everything("unit", Reason.NO_MANIFEST, "no --manifest was given")


@pytest.mark.parametrize(
    ("test", "words"),
    [
        ("t/a.py::x[1]", "runs; body-executed: m.py: f"),
        ("t/a.py::y", "skipped; untouched: nothing that it depends on is among the 3 changed paths"),
        ("t/new.py::anything", "runs; new-test: t/new.py added"),
        ("t/a.py", "1 of its tests run; the first: body-executed"),
        ("t/a.py::x", "1 of its tests run"),
        ("t/b.py", "its 1 tests are skipped"),
        ("t", "2 of its tests run"),
        ("t/c.py::unheard", "runs; new-test"),
    ],
)
def test_every_test_has_its_line(test: str, words: str) -> None:
    line = explain_test(PLAN, test)
    assert line.startswith(f"{test}: ")
    assert words in line
    assert "\n" not in line


def test_everything_has_its_line_too() -> None:
    assert "everything runs: no-manifest" in explain_test(ALL, "t/a.py::y")
    assert explain_test(PLAN, "no/such/file.py") == ""


def test_every_changed_path_has_its_line() -> None:
    assert explain_path(PLAN, "m.py") == ["m.py: 1 tests run; body-executed: m.py: f"]
    assert explain_path(PLAN, "README.md")[0].startswith("README.md: nothing runs; documentation:")
    assert explain_path(PLAN, "other") == []


def test_the_summary_names_reasons_and_meanings() -> None:
    text = render_markdown(PLAN)
    assert "1 of 3 known tests run; 3.0 of 4.0 recorded seconds saved" in text
    assert f"| `body-executed` | 1 | {Reason.BODY.meaning} |" in text
    assert headline(ALL) == ALL.explanation


def test_a_hostile_path_cannot_break_the_summary() -> None:
    path = "a|b`<img src=x>\n[x](javascript:1).py"
    cause = Cause(path=path, reason=Reason.UNKNOWN_FILE, detail=f"{path} changed", tests=None)
    text = render_markdown(replace(PLAN, causes=(cause,)))
    rows = [line for line in text.splitlines() if "| `unknown-file` |" in line]
    assert len(rows) == 1
    detail = rows[0].split("| all |")[1]
    assert "&lt;img" in detail
    assert "\\[x]" in detail


def test_job_outputs_hold_decision_counts_and_matrix(facts_of: Callable[..., Facts]) -> None:
    outputs = job_outputs(PLAN)
    assert (outputs["decision"], outputs["run"], outputs["selected"], outputs["skipped"]) == (
        "subset",
        "true",
        "1",
        "2",
    )
    assert json.loads(outputs["matrix"]) == {"shard": ["1/1"]}
    assert job_outputs(replace(PLAN, decision=Decision.NONE))["run"] == "false"


def test_shards_are_balanced_by_recorded_seconds(facts_of: Callable[..., Facts]) -> None:
    tests = {f"t.py::t{number}": {"duration": float(number + 1)} for number in range(8)}
    facts = facts_of(
        {"m.py": "x = 1\n", "t.py": ""}, {"m.py": "x = 2\n", "t.py": ""}, tests=tests, imported={"m.py": tests}
    )
    plan = decide(facts)
    shards = split_plan(plan, facts.manifest, 3)
    assert sorted(test for shard in shards for test in shard.tests) == sorted(item.id for item in plan.tests)
    assert max(shard.seconds for shard in shards) - min(shard.seconds for shard in shards) <= 4
    assert json.loads(job_outputs(replace(plan, shards=shards))["matrix"]) == {"shard": ["1/3", "2/3", "3/3"]}
