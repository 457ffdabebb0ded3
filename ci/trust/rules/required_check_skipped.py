"""A required check is satisfied by a job that an `if` skips.

The service counts a skipped job as success. Names of required checks come from
the policy, as the repository's settings have them.
"""

from __future__ import annotations

from collections.abc import Iterator

from ci.trust.cells import Audit, Cell, Finding
from ci.trust.conditions import Cause
from ci.trust.rules.base import at_cell, rule
from ci.trust.trust import Severity, State

ID = "required-check-skipped"
PULLS = ("fork-pr:opened", "fork-pr:synchronize", "internal-pr:opened", "dependabot-pr:opened", "merge-group")


def check(audit: Audit) -> Iterator[Finding]:
    """Find required checks whose job an event starts and a condition skips."""
    for cell in audit.cells:
        skipped = cell.state is State.SKIPPED and cell.cause in (Cause.CONDITION, Cause.NEEDS)
        maybe = cell.state is State.MAYBE
        if (
            cell.row.id in PULLS
            and (skipped or maybe)
            and any(is_check(cell, name) for name in audit.policy.required_checks)
        ):
            yield at_cell(
                cell,
                rule=ID,
                severity=Severity.FAIL,
                message=f"{cell.row.label}: the required check is {'skipped' if skipped else 'perhaps skipped'}, "
                f"which counts as success ({cell.why})",
                fix="let the required job always run and decide inside: if: always(), fail unless its needs succeeded",
            )


def is_check(cell: Cell, name: str) -> bool:
    """Tell whether a required check's name is a cell's: its job's id or name, or `workflow / job`."""
    plain = cell.name.partition(" (")[0]
    shown = cell.job.name.text if cell.job.name is not None else cell.job.id
    names = {cell.name, plain, shown, f"{cell.workflow.name} / {cell.name}", f"{cell.workflow.name} / {shown}"}
    prefix = cell.name.rpartition(" / ")[0]
    return name in names or name == f"{prefix} / {shown}"


RULE = rule(__doc__, id=ID, severity=Severity.FAIL, check=check)
