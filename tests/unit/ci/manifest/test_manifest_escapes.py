"""A failure that a plan had skipped is an escape, unless a later plan ran the test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ci.errors import ManifestError
from ci.manifest.escapes import StoredPlan, find_escapes, read_plans, render_markdown

pytestmark = pytest.mark.cpu


def plan(head: str, *skipped: str, stage: str = "gpu") -> StoredPlan:
    """Give a stored plan."""
    return StoredPlan(source=f"{head}.json", stage=stage, head=head, skipped=frozenset(skipped))


def test_a_skipped_failure_is_an_escape_with_its_commit() -> None:
    report = find_escapes(
        "gpu", {"t1": "failed", "t2": "passed", "t3": "hung"}, [plan("c1", "t1", "t2"), plan("c2", "t2")]
    )
    assert [(escape.test, escape.commits) for escape in report.escapes] == [("t1", ("c1",))]
    assert report.skips == 3
    assert report.failures == 2
    assert report.rate == pytest.approx(1 / 3)
    assert "1 escape(s) among 2 failed" in report.headline
    assert "`t1`" in render_markdown(report)


def test_a_later_plan_that_ran_the_test_clears_the_earlier_ones() -> None:
    plans = [plan("c3", "t"), plan("c1", "t"), plan("c2")]
    report = find_escapes("gpu", {"t": "failed"}, plans, order=["c1", "c2", "c3"])
    assert report.escapes[0].commits == ("c3",)
    assert not find_escapes("gpu", {"t": "failed"}, plans[1:], order=["c1", "c2", "c3"]).escapes


def test_other_stages_and_other_commits_do_not_count() -> None:
    plans = [plan("c1", "t", stage="cpu"), plan("elsewhere", "t")]
    report = find_escapes("gpu", {"t": "error"}, plans, order=["c1"])
    assert report.escapes == ()
    assert report.rate == 0.0


def test_plans_are_read_and_what_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text(json.dumps({"stage": "gpu", "head": "c", "skipped": ["t"], "tests": []}))
    (tmp_path / "2.json").write_text("[1")
    (tmp_path / "3.json").write_text("[1]")
    (tmp_path / "4.json").write_text('{"stage": 1, "head": "c"}')
    plans, notes = read_plans(tmp_path)
    assert plans == [StoredPlan(source="1.json", stage="gpu", head="c", skipped=frozenset({"t"}))]
    assert len(notes) == 3
    with pytest.raises(ManifestError, match="no folder"):
        read_plans(tmp_path / "absent")
