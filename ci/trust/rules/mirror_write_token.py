"""A mirrored pull request's code runs with a token that writes.

Somebody looked at the commit before it was mirrored; a token that writes makes
their glance the only defence.
"""

from __future__ import annotations

from collections.abc import Iterator

from ci.trust.cells import Audit, Finding
from ci.trust.power import writes
from ci.trust.rules.base import at_cell, rule
from ci.trust.trust import Severity, Trust

ID = "mirror-write-token"


def check(audit: Audit) -> Iterator[Finding]:
    """Find reachable cells of mirror pushes whose token writes."""
    for cell in audit.reachable():
        if cell.row.id == "mirror:7" and cell.code.rank <= Trust.VETTED.rank and writes(cell.token):
            scopes = ["whatever the default allows" if scope == "default" else scope for scope in writes(cell.token)]
            yield at_cell(
                cell,
                rule=ID,
                severity=Severity.WARN,
                message=f"{cell.row.label}: vetted code runs with a token that writes {', '.join(scopes)}",
                fix="declare `permissions: contents: read` and write from a job that runs no code of the pull request",
                line=cell.job.line,
            )


RULE = rule(__doc__, id=ID, severity=Severity.WARN, check=check)
