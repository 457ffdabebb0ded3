"""A dependency bot's pull request reaches a machine of our own.

Its branch is in the repository, so guards that ask for the head repository let
it pass, with a new release of somebody else's code. The policy can allow it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ci.trust.cells import Audit, Finding
from ci.trust.rules.base import at_cell, machine, rule
from ci.trust.trust import Severity, Trust

ID = "dependabot-on-self-hosted"


def check(audit: Audit) -> Iterator[Finding]:
    """Find cells where a dependency bot's code reaches an exposed machine."""
    if audit.policy.dependabot_on_self_hosted:
        return
    for cell in audit.reachable():
        if cell.code is Trust.DEPENDENCY_BOT and cell.runner.kind.exposed:
            yield at_cell(
                cell,
                rule=ID,
                severity=Severity.FAIL,
                message=f"{cell.row.label}: an unreviewed update runs on {machine(cell)} ({cell.why})",
                fix="add github.event.pull_request.user.login != 'dependabot[bot]', "
                "or allow it: dependabot_on_self_hosted = true",
            )


RULE = rule(__doc__, id=ID, severity=Severity.FAIL, check=check)
