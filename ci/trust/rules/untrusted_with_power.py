"""Code that an outsider wrote runs beside secrets or a token that writes.

Permissions that are not declared count as the repository's default, which is
`write` unless the policy attests `default_token = "read"`. A job that names no
secret and whose token only reads has no power to lose: it warns.
"""

from __future__ import annotations

from collections.abc import Iterator

from ci.trust.cells import Audit, Finding
from ci.trust.power import names_secrets, writes
from ci.trust.rules.base import at_cell, rule
from ci.trust.trust import Severity, Trust

ID = "untrusted-with-power"


def check(audit: Audit) -> Iterator[Finding]:
    """Find reachable cells with a fork's code and power."""
    for cell in audit.reachable():
        if cell.code is not Trust.UNTRUSTED or not (cell.secrets or writes(cell.token)):
            continue
        named = names_secrets(cell.owner, cell.job) if cell.secrets else []
        power = [f"the secret {name}" if name != "*" else "all secrets" for name in named]
        power += [
            f"a token that writes {scope}" if scope != "default" else "a token with undeclared permissions"
            for scope in writes(cell.token)
        ]
        what = cell.sources[0].what if cell.sources else "runs a fork's code"
        yield at_cell(
            cell,
            rule=ID,
            severity=Severity.FAIL if power else Severity.WARN,
            message=f"{cell.row.label}: the job {what} beside {', '.join(power) or 'a token that only reads'}",
            fix="run outsiders' code on pull_request only, or declare `permissions` that only read and name no secret",
            line=cell.sources[0].line if cell.sources else 0,
        )


RULE = rule(__doc__, id=ID, severity=Severity.FAIL, check=check)
