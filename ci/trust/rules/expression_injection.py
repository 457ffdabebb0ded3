"""An outsider's text is pasted into a script that runs with power or on a machine of our own.

`${{ }}` is replaced before the shell reads the line, so a title can hold a
command. Scripts of github-script count like `run`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ci.trust.cells import Audit, Cell, Finding
from ci.trust.evaluate import evaluate
from ci.trust.model import Text
from ci.trust.power import names_secrets, writes
from ci.trust.rules.base import at_cell, rule
from ci.trust.steps import StepView
from ci.trust.template import Hole, split
from ci.trust.tokens import ExpressionError
from ci.trust.trust import Severity
from ci.trust.values import ATTACKER, EvaluationError, Value, unknowns

ID = "expression-injection"


def check(audit: Audit) -> Iterator[Finding]:
    """Find scripts with attacker text inside, where the job has something to lose."""
    for cell in audit.reachable():
        if not (
            cell.runner.kind.exposed or writes(cell.token) or (cell.secrets and names_secrets(cell.owner, cell.job))
        ):
            continue
        for view in cell.views:
            script = view.step.run or (
                view.step.inputs.get("script") if view.action == "actions/github-script" else None
            )
            for source, line in _injections(view, script):
                yield _finding(cell, view, source, line)


def _finding(cell: Cell, view: StepView, source: str, line: int) -> Finding:
    here = view.path == cell.owner.path
    return at_cell(
        cell,
        rule=ID,
        severity=Severity.FAIL,
        message=f"{cell.row.label}: `${{{{ {source} }}}}` puts an outsider's text into a script"
        + ("" if here else f" of {view.path} (line {line})"),
        fix="give it to the script through `env:` and quote the variable",
        line=line if here else 0,
    )


def _injections(view: StepView, script: Text | None) -> Iterator[tuple[str, int]]:
    if script is None or "${{" not in script.text:
        return
    try:
        parts = split(script.text)
    except ExpressionError:
        return
    offset = 0
    for part in parts:
        if isinstance(part, Hole):
            try:
                value = evaluate(part.node, view.scope)
            except EvaluationError:
                continue
            if is_attacker_text(value):
                at = script.text.find(part.source, offset)
                yield part.source, script.line + script.text.count("\n", 0, max(at, 0))
                offset = max(at, offset)


def is_attacker_text(value: Value) -> bool:
    """Tell whether an outsider can put any text into a value; a closed set of words cannot hold a command."""
    return any(ATTACKER in unknown.taints and unknown.options is None for unknown in unknowns(value))


RULE = rule(__doc__, id=ID, severity=Severity.FAIL, check=check)
