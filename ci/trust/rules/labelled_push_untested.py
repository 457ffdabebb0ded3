"""A label starts a job once; later pushes to the pull request are not tested, and the label stays.

The green mark of the first commit then stands beside code that nothing ran. A
job that takes the label away on `synchronize` settles it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ci.trust.cells import Audit, Cell, Finding
from ci.trust.rows import OTHER_LABEL
from ci.trust.rules.base import at_cell, rule
from ci.trust.trust import Severity, State

ID = "labelled-push-untested"
REMOVES = re.compile(
    r"--remove-label|removeLabel|removeAllLabels|DELETE\b.*/labels|/labels/.*\bDELETE|remove-label", re.IGNORECASE
)


def check(audit: Audit) -> Iterator[Finding]:
    """Find jobs that a label starts and a later push does not, where nothing drops the label."""
    cells = {(cell.workflow.path, cell.name, cell.row.id): cell for cell in audit.cells}
    reachable = audit.reachable()
    dropped = {cell.row.id for cell in reachable if cell.row.id.startswith("internal-pr:synchronize") and _drops(cell)}
    for cell in reachable:
        prefix, equals, label = cell.row.id.partition("=")
        if prefix != "internal-pr:labeled" or not equals or label == OTHER_LABEL:
            continue
        later = f"internal-pr:synchronize+label={label}"
        pushed = cells.get((cell.workflow.path, cell.name, later)) or cells.get(
            (cell.workflow.path, cell.name.partition(" (")[0], later)
        )
        unlabelled = cells.get((cell.workflow.path, cell.name, f"internal-pr:labeled={OTHER_LABEL}"))
        by_label = unlabelled is None or unlabelled.state is State.SKIPPED
        if by_label and (pushed is None or pushed.state is State.SKIPPED) and later not in dropped:
            yield at_cell(
                cell,
                rule=ID,
                severity=Severity.WARN,
                message=f"the label {label} starts this job once; a later push is not tested and the label stays",
                fix=f"drop {label} on `synchronize` from a hosted job, so that every push needs it anew",
                line=cell.job.line,
            )


def _drops(cell: Cell) -> bool:
    for view in cell.views:
        texts = [view.step.run, *view.step.inputs.values()]
        if REMOVES.search(view.action) or any(
            text is not None and REMOVES.search(text.text.replace("\n", " ")) for text in texts
        ):
            return True
    return False


RULE = rule(__doc__, id=ID, severity=Severity.WARN, check=check)
