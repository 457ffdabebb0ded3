"""A required check never reports on the merge queue, which then waits for ever, or on pull requests.

Looked at when a file listens to `merge_group` or the policy says `merge_queue`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ci.trust.cells import Audit, Finding
from ci.trust.conditions import Cause
from ci.trust.rules.base import rule
from ci.trust.rules.required_check_skipped import is_check
from ci.trust.trust import Severity

ID = "required-check-missing"


def check(audit: Audit) -> Iterator[Finding]:
    """Find required checks that no job reports."""
    queue = audit.policy.merge_queue or any("merge_group" in one.triggers for one in audit.folder.workflows.values())
    for name in audit.policy.required_checks:
        cells = [cell for cell in audit.cells if is_check(cell, name)]
        started = {cell.row.id for cell in cells if cell.cause is not Cause.TRIGGER}
        if not cells:
            yield _finding("", None, None, 0, f"the required check {name!r} is no job of any workflow")
        elif queue and "merge-group" not in started:
            cell = cells[0]
            yield _finding(
                cell.workflow.path,
                cell.name,
                "merge-group",
                cell.job.line,
                f"the required check {name!r} never reports on merge_group",
            )


def _finding(workflow: str, job: str | None, event: str | None, line: int, message: str) -> Finding:
    return Finding(
        rule=ID,
        severity=Severity.FAIL,
        workflow=workflow,
        job=job,
        event=event,
        line=line,
        message=message,
        fix="start the check's workflow on merge_group too, and let it decide again there",
    )


RULE = rule(__doc__, id=ID, severity=Severity.FAIL, check=check)
