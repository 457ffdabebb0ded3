"""Expression text -> syntax tree, by recursive descent.

Limits are those of the original: 21,000 characters, depth 50. Errors carry
the kind (`lexing`, `parsing`) and the place, in characters from 1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TypeAlias, Union

from ci.trust.values import DECIMAL, Value, to_number

MAX_LENGTH = 21_000
MAX_DEPTH = 50
MAX_GROUPS = 100
"""Nested parentheses cost no depth in the original; ours bounds its own recursion."""

ARGUMENTS: dict[str, tuple[int, int]] = {
    "contains": (2, 2), "startswith": (2, 2), "endswith": (2, 2), "format": (1, 255), "join": (1, 2),
    "tojson": (1, 1), "fromjson": (1, 1), "case": (3, 255), "hashfiles": (1, 255),
    "success": (0, 255), "failure": (0, 255), "always": (0, 0), "cancelled": (0, 0),
}
"""Each function's least and greatest number of arguments."""

PURE_FUNCTIONS = frozenset({"contains", "startswith", "endswith", "format", "join", "tojson", "fromjson", "case"})
STATUS_FUNCTIONS = frozenset({"success", "failure", "always", "cancelled"})


class ExpressionError(Exception):
    """The text is no expression; `kind` is `lexing` or `parsing`."""

    def __init__(self, kind: str, message: str) -> None:
        """Keep the kind beside the message."""
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class Token:
    """One token: its kind (`op`, `name`, `literal`), text, value and place."""

    kind: str
    text: str
    start: int
    end: int
    value: Value = None


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


Node: TypeAlias = Union[Literal, Name, Access, Call, Not, Logic, Compare]

SKIP = re.compile(r"\s+")
OPERATOR = re.compile(r"&&|\|\||==|!=|<=|>=|[()\[\],.*!<>]")
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)
WORD = re.compile(r"[^\s()\[\],.!<>=&|]+")
NUMBER = re.compile(r"[^\s()\[\],!<>=&|]+")
STRING = re.compile(r"'(?:[^']|'')*'")
STRAY = re.compile(r"[^\s()\[\],!<>]*")
CONSTANTS: dict[str, Value] = {"null": None, "true": True, "false": False, "NaN": math.nan, "Infinity": math.inf}
PRECEDENCE = {"||": 1, "&&": 2, "==": 3, "!=": 3, "<": 4, "<=": 4, ">": 4, ">=": 4}


def _unexpected(kind: str, text: str, start: int, source: str) -> ExpressionError:
    return ExpressionError(kind, f"Unexpected symbol: '{text}'. Located at position {start + 1} within expression: {source}")


def tokenize(source: str) -> Iterator[Token]:
    """Cut the text into tokens."""
    position, after_value = 0, False
    while position < len(source):
        blank = SKIP.match(source, position)
        if blank:
            position = blank.end()
            continue
        token = _token(source, position, after_value=after_value)
        after_value = token.kind != "op" or token.text in (")", "]", "*")
        yield token
        if token.text == "." and token.kind == "op":
            # A keyword loses its meaning after a dot.
            blank = SKIP.match(source, token.end)
            start = blank.end() if blank else token.end
            word = WORD.match(source, start)
            if word and word.group() != "*":
                if not IDENTIFIER.fullmatch(word.group()):
                    failed = "lexing" if math.isnan(to_number(word.group())) else "parsing"
                    raise _unexpected(failed, word.group(), start, source)
                token = Token("name", word.group(), start, word.end())
                after_value = True
                yield token
        position = token.end


def _token(source: str, position: int, *, after_value: bool) -> Token:
    character = source[position]
    if character == "'":
        string = STRING.match(source, position)
        if not string:
            raise _unexpected("lexing", source[position:], position, source)
        return Token("literal", string.group(), position, string.end(), string.group()[1:-1].replace("''", "'"))
    if character in "+-" or character.isdecimal() or (character == "." and not after_value):
        word = NUMBER.match(source, position)
        text = word.group() if word else character
        value = to_number(text)
        if math.isnan(value) or text.strip() != text or not (DECIMAL.fullmatch(text) or text[-1:].isalnum()):
            raise _unexpected("lexing", text, position, source)
        return Token("literal", text, position, position + len(text), value)
    operator = OPERATOR.match(source, position)
    if operator:
        return Token("op", operator.group(), position, operator.end())
    if character in "=&|":
        stray = STRAY.match(source, position + 1)
        text = character + (stray.group() if stray else "")
        raise _unexpected("lexing", text, position, source)
    word = WORD.match(source, position)
    text = word.group() if word else character
    if not IDENTIFIER.fullmatch(text):
        raise _unexpected("lexing", text, position, source)
    if text in CONSTANTS:
        return Token("literal", text, position, position + len(text), CONSTANTS[text])
    return Token("name", text, position, position + len(text))


class _Parser:
    """Walks over the tokens once; guards nothing but its position."""

    def __init__(self, source: str, contexts: Collection[str] | None, functions: Collection[str]) -> None:
        self.source = source
        self.contexts = contexts
        self.functions = functions
        self.tokens = tokenize(source)
        self.last: Token | None = None
        self.now: Token | None = next(self.tokens, None)
        self.groups = 0

    def advance(self) -> Token:
        token = self.now
        if token is None:
            text, start = (self.last.text, self.last.start) if self.last else ("", 0)
            place = f"Located at position {start + 1} within expression: {self.source}"
            raise ExpressionError("parsing", f"Unexpected end of expression: '{text}'. {place}")
        self.last, self.now = token, next(self.tokens, None)
        return token

    def at(self, *operators: str) -> bool:
        return self.now is not None and self.now.kind == "op" and self.now.text in operators

    def fail(self, token: Token) -> ExpressionError:
        return _unexpected("parsing", token.text, token.start, self.source)

    def expect(self, operator: str) -> Token:
        token = self.advance()
        if token.kind != "op" or token.text != operator:
            raise self.fail(token)
        return token

    def binary(self, least: int) -> tuple[Node, int]:
        left, depth = self.unary()
        while self.now is not None and self.now.kind == "op" and PRECEDENCE.get(self.now.text, 0) >= least:
            operator = self.advance().text
            right, right_depth = self.binary(PRECEDENCE[operator] + 1)
            start, end = left.start, right.end
            if operator in ("&&", "||"):
                chain = isinstance(left, Logic) and left.operator == operator and left.start == self.open_start(left)
                if chain and isinstance(left, Logic):
                    left = Logic(start, end, operator, (*left.operands, right))
                    depth = max(depth, self.check(right_depth + 1))
                    continue
                left = Logic(start, end, operator, (left, right))
            else:
                left = Compare(start, end, operator, left, right)
            depth = self.check(max(depth, right_depth) + 1)
        return left, depth

    @staticmethod
    def open_start(node: Logic) -> int:
        # A parenthesized chain is wider than its first operand and stays nested.
        return node.operands[0].start

    def check(self, depth: int) -> int:
        if depth > MAX_DEPTH:
            raise ExpressionError("parsing", f"Exceeded max expression depth {MAX_DEPTH}")
        return depth

    def unary(self) -> tuple[Node, int]:
        starts = []
        while self.at("!"):
            starts.append(self.advance().start)
        node, depth = self.postfix()
        for start in reversed(starts):
            node, depth = Not(start, node.end, node), self.check(depth + 1)
        return node, depth

    def postfix(self) -> tuple[Node, int]:
        node, depth = self.primary()
        while self.at(".", "["):
            opener = self.advance()
            key: Node | None = None
            if self.at("*"):
                end = self.advance().end
                key_depth = 1
            elif opener.text == ".":
                token = self.advance()
                if token.kind != "name":
                    raise self.fail(token)
                key, key_depth, end = Literal(token.start, token.end, token.text), 1, token.end
            else:
                key, key_depth = self.group()
                end = key.end
            if opener.text == "[":
                end = self.expect("]").end
            node, depth = Access(node.start, end, node, key), self.check(max(depth, key_depth) + 1)
        return node, depth

    def group(self) -> tuple[Node, int]:
        self.groups += 1
        if self.groups > MAX_GROUPS:
            raise ExpressionError("parsing", f"Exceeded max expression depth {MAX_DEPTH}")
        found = self.binary(1)
        self.groups -= 1
        return found

    def primary(self) -> tuple[Node, int]:
        token = self.advance()
        if token.kind == "literal":
            return Literal(token.start, token.end, token.value), 1
        if token.kind == "op":
            if token.text != "(":
                raise self.fail(token)
            node, depth = self.group()
            end = self.expect(")").end
            return _widen(node, token.start, end), depth
        if self.at("("):
            return self.call(token)
        if self.contexts is not None and token.text.lower() not in self.contexts:
            place = f"Located at position {token.start + 1} within expression: {self.source}"
            raise ExpressionError("parsing", f"Unrecognized named-value: '{token.text}'. {place}")
        return Name(token.start, token.end, token.text), 1

    def call(self, token: Token) -> tuple[Node, int]:
        name = token.text.lower()
        place = f"'{token.text}'. Located at position {token.start + 1} within expression: {self.source}"
        if name not in self.functions:
            raise ExpressionError("parsing", f"Unrecognized function: {place}")
        self.expect("(")
        arguments: list[Node] = []
        deepest = 0
        while not self.at(")"):
            if arguments:
                self.expect(",")
            node, depth = self.group()
            deepest = max(deepest, depth)
            arguments.append(node)
        end = self.expect(")").end
        least, most = ARGUMENTS[name]
        if len(arguments) < least:
            raise ExpressionError("parsing", f"Too few parameters supplied: {place}")
        if len(arguments) > most:
            raise ExpressionError("parsing", f"Too many parameters supplied: {place}")
        if name == "case" and len(arguments) % 2 == 0:
            raise ExpressionError("parsing", f"Even number of parameters supplied, requires an odd number of parameters: {place}")
        return Call(token.start, end, name, tuple(arguments)), self.check(deepest + 1)


def _widen(node: Node, start: int, end: int) -> Node:
    """Let a node's text include its parentheses."""
    values = {**node.__dict__, "start": start, "end": end}
    return type(node)(**values)


def parse(
    source: str, *, contexts: Collection[str] | None = None, functions: Collection[str] = PURE_FUNCTIONS
) -> Node | None:
    """Parse an expression; None for an empty one.

    `contexts` (lower case) are the names that may be used, None for any.
    Raises `ExpressionError`.
    """
    if len(source) > MAX_LENGTH:
        raise ExpressionError("parsing", f"Exceeded max expression length {MAX_LENGTH}")
    parser = _Parser(source, contexts, functions)
    if parser.now is None:
        return None
    node, _ = parser.group()
    if parser.now is not None:
        raise parser.fail(parser.now)
    return node


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
