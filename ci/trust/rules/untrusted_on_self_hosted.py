"""Code that an outsider wrote runs on a machine of our own.

A job that may run counts: what is not known is for the outsider to find out.
A machine that the files do not tell counts as our own unless the policy maps it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ci.trust.cells import Audit, Cell, Finding
from ci.trust.rules.base import at_cell, machine, rule
from ci.trust.trust import Severity, Trust

ID = "untrusted-on-self-hosted"


def check(audit: Audit) -> Iterator[Finding]:
    """Find every reachable cell with a fork's code on an exposed machine."""
    for cell in audit.reachable():
        if cell.code is Trust.UNTRUSTED and cell.runner.kind.exposed:
            yield at_cell(
                cell,
                rule=ID,
                severity=Severity.FAIL,
                message=f"{cell.row.label}: {_code(cell)} on {machine(cell)} ({cell.why})",
                fix="let only internal pull requests pass: "
                "github.event.pull_request.head.repo.full_name == github.repository; else use a hosted machine",
            )


def _code(cell: Cell) -> str:
    low = [source for source in cell.sources if source.trust is Trust.UNTRUSTED]
    return f"it {low[0].what} (line {low[0].line}) and runs" if low else "the fork's code runs"


RULE = rule(__doc__, id=ID, severity=Severity.FAIL, check=check)
