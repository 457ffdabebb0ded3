"""A plan in words: for a terminal, for a step summary, for a job's outputs, for one test or one path."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from rich.table import Table

from ci.impact.plan import Cause, Decision, Plan, Selected, names_above
from ci.impact.reasons import Reason, Scope

SHOWN = 20
"""Rows of a list before the rest is counted."""


def render_table(plan: Plan) -> Table:
    """Lay out why each changed path does what it does."""
    table = Table(title=f"{plan.stage}: {headline(plan)}", title_justify="left", expand=False)
    for name in ("changed path", "reason", "tests", "detail"):
        table.add_column(name, justify="right" if name == "tests" else "left", overflow="fold")
    for cause in plan.causes[:SHOWN]:
        table.add_row(cause.path or "-", str(cause.reason), _count(cause), cause.detail)
    if len(plan.causes) > SHOWN:
        table.add_row("...", f"{len(plan.causes) - SHOWN} more", "", "--format json has all")
    return table


def _count(cause: Cause) -> str:
    return "all" if cause.tests is None else str(cause.tests)


def headline(plan: Plan) -> str:
    """Give the decision in one line."""
    if plan.decision is Decision.ALL:
        return plan.explanation
    saved = plan.total_seconds - plan.seconds
    return f"{plan.explanation}; {saved:.1f} of {plan.total_seconds:.1f} recorded seconds saved"


def render_markdown(plan: Plan) -> str:
    """Render a step summary."""
    lines = [f"### Plan for `{plan.stage}`: {plan.decision}", "", _cell(headline(plan)), ""]
    if plan.reasons:
        lines += ["| reason | times | meaning |", "|---|---:|---|"]
        lines += [f"| `{word}` | {times} | {_cell(Reason(word).meaning)} |" for word, times in plan.reasons.items()]
        lines.append("")
    if plan.causes:
        lines += ["| changed path | reason | tests | detail |", "|---|---|---:|---|"]
        for cause in plan.causes[:SHOWN]:
            lines.append(f"| {_code(cause.path)} | `{cause.reason}` | {_count(cause)} | {_cell(cause.detail)} |")
        if len(plan.causes) > SHOWN:
            lines.append(f"| and {len(plan.causes) - SHOWN} more | | | |")
        lines.append("")
    if plan.manifest is not None:
        source, age = plan.manifest.source[:12], plan.manifest.age_hours
        lines.append(f"Manifest of commit `{source}`, {age:.1f} hours old.")
    lines += [f"- warning: {_cell(warning)}" for warning in plan.warnings]
    return "\n".join(lines)


def _cell(text: str) -> str:
    # A path can hold anything; a table cell must not.
    text = text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
    return text.replace("`", "\\`").replace("[", "\\[")


def _code(text: str) -> str:
    return f"`{text.replace('`', chr(39)).replace('|', '/')}`" if text else "-"


def job_outputs(plan: Plan) -> dict[str, str]:
    """Give the outputs of a workflow job: decision, counts, and the matrix of shards."""
    count = max(1, len(plan.shards))
    matrix = {"shard": [f"{index}/{count}" for index in range(1, count + 1)]}
    return {
        "decision": str(plan.decision),
        "run": "false" if plan.decision is Decision.NONE else "true",
        "selected": str(plan.selected),
        "skipped": str(len(plan.skipped)),
        "known": str(plan.known),
        "reason": next(iter(plan.reasons), ""),
        "matrix": json.dumps(matrix),
    }


def explain_test(plan: Plan, test: str) -> str:
    """Say in one line why a test runs or not; "" for one that the plan has never heard of."""
    if plan.decision is Decision.ALL:
        return f"{test}: runs; {plan.explanation}"
    entries = {item.id: item for item in plan.tests}
    for name in names_above(test):
        if name in entries and (name == test or test not in plan.skipped):
            return f"{test}: runs; {_because(entries[name])}"
    if test in plan.skipped:
        changed = len({cause.path for cause in plan.causes if cause.path})
        return f"{test}: skipped; {Reason.UNTOUCHED}: nothing that it depends on is among the {changed} changed paths"
    below = tuple(f"{test.rstrip('/')}{mark}" for mark in ("::", "[", "/"))
    inside = [item for item in plan.tests if item.id.startswith(below)]
    if inside:
        return f"{test}: {len(inside)} of its tests run; the first: {_because(inside[0])}"
    left = [name for name in plan.skipped if name.startswith(below)]
    if left:
        return f"{test}: its {len(left)} tests are skipped; {Reason.UNTOUCHED}: {Reason.UNTOUCHED.meaning}"
    return f"{test}: runs; {Reason.NEW_TEST}: the manifest does not know it" if "::" in test else ""


def _because(item: Selected) -> str:
    return f"{item.reason}: {item.detail or item.reason.meaning}"


def explain_path(plan: Plan, path: str) -> list[str]:
    """Say in a line each what a changed path led to; empty where it did not change."""
    return [
        f"{path}: {_leads(cause)}; {cause.reason}: {cause.detail or cause.reason.meaning}"
        for cause in plan.causes
        if cause.path == path
    ]


def _leads(cause: Cause) -> str:
    if cause.reason.scope is Scope.EVERYTHING:
        return "everything runs"
    return f"{cause.tests} tests run" if cause.reason.scope is Scope.TESTS else "nothing runs"


def list_tests(tests: Sequence[Selected]) -> Iterable[str]:
    """List selected entries for a terminal."""
    for item in tests[:SHOWN]:
        yield f"  {item.id}  ({item.reason}: {item.detail})"
    if len(tests) > SHOWN:
        yield f"  and {len(tests) - SHOWN} more (--format json lists all)"
