"""Whether a marker expression could select a test that pytest never showed.

`-m` sees only collected tests. A module that skips itself while it is imported,
or a file whose name no pattern matches, takes its tests out of sight; reading
the marker names in the source tells whether such a file could hold one.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Collection, Iterable, Mapping

MARK = re.compile(r"\bmark\.(\w+)")
MOST_NAMES = 12


def find_names(expression: str) -> set[str]:
    """Name the markers that an expression speaks of; none for one that cannot be parsed."""
    try:
        tree = ast.parse(expression.strip() or "True", mode="eval")
    except SyntaxError:
        return set()
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def find_required(expression: str) -> set[str]:
    """Name the markers without which no test can be selected."""
    names = find_names(expression)
    return {name for name in names if not could_select(expression, names - {name})}


def could_select(expression: str, present: Collection[str]) -> bool:
    """Whether some test bearing a subset of the markers `present` satisfies the expression.

    Unsure (an expression that cannot be read, or with very many names) means yes.
    """
    try:
        tree = ast.parse(expression.strip() or "True", mode="eval")
    except SyntaxError:
        return True
    usable = sorted(find_names(expression) & set(present))
    if len(usable) > MOST_NAMES:
        return True
    subsets = itertools.chain.from_iterable(itertools.combinations(usable, size) for size in range(len(usable) + 1))
    return any(_holds(tree.body, set(subset)) for subset in subsets)


def find_unseen(expression: str, sources: Mapping[str, str], *, shown: Iterable[str]) -> list[str]:
    """Find the test files that could hold a selected test though none of their tests was collected.

    `sources` maps each test file to its text, `shown` names the files of which
    pytest collected tests (their marks were evaluated: they hide nothing).
    """
    seen = set(shown)
    return sorted(
        path for path, text in sources.items() if path not in seen and could_select(expression, set(MARK.findall(text)))
    )


def _holds(node: ast.expr, present: Collection[str]) -> bool:
    """Evaluate an expression for a test with exactly these markers."""
    if isinstance(node, ast.BoolOp):
        values = [_holds(value, present) for value in node.values]
        return all(values) if isinstance(node.op, ast.And) else any(values)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not _holds(node.operand, present)
    if isinstance(node, ast.Call):  # pytest's `marker(key=value)`: the arguments may match
        return _holds(node.func, present)
    if isinstance(node, ast.Name):
        return node.id in present
    return bool(getattr(node, "value", True))
