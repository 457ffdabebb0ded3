"""A push cancels a job that publishes, half way.

A publisher's concurrency group should queue: `cancel-in-progress: false`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ci.trust.cells import Audit, Cell, Finding, GroupUse
from ci.trust.power import writes
from ci.trust.rules.base import rule
from ci.trust.trust import Severity
from ci.trust.values import Unknown, options_of, text_of, truth

ID = "publisher-cancelled"
PUBLISHING_SCOPES = frozenset({"contents", "packages", "pages", "actions", "deployments", "attestations"})
PUBLISHES = re.compile(
    r"\btwine\s+upload\b|\bgh\s+release\s+(?:create|upload)\b|\bdocker\s+push\b|\bmanifest\s+publish\b|\bgit\s+push\b"
    r"|\buv\s+publish\b|\bnpm\s+publish\b|\bgh\s+cache\b",
)
ACTIONS = (
    "pypa/gh-action-pypi-publish",
    "actions/deploy-pages",
    "peaceiris/actions-gh-pages",
    "softprops/action-gh-release",
    "actions/cache/save",
)
EVENTS = ("push:default", "schedule", "dispatch:default", "push:tag", "release")


def check(audit: Audit) -> Iterator[Finding]:
    """Find publishers in a group that a later push to the default branch cancels, once for each job."""
    pushes = [use for use in audit.groups if use.row.id == "push:default" and use.cancels is not False]
    seen: set[tuple[str, str]] = set()
    for cell in audit.reachable():
        if cell.row.id not in EVENTS or (cell.workflow.path, cell.name) in seen or not publishes(cell):
            continue
        mine = [
            use
            for use in audit.groups
            if use.workflow is cell.workflow and use.row.id == cell.row.id and use.job in ("", cell.name)
        ]
        for use in mine:
            if any(_same_group(use, push) for push in pushes):
                seen.add((cell.workflow.path, cell.name))
                yield Finding(
                    rule=ID,
                    severity=Severity.WARN,
                    workflow=cell.workflow.path,
                    job=cell.name,
                    event=cell.row.id,
                    line=use.declared.line,
                    message=f"the publisher is in the group {use.declared.group}, "
                    f"which a later push to {audit.repo.default_branch} cancels",
                    fix="set cancel-in-progress: false, or give the publisher a group of its own",
                )
                break


def publishes(cell: Cell) -> bool:
    """Tell whether a job publishes: by what the job itself declares to write, or by what its steps do."""
    if cell.job.permissions is not None and any(scope in PUBLISHING_SCOPES for scope in writes(cell.token)):
        return True
    for view in cell.views:
        if view.action in ACTIONS or (view.step.run is not None and PUBLISHES.search(view.step.run.text)):
            return True
    return False


def _same_group(left: GroupUse, right: GroupUse) -> bool:
    if isinstance(left.group, Unknown) and isinstance(right.group, Unknown) and left.group.options is None:
        return False
    firsts, seconds = options_of(left.group) or (), options_of(right.group) or ()
    texts = {text_of(value) for value in firsts if truth(value)}
    return bool(texts & {text_of(value) for value in seconds})


RULE = rule(__doc__, id=ID, severity=Severity.WARN, check=check)
