"""A trusted job takes an artifact that a less trusted run made.

What a fork's run uploads is the fork's: a path, a number or a program alike.
"""

from __future__ import annotations

from collections.abc import Iterator

from ci.trust.cells import Audit, Finding
from ci.trust.rules.base import at_cell, rule
from ci.trust.trust import Severity, Trust

ID = "artifact-from-lower-trust"


def check(audit: Audit) -> Iterator[Finding]:
    """Find downloads of an outsider's run's artifact."""
    for cell in audit.reachable():
        for source in cell.sources:
            if source.artifact and source.trust is Trust.UNTRUSTED:
                yield at_cell(
                    cell,
                    rule=ID,
                    severity=Severity.FAIL,
                    message=f"{cell.row.label}: the job {source.what}; a fork wrote it",
                    fix="ask for github.event.workflow_run.head_repository.full_name == github.repository "
                    "and for github.event.workflow_run.event == 'push'",
                    line=source.line if source.path == cell.owner.path else 0,
                )
                break


RULE = rule(__doc__, id=ID, severity=Severity.FAIL, check=check)
