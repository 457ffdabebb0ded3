"""Syntax tree + contexts -> value, three-valued, with a trace of every sub-expression."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ci.trust import functions
from ci.trust.syntax import STATUS_FUNCTIONS, Access, Call, Compare, Literal, Logic, Name, Node, Not
from ci.trust.values import (
    EvaluationError,
    FilteredArray,
    OpenObject,
    Unknown,
    Value,
    equal,
    find,
    less,
    lookup,
    merge,
    options_of,
    taints_of,
    truth,
)


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What an expression can see.

    `contexts` by lower-case name; `status` the value of each status function;
    `trace` receives the value of every node that was evaluated.
    """

    contexts: Mapping[str, Value]
    status: Mapping[str, Value] = field(default_factory=dict)
    trace: dict[int, Value] = field(default_factory=dict)


def evaluate(node: Node | None, scope: Scope) -> Value:
    """Evaluate a tree; an empty one is null. Raises `EvaluationError`."""
    if node is None:
        return None
    value = _evaluate(node, scope)
    scope.trace[id(node)] = value
    return value


def _evaluate(node: Node, scope: Scope) -> Value:
    if isinstance(node, Literal):
        return node.value
    if isinstance(node, Name):
        return scope.contexts.get(node.name.lower())
    if isinstance(node, Access):
        return _access(node, scope)
    if isinstance(node, Not):
        return _negate(evaluate(node.operand, scope))
    if isinstance(node, Logic):
        return _logic(node, scope)
    if isinstance(node, Compare):
        return _compare(node.operator, evaluate(node.left, scope), evaluate(node.right, scope))
    return _call(node, scope)


def _negate(value: Value) -> Value:
    known = truth(value)
    if known is not None:
        return not known
    assert isinstance(value, Unknown)
    return Unknown(reason=value.reason, options=(True, False), taints=value.taints)


def _logic(node: Logic, scope: Scope) -> Value:
    ends_on = node.operator == "||"
    value = evaluate(node.operands[0], scope)
    for operand in node.operands[1:]:
        known = truth(value)
        if known is ends_on:
            return value
        if known is not None:
            value = evaluate(operand, scope)
            continue
        try:
            following = evaluate(operand, scope)
        except EvaluationError as error:
            following = Unknown(reason=str(error))
        assert isinstance(value, Unknown)
        value = _either(value, following, keeps=ends_on)
    return value


def _either(value: Unknown, following: Value, *, keeps: bool) -> Value:
    """Join the part of an unknown that ends a chain with what follows otherwise."""
    if value.options is not None:
        ending: list[Value] = [option for option in value.options if truth(option) is keeps]
    else:
        ending = [replace(value, truthy=True)] if keeps else [""]
    joined = merge([*ending, following], reason=value.reason)
    if isinstance(joined, Unknown):
        return replace(joined, taints=joined.taints | value.taints)
    return joined


def _compare(operator: str, left: Value, right: Value) -> Value:
    if operator == "==":
        return functions.compare_equal(left, right)
    if operator == "!=":
        return _negate(functions.compare_equal(left, right))
    if operator == "<":
        return functions.compare(left, right, less)
    if operator == ">":
        return functions.compare(right, left, less)
    if operator == "<=":
        return functions.compare(left, right, _at_most)
    return functions.compare(right, left, _at_most)


def _at_most(left: Value, right: Value) -> bool:
    return less(left, right) or equal(left, right)


def _access(node: Access, scope: Scope) -> Value:
    target = evaluate(node.target, scope)
    if node.key is None:
        return _wildcard(target)
    key = evaluate(node.key, scope)
    if isinstance(target, Unknown):
        return _inside(target, key)
    if isinstance(key, Unknown):
        listed = options_of(key)
        if listed is None:
            return Unknown(reason=key.reason, taints=taints_of(target) | key.taints)
        return merge([lookup(target, option) for option in listed], reason=key.reason)
    if isinstance(target, FilteredArray):
        found = FilteredArray()
        for item in target:
            if isinstance(item, Unknown):
                found.append(_inside(item, key))
                continue
            inner = find(item, key)
            if inner is not None:
                found.append(inner[0])
        return found
    return lookup(target, key)


def _inside(target: Unknown, key: Value) -> Value:
    if target.options is not None and not isinstance(key, Unknown):
        return merge([lookup(option, key) for option in target.options], reason=target.reason)
    return Unknown(reason=target.reason, taints=target.taints)


def _wildcard(target: Value) -> Value:
    if isinstance(target, Unknown):
        return Unknown(reason=target.reason, taints=target.taints)
    if isinstance(target, OpenObject):
        return Unknown(reason=target.rest.reason, taints=taints_of(target))
    sources = target if isinstance(target, FilteredArray) else [target]
    found = FilteredArray()
    for source in sources:
        if isinstance(source, Unknown):
            found.append(Unknown(reason=source.reason, taints=source.taints))
        elif isinstance(source, list):
            found.extend(source)
        elif isinstance(source, dict):
            found.extend(source.values())
    return found


def _call(node: Call, scope: Scope) -> Value:
    if node.name in STATUS_FUNCTIONS:
        return scope.status.get(node.name, Unknown(reason=f"{node.name}() is not known here", options=(True, False)))
    if node.name == "case":
        return _case(node, scope)
    return functions.call(node.name, [evaluate(argument, scope) for argument in node.arguments])


def _case(node: Call, scope: Scope) -> Value:
    possible: list[Value] = []
    for predicate, result in zip(node.arguments[:-1:2], node.arguments[1::2], strict=True):
        value = evaluate(predicate, scope)
        if not isinstance(value, (bool, Unknown)):
            raise EvaluationError("case predicate must evaluate to a boolean value")
        known = truth(value)
        if known is not False:
            possible.append(evaluate(result, scope))
        if known is True:
            return merge(possible)
    return merge([*possible, evaluate(node.arguments[-1], scope)])


def deciding(node: Node, scope: Scope) -> list[tuple[Node, Value]]:
    """List the smallest sub-expressions that made a tree's value what it is."""
    value = scope.trace.get(id(node))
    outcome = truth(value)
    if isinstance(node, Not):
        return deciding(node.operand, scope)
    if isinstance(node, Logic):
        evaluated = [operand for operand in node.operands if id(operand) in scope.trace]
        ending = node.operator == "||"
        if outcome is ending:
            enders = [operand for operand in evaluated if truth(scope.trace[id(operand)]) is ending]
            return deciding(enders[0] if enders else evaluated[-1], scope)
        unsure = [operand for operand in evaluated if truth(scope.trace[id(operand)]) is outcome]
        return [found for operand in unsure or evaluated for found in deciding(operand, scope)]
    return [(node, value)]
