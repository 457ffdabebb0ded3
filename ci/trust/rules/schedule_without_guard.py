"""A scheduled job also runs in every fork that enables workflows.

There it has no machine and no secret: it fails every night in other people's
inboxes, or publishes from their copy. Asking for `github.repository` settles it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ci.trust.cells import Audit, Finding
from ci.trust.events import build_rows
from ci.trust.mentions import find_mentions
from ci.trust.payloads import FORK_OWNER, Repo
from ci.trust.rows import Row
from ci.trust.rules.base import at_cell, rule
from ci.trust.simulate import simulate
from ci.trust.trust import Severity
from ci.trust.values import OpenObject

ID = "schedule-without-guard"


def check(audit: Audit) -> Iterator[Finding]:
    """Simulate the schedule as a fork's copy would run it."""
    scheduled = {
        path: one for path, one in audit.folder.workflows.items() if "schedule" in one.triggers and not one.problems
    }
    if not scheduled:
        return
    copy = Repo(full_name=f"{FORK_OWNER}/{audit.repo.name}", default_branch=audit.repo.default_branch)
    rows = [
        _in_fork(row)
        for row in build_rows(copy, find_mentions(audit.folder, copy.default_branch))
        if row.id == "schedule"
    ]
    called = {path: one for path, one in audit.folder.workflows.items() if one.only_called}
    cells, _ = simulate(replace(audit.folder, workflows={**called, **scheduled}), rows, audit.policy)
    seen: set[tuple[str, str]] = set()
    for cell in cells:
        root = cell.name.partition(" (")[0].partition(" / ")[0]
        if cell.state.reachable and (cell.workflow.path, root) not in seen:
            seen.add((cell.workflow.path, root))
            job = cell.workflow.jobs.get(root, cell.job)
            yield replace(
                at_cell(
                    cell,
                    rule=ID,
                    severity=Severity.WARN,
                    message="the scheduled job also runs in forks",
                    fix=f"add if: github.repository == '{audit.repo.full_name}'",
                    line=job.line,
                ),
                job=root,
            )


def _in_fork(row: Row) -> Row:
    """Let the payload say that the repository is a fork."""
    (variant,) = row.variants
    event = variant.github["event"]
    assert isinstance(event, dict)
    repository = event["repository"]
    assert isinstance(repository, OpenObject)
    known = OpenObject({**repository, "fork": True}, rest=repository.rest)
    github = {**variant.github, "event": {**event, "repository": known}}
    return replace(row, variants=(replace(variant, github=github),))


RULE = rule(__doc__, id=ID, severity=Severity.WARN, check=check)
