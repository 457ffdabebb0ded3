"""`strategy.matrix` -> its combinations, as the service expands them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from ci.trust.document import Items, Node, Scalar, Table, node_text
from ci.trust.evaluate import Scope
from ci.trust.template import evaluate_text
from ci.trust.values import EvaluationError, Unknown, Value, equal, text_of

MAX_JOBS = 256
"""Jobs that one matrix may make; the service refuses more."""
MAX_PRODUCT = 20_000
"""Combinations before `exclude`; a bound of ours."""


@dataclass(frozen=True, kw_only=True)
class Combination:
    """One job of a matrix: the `matrix` context and the words in its name's parentheses."""

    values: Value
    words: tuple[str, ...] = ()


SINGLE = Combination(values=None)


def expand_matrix(node: Node, scope: Scope) -> list[Combination]:
    """Expand a matrix; a part that is not known gives one combination with unknown values.

    Raises `EvaluationError` where the service fails the job.
    """
    if isinstance(node, Scalar):
        whole = evaluate_text(node_text(node), scope)
        if isinstance(whole, Unknown):
            return [Combination(values=Unknown(reason=whole.reason, taints=whole.taints))]
        if not isinstance(whole, dict):
            raise EvaluationError("the matrix is no mapping")
        table = dict(whole)
    elif isinstance(node, Table):
        table = {key: _value(item, scope) for key, item in node.entries.items()}
    else:
        raise EvaluationError("the matrix is a list, expected a mapping")
    include, exclude = table.pop("include", []), table.pop("exclude", [])
    vectors: dict[str, Value] = {
        key: item if isinstance(item, (list, Unknown)) else [item] for key, item in table.items()
    }
    combinations = _product(vectors)
    if isinstance(exclude, list):
        combinations = [row for row in combinations if not any(_excluded(row, one) for one in exclude)]
    if isinstance(include, list):
        combinations = _include(combinations, include, tuple(vectors))
    if len(combinations) > MAX_JOBS:
        raise EvaluationError(f"the matrix makes {len(combinations)} jobs, at most {MAX_JOBS} are allowed")
    found = [Combination(values=row, words=_words(row)) for row in combinations]
    if isinstance(include, Unknown):
        found.append(Combination(values=Unknown(reason=include.reason, taints=include.taints)))
    return found


def _value(node: Node, scope: Scope) -> Value:
    if isinstance(node, Scalar):
        return evaluate_text(node_text(node), scope) if isinstance(node.value, str) else node.value
    if isinstance(node, Items):
        return [_value(item, scope) for item in node.items]
    return {key: _value(item, scope) for key, item in node.entries.items()}


def _product(vectors: dict[str, Value]) -> list[dict[str, Value]]:
    if not vectors:
        return []
    listed: list[Sequence[Value]] = [item if isinstance(item, list) else [item] for item in vectors.values()]
    if math.prod(len(item) for item in listed) > MAX_PRODUCT:
        raise EvaluationError(f"the matrix has more than {MAX_PRODUCT:,} combinations")
    return [dict(zip(vectors, row, strict=True)) for row in itertools.product(*listed)]


def _excluded(row: dict[str, Value], rule: Value) -> bool:
    if not isinstance(rule, dict):
        return False
    return all(key in row and _equal_parts(row[key], value) for key, value in rule.items())


def _equal_parts(left: Value, right: Value) -> bool:
    if isinstance(left, Unknown) or isinstance(right, Unknown):
        return False
    if isinstance(left, dict) and isinstance(right, dict):
        return all(key in left and _equal_parts(left[key], value) for key, value in right.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(_equal_parts(one, two) for one, two in zip(left, right, strict=True))
    return equal(left, right)


def _include(rows: list[dict[str, Value]], extra: Sequence[Value], keys: tuple[str, ...]) -> list[dict[str, Value]]:
    merged = [dict(row) for row in rows]
    added: list[dict[str, Value]] = []
    for one in extra:
        if isinstance(one, Unknown):
            added.append({"include": one})
        if not isinstance(one, dict):
            continue
        joined = False
        for original, row in zip(rows, merged, strict=True):
            if all(key not in keys or _equal_parts(original[key], value) for key, value in one.items()):
                row.update(one)
                joined = True
        if not joined:
            added.append(dict(one))
    return merged + added


def _words(row: dict[str, Value]) -> tuple[str, ...]:
    words: list[str] = []
    stack: list[Value] = list(reversed(row.values()))
    while stack:
        item = stack.pop()
        if isinstance(item, Unknown):
            words.append("?")
        elif isinstance(item, dict):
            stack.extend(reversed(item.values()))
        elif isinstance(item, list):
            stack.extend(reversed(item))
        else:
            words.append(text_of(item))
    return tuple(words)
