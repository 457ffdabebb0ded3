"""A script turns pytest's exit code 5, no test collected, into success.

A wrong path, a broken marker or a poisoned selection then looks like a green run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ci.trust.cells import Audit, Finding
from ci.trust.rules.base import at_cell, rule
from ci.trust.trust import Severity

ID = "exit-code-five"
TEST = re.compile(r"\bpy\.?test\b", re.IGNORECASE)
FORGIVES = re.compile(
    r"--suppress-no-test-exit-code"
    r"|(?:\$\?|\$\{?[A-Za-z_]*(?:rc|ret|code|status|exit)[A-Za-z_]*\}?)[\"']?\s*(?:-eq|-ne|==|!=|=)\s*[\"']?5\b"
    r"|\bin\s+5\s*\)|\b5\s*\)\s*(?:exit\s+0|true|:)",
    re.IGNORECASE,
)


def check(audit: Audit) -> Iterator[Finding]:
    """Find scripts that run pytest and ask for code 5, once for each place."""
    seen: set[tuple[str, int]] = set()
    for cell in audit.reachable():
        for view in cell.views:
            script = view.step.run
            if script is None or not TEST.search(script.text):
                continue
            for offset, line in enumerate(script.text.splitlines()):
                place = (view.path, script.line + offset)
                if line.lstrip().startswith("#") or place in seen or not FORGIVES.search(line):
                    continue
                seen.add(place)
                found = at_cell(
                    cell,
                    rule=ID,
                    severity=Severity.WARN,
                    message=f"`{line.strip()}` lets a run without tests pass",
                    fix="let code 5 fail; where an empty selection is allowed, say so by name (`may_be_empty`)",
                    line=place[1] if view.path == cell.owner.path else 0,
                )
                yield replace(found, event=None)


RULE = rule(__doc__, id=ID, severity=Severity.WARN, check=check)
