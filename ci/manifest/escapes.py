"""Escapes: tests that failed in the nightly though a plan had skipped them, with the commit; their rate is a headline.

Pure but for `read_plans`. A plan that ran the test and came later clears the
earlier ones: what failed was not broken yet.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ci.errors import ManifestError

FAILED = frozenset({"failed", "error", "crashed", "hung"})


@dataclass(frozen=True, kw_only=True)
class StoredPlan:
    """What a stored plan said: for `head` it skipped these tests, or ran everything else."""

    source: str
    stage: str
    head: str
    skipped: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Escape:
    """A test that failed though plans had skipped it; the first commit is the earliest that can have broken it."""

    test: str
    outcome: str
    commits: tuple[str, ...]
    plans: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class EscapeReport:
    """All escapes of one nightly; `skips` counts the skip decisions looked at."""

    stage: str
    escapes: tuple[Escape, ...]
    plans: int
    skips: int
    failures: int
    notes: tuple[str, ...] = ()

    @property
    def rate(self) -> float:
        """Escapes per skip decision; 0.0 where nothing was skipped."""
        return sum(len(escape.commits) for escape in self.escapes) / self.skips if self.skips else 0.0

    @property
    def headline(self) -> str:
        """The one line of the report."""
        return (
            f"{self.stage}: {len(self.escapes)} escape(s) among {self.failures} failed test(s); "
            f"{self.skips} skip decision(s) of {self.plans} plan(s), rate {self.rate:.3%}"
        )


def parse_plan(value: Any, *, source: str) -> StoredPlan:
    """Parse a plan document; raises ValueError for one that is not a plan of ours."""
    if not isinstance(value, Mapping):
        raise ValueError("not a plan")  # noqa: TRY004 - a wrong document, not a wrong call
    skipped, head, stage = value.get("skipped", []), value.get("head"), value.get("stage")
    if not isinstance(head, str) or not isinstance(stage, str) or not isinstance(skipped, list):
        raise ValueError("not a plan")  # noqa: TRY004 - a wrong document, not a wrong call
    return StoredPlan(source=source, stage=stage, head=head, skipped=frozenset(str(test) for test in skipped))


def find_escapes(
    stage: str, outcomes: Mapping[str, str], plans: Iterable[StoredPlan], *, order: Sequence[str] = ()
) -> EscapeReport:
    """Compare the outcomes of a full run with what plans skipped.

    `order` lists the commits that led to the run, oldest first; plans of other
    commits are left out of it, unless it is empty (then every plan counts).
    """
    place = {commit: number for number, commit in enumerate(order)}
    mine = [plan for plan in plans if plan.stage == stage and (not order or plan.head in place)]
    mine.sort(key=lambda plan: place.get(plan.head, 0))
    failed = {test: outcome for test, outcome in outcomes.items() if outcome in FAILED}
    escapes = []
    for test, outcome in sorted(failed.items()):
        guilty: list[StoredPlan] = []
        for plan in mine:
            if test in plan.skipped:
                guilty.append(plan)
            elif order:
                guilty = []
        if guilty:
            commits = tuple(dict.fromkeys(plan.head for plan in guilty))
            escapes.append(
                Escape(test=test, outcome=outcome, commits=commits, plans=tuple(plan.source for plan in guilty))
            )
    return EscapeReport(
        stage=stage,
        escapes=tuple(escapes),
        plans=len(mine),
        skips=sum(len(plan.skipped) for plan in mine),
        failures=len(failed),
    )


def read_plans(folder: Path) -> tuple[list[StoredPlan], list[str]]:
    """Read all stored plans of a folder; gives them, and a note for each file that is none."""
    if not folder.is_dir():
        raise ManifestError(f"there is no folder {folder}", hint="keep each pull request's plan.json there")
    plans, notes = [], []
    for path in sorted(folder.rglob("*.json")):
        try:
            plans.append(parse_plan(json.loads(path.read_text(encoding="utf-8")), source=path.name))
        except (OSError, ValueError, RecursionError) as error:
            notes.append(f"{path.name} is not a plan: {error}")
    return plans, notes


def render_markdown(report: EscapeReport) -> str:
    """Render for a step summary: the headline, then one row per escape."""
    lines = [f"### Escapes\n\n{report.headline}\n"]
    if report.escapes:
        lines += ["| test | outcome | skipped at |", "|---|---|---|"]
        lines += [
            f"| `{escape.test}` | {escape.outcome} | {', '.join(commit[:12] for commit in escape.commits)} |"
            for escape in report.escapes
        ]
    lines += [f"- {note}" for note in report.notes]
    return "\n".join(lines)
