"""An event that anybody can cause starts a job on a machine of our own.

The code is ours, but an outsider decides when and how often the machine works,
and hands it a payload. Where the files do not tell the machine it only warns.
"""

from __future__ import annotations

from collections.abc import Iterator

from ci.trust.cells import Audit, Finding
from ci.trust.rules.base import at_cell, machine, rule
from ci.trust.trust import Kind, Severity, Trust

ID = "outsider-on-self-hosted"


def check(audit: Audit) -> Iterator[Finding]:
    """Find outsiders' events that reach an exposed machine with code that is not theirs."""
    for cell in audit.reachable():
        if cell.row.outsider and cell.code is not Trust.UNTRUSTED and cell.runner.kind.exposed:
            known = cell.runner.kind is Kind.SELF_HOSTED
            yield at_cell(
                cell,
                rule=ID,
                severity=Severity.FAIL if known else Severity.WARN,
                message=f"{cell.row.label}: anybody can start this job on {machine(cell)} ({cell.why})",
                fix="ask who causes it (for a comment its author_association), or use a hosted machine",
            )


RULE = rule(__doc__, id=ID, severity=Severity.FAIL, check=check)
