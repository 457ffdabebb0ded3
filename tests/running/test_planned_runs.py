"""`--plan`: what a plan leaves out is not run, and a plan that cannot be used leaves out nothing."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace

import pytest

from ci.impact.plan import Decision, Plan, Selected
from ci.impact.plan_file import describe_head, write_plan
from ci.impact.reasons import Reason

pytestmark = [pytest.mark.cpu, pytest.mark.slow]

BODY = """
import pytest
pytestmark = pytest.mark.{tier}
def test_a(): pass
def test_b(): assert False
def test_new(): pass
"""


def prepare(project, plan: Plan, *, tier: str = "cpu") -> None:
    project.write("tests/test_a.py", BODY.format(tier=tier))
    project.write(".gitignore", ".lockgate\n.locks\n__pycache__\n.pytest_cache\nplan.json\n")
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-q", "-m", "one"]):
        subprocess.run(["git", *words], cwd=project.root, check=True, capture_output=True)
    head = describe_head(project.root, dict(os.environ))
    write_plan(replace(plan, head=head), project.root / "plan.json")


SUBSET = Plan(
    stage="plain",
    decision=Decision.SUBSET,
    explanation="one of two",
    tests=(Selected(id="tests/test_a.py::test_a", reason=next(iter(Reason)), detail=""),),
    skipped=("tests/test_a.py::test_b",),
    known=2,
    selected=1,
)


def test_a_subset_leaves_out_what_the_plan_skips_and_runs_what_it_does_not_know(project):
    prepare(project, SUBSET)
    ran = project.run("plain", "--plan", "plan.json")
    assert ran.outcomes == {"test_a": "passed", "test_new": "passed"}, ran.output
    assert ran.code == 0
    assert "plan: one of two" in ran.output


def test_a_subset_of_tests_on_ranks(project):
    prepare(project, replace(SUBSET, stage="ranks"), tier="multi_gpu")
    ran = project.ranks("--plan", "plan.json")
    assert ran.outcomes == {"test_a": "passed", "test_new": "passed"}, ran.output
    assert ran.code == 0


def test_a_plan_that_needs_nothing_is_green_without_a_session(project):
    prepare(project, Plan(stage="plain", decision=Decision.NONE, explanation="only prose changed"))
    ran = project.run("plain", "--plan", "plan.json")
    assert ran.code == 0, ran.output
    assert ran.outcomes == {}
    assert "test session starts" not in ran.output
    assert "only prose changed" in ran.output


@pytest.mark.parametrize("damage", ["truncated", "absent", "for another commit", "for another stage"])
def test_a_plan_that_cannot_be_used_runs_everything_and_says_why(project, damage):
    prepare(project, SUBSET)
    path = project.root / "plan.json"
    if damage == "truncated":
        path.write_text(path.read_text(encoding="utf-8")[:100], encoding="utf-8")
    elif damage == "absent":
        path.unlink()
    elif damage == "for another commit":
        project.write("tests/test_more.py", "import pytest\n@pytest.mark.cpu\ndef test_more(): pass\n")
        words = ["-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "-m", "two"]
        subprocess.run(["git", "add", "-A"], cwd=project.root, check=True)
        subprocess.run(["git", *words], cwd=project.root, check=True)
    else:
        write_plan(Plan(stage="other", decision=Decision.NONE, explanation="none"), path)
    ran = project.run("plain", "--plan", "plan.json")
    assert ran.outcomes["test_b"] == "failed"
    assert ran.code == 1
    assert "note: plan: " in ran.output


def test_a_plan_outside_a_repository_runs_everything_and_says_why(project):
    project.write("tests/test_a.py", BODY.format(tier="cpu"))
    write_plan(SUBSET, project.root / "plan.json")
    ran = project.run("plain", "--plan", "plan.json", environ={"GIT_CEILING_DIRECTORIES": str(project.root.parent)})
    assert ran.outcomes["test_b"] == "failed"
    assert "plan: everything runs" in ran.output
