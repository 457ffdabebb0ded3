"""Texts with `${{ }}` in them, and the rules for `if:`."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

from ci.trust import expression
from ci.trust.evaluate import Scope, evaluate
from ci.trust.expression import JOB_FUNCTIONS
from ci.trust.functions import concatenate
from ci.trust.syntax import Node, uses_status
from ci.trust.tokens import ExpressionError
from ci.trust.values import Value

JOB_CONTEXTS = frozenset({"github", "inputs", "vars", "needs"})
RUNNER_CONTEXTS = JOB_CONTEXTS | {"strategy", "matrix"}
GROUP_CONTEXTS = frozenset({"github", "inputs", "vars"})
STEP_CONTEXTS = RUNNER_CONTEXTS | {"steps", "job", "runner", "env"}
ANY_CONTEXT = STEP_CONTEXTS | {"secrets", "jobs"}
STEP_FUNCTIONS = JOB_FUNCTIONS | {"hashfiles"}
"""Which names an expression may use, by the place where it stands."""

OPEN = "${{"
QUOTED_OR_END = re.compile(r"'|\}\}")


@dataclass(frozen=True)
class Hole:
    """One `${{ }}` of a text: its expression, parsed, and its source."""

    source: str
    node: Node | None


Part = str | Hole


@lru_cache(maxsize=65536)
def split(
    text: str, contexts: frozenset[str] = ANY_CONTEXT, functions: frozenset[str] = STEP_FUNCTIONS
) -> tuple[Part, ...]:
    """Cut a text into literal pieces and expressions; raises `ExpressionError`."""
    parts: list[Part] = []
    position = 0
    while True:
        start = text.find(OPEN, position)
        if start < 0:
            break
        end = _close(text, start + len(OPEN))
        if end < 0:
            raise ExpressionError("parsing", f"the expression is not closed: {text[start : start + 60]}")
        if start > position:
            parts.append(text[position:start])
        source = text[start + len(OPEN) : end].strip()
        node = expression.parse(source, contexts=contexts, functions=functions)
        if node is None:
            raise ExpressionError("parsing", "An expression was expected")
        parts.append(Hole(source, node))
        position = end + 2
    if position < len(text):
        parts.append(text[position:])
    return tuple(parts)


def _close(text: str, position: int) -> int:
    quoted = False
    for match in QUOTED_OR_END.finditer(text, position):
        if match.group() == "'":
            quoted = not quoted
        elif not quoted:
            return match.start()
    return -1


def evaluate_text(text: str, scope: Scope) -> Value:
    """Evaluate a text: a lone expression keeps its kind, anything else is a string.

    Raises `ExpressionError` and `EvaluationError`.
    """
    if OPEN not in text:
        return text
    parts = split(text)
    if len(parts) == 1 and isinstance(parts[0], Hole):
        return evaluate(parts[0].node, scope)
    return concatenate([part if isinstance(part, str) else evaluate(part.node, scope) for part in parts])


@dataclass(frozen=True, kw_only=True)
class Condition:
    """An `if:`.

    `node` None is the empty condition. `fenced` says that text outside the
    fence makes it a string that is always true. `checks_status` says that a
    status function occurs, so that `success() &&` is not put before it.
    """

    text: str
    line: int
    node: Node | None = None
    source: str = ""
    fenced: bool = False
    checks_status: bool = False


def parse_condition(text: str, *, line: int, contexts: Collection[str], functions: Collection[str]) -> Condition:
    """Parse an `if:`; raises `ExpressionError`."""
    allowed, known = frozenset(contexts), frozenset(functions)
    if OPEN not in text:
        source = text.strip()
        node = expression.parse(source, contexts=allowed, functions=known)
        return Condition(text=text, line=line, node=node, source=source, checks_status=uses_status(node))
    parts = split(text, allowed, known)
    holes = [part for part in parts if isinstance(part, Hole)]
    status = any(uses_status(hole.node) for hole in holes)
    if len(parts) == 1 and holes:
        hole = holes[0]
        return Condition(text=text, line=line, node=hole.node, source=hole.source, checks_status=status)
    return Condition(
        text=text, line=line, node=holes[0].node, source=holes[0].source, fenced=True, checks_status=status
    )
