"""The syntax tree of an expression, and walks over it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from ci.trust.values import Value

STATUS_FUNCTIONS = frozenset({"success", "failure", "always", "cancelled"})


@dataclass(frozen=True, eq=False)
class Literal:
    """A constant."""

    start: int
    end: int
    value: Value


@dataclass(frozen=True, eq=False)
class Name:
    """A context by its name."""

    start: int
    end: int
    name: str


@dataclass(frozen=True, eq=False)
class Access:
    """`target.key`, `target[key]`; `key` None is the wildcard `*`."""

    start: int
    end: int
    target: Node
    key: Node | None


@dataclass(frozen=True, eq=False)
class Call:
    """A function call; `name` is in lower case."""

    start: int
    end: int
    name: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Not:
    """`!operand`."""

    start: int
    end: int
    operand: Node


@dataclass(frozen=True, eq=False)
class Logic:
    """A chain of `&&` or of `||`, flat as in the original."""

    start: int
    end: int
    operator: str
    operands: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Compare:
    """A comparison."""

    start: int
    end: int
    operator: str
    left: Node
    right: Node


Node: TypeAlias = Literal | Name | Access | Call | Not | Logic | Compare


def walk(node: Node | None) -> Iterator[Node]:
    """Walk over a tree, parents first."""
    stack: list[Node] = [node] if node is not None else []
    while stack:
        item = stack.pop()
        yield item
        stack.extend(reversed(children(item)))


def children(node: Node) -> tuple[Node, ...]:
    """List a node's direct parts."""
    if isinstance(node, Access):
        return (node.target,) if node.key is None else (node.target, node.key)
    if isinstance(node, Call):
        return node.arguments
    if isinstance(node, Not):
        return (node.operand,)
    if isinstance(node, Logic):
        return node.operands
    return (node.left, node.right) if isinstance(node, Compare) else ()


def uses_status(node: Node | None) -> bool:
    """Tell whether a status function occurs anywhere in the tree."""
    return any(isinstance(item, Call) and item.name in STATUS_FUNCTIONS for item in walk(node))
