"""A checkout on a machine of our own leaves the job's token in the working copy.

Every later process of the job, and on a machine that is not thrown away also of
later jobs, can read it there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ci.trust.cells import Audit, Finding
from ci.trust.rules.base import at_cell, rule
from ci.trust.trust import Kind, Severity
from ci.trust.values import text_of

ID = "persisted-credentials"


def check(audit: Audit) -> Iterator[Finding]:
    """Find checkouts without `persist-credentials: false` on our own machines, once for each place."""
    seen: set[tuple[str, int]] = set()
    for cell in audit.reachable():
        if cell.runner.kind is not Kind.SELF_HOSTED:
            continue
        for view in cell.views:
            if view.action != "actions/checkout" or (view.path, view.step.line) in seen:
                continue
            given = view.input("persist-credentials")
            if isinstance(given, (str, bool)) and text_of(given).lower() == "false":
                continue
            seen.add((view.path, view.step.line))
            where = "" if view.path == cell.owner.path else f" ({view.path}, line {view.step.line})"
            found = at_cell(
                cell,
                rule=ID,
                severity=Severity.WARN,
                message=f"the checkout leaves the token on {', '.join(cell.runner.labels)}{where}",
                fix="add `persist-credentials: false` under `with:`",
                line=view.step.line if not where else 0,
            )
            yield replace(found, event=None)


RULE = rule(__doc__, id=ID, severity=Severity.WARN, check=check)
