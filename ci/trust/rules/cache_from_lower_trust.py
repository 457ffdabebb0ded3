"""A job with less trusted code saves caches that every other job restores.

Caches of the default branch are read by all. Outsiders' code needs no step for
it: any process of a job may save where the job may. Code that somebody with
write access chose only warns.
"""

from __future__ import annotations

from collections.abc import Iterator

from ci.trust.cells import Audit, Cell, Finding
from ci.trust.rules.base import at_cell, rule
from ci.trust.steps import StepView
from ci.trust.trust import Severity, Trust
from ci.trust.values import text_of, truth

ID = "cache-from-lower-trust"
SAVERS = (
    "actions/cache",
    "actions/cache/save",
    "swatinem/rust-cache",
    "hendrikmuhs/ccache-action",
    "mozilla-actions/sccache-action",
)
SETUPS = ("actions/setup-python", "actions/setup-node", "actions/setup-go", "actions/setup-java", "astral-sh/setup-uv")


def check(audit: Audit) -> Iterator[Finding]:
    """Find cells that can write the default branch's caches with code below it."""
    for cell in audit.reachable():
        if cell.row.cache != "default" or not cell.saves_cache or cell.code.rank >= Trust.TRUSTED.rank:
            continue
        saver = next((view for view in cell.views if saves(view)), None)
        if cell.code is not Trust.UNTRUSTED and saver is None:
            continue
        chosen = cell.code.rank >= Trust.VETTED.rank
        yield at_cell(
            cell,
            rule=ID,
            severity=Severity.WARN if chosen else Severity.FAIL,
            message=f"{cell.row.label}: {cell.code} code {_how(saver)} in the default branch's caches, "
            "which trusted jobs restore",
            fix="set `cache-mode: read` (or none) on the job, or restore only (actions/cache/restore)",
            line=saver.step.line if saver and saver.path == cell.owner.path else _source_line(cell),
        )


def _how(saver: StepView | None) -> str:
    return f"saves with {saver.action}" if saver else "may save"


def _source_line(cell: Cell) -> int:
    return cell.sources[0].line if cell.sources else 0


def saves(view: StepView) -> bool:
    """Tell whether a step saves a cache."""
    if view.action in SAVERS:
        return True
    if view.action in SETUPS:
        wanted = view.input("cache") if view.action != "astral-sh/setup-uv" else view.input("enable-cache")
        return truth(wanted) is not False and text_of_known(wanted) != "false"
    return False


def text_of_known(value: object) -> str:
    """Give a known value's text."""
    return text_of(value) if isinstance(value, (str, bool, float)) else ""


RULE = rule(__doc__, id=ID, severity=Severity.FAIL, check=check)
