"""The service refuses the file: nothing in it runs, no check reports.

A gate that is thought to stand does not.
"""

from __future__ import annotations

from collections.abc import Iterator

from ci.trust.calls import called_workflow
from ci.trust.cells import Audit, Finding
from ci.trust.rules.base import rule
from ci.trust.steps import own_path
from ci.trust.trust import Severity

ID = "invalid-workflow"


def check(audit: Audit) -> Iterator[Finding]:
    """Give every problem of every file, and calls of local files that are not there."""
    for workflow in audit.folder.workflows.values():
        for problem in workflow.problems:
            yield _finding(workflow.path, None, problem.line, problem.message)
        for job in workflow.jobs.values():
            path = own_path(job.uses.text) if job.uses else ""
            if not path:
                continue
            called = called_workflow(job, audit.folder)
            if called is None:
                yield _finding(
                    workflow.path,
                    job.id,
                    job.uses.line if job.uses else job.line,
                    f"it calls {path}, which is not there",
                )
            elif "workflow_call" not in called.triggers and not called.problems:
                yield _finding(
                    workflow.path,
                    job.id,
                    job.uses.line if job.uses else job.line,
                    f"it calls {path}, which has no `on: workflow_call`",
                )
    for action in audit.folder.actions.values():
        for problem in action.problems:
            yield _finding(action.path, None, problem.line, problem.message)


def _finding(path: str, job: str | None, line: int, message: str) -> Finding:
    return Finding(
        rule=ID,
        severity=Severity.FAIL,
        workflow=path,
        job=job,
        event=None,
        line=line,
        message=message,
        fix="correct the line; nothing in the file runs until then",
    )


RULE = rule(__doc__, id=ID, severity=Severity.FAIL, check=check)
