"""Expression text -> syntax tree, by recursive descent.

Limits are those of the original: 21,000 characters, depth 50. Errors carry
the kind (`lexing`, `parsing`) and the place, in characters from 1.
"""

from __future__ import annotations

from collections.abc import Collection

from ci.trust.syntax import STATUS_FUNCTIONS, Access, Call, Compare, Literal, Logic, Name, Node, Not
from ci.trust.tokens import ExpressionError, Token, tokenize, unexpected

MAX_LENGTH = 21_000
MAX_DEPTH = 50
MAX_GROUPS = 100
"""Nested parentheses cost no depth in the original; ours bounds its own recursion."""

ARGUMENTS: dict[str, tuple[int, int]] = {
    "contains": (2, 2),
    "startswith": (2, 2),
    "endswith": (2, 2),
    "format": (1, 255),
    "join": (1, 2),
    "tojson": (1, 1),
    "fromjson": (1, 1),
    "case": (3, 255),
    "hashfiles": (1, 255),
    "success": (0, 255),
    "failure": (0, 255),
    "always": (0, 0),
    "cancelled": (0, 0),
}
"""Each function's least and greatest number of arguments."""

PURE_FUNCTIONS = frozenset({"contains", "startswith", "endswith", "format", "join", "tojson", "fromjson", "case"})
JOB_FUNCTIONS = PURE_FUNCTIONS | STATUS_FUNCTIONS
PRECEDENCE = {"||": 1, "&&": 2, "==": 3, "!=": 3, "<": 4, "<=": 4, ">": 4, ">=": 4}


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
        return unexpected("parsing", token.text, token.start, self.source)

    def end(self) -> None:
        if self.now is not None:
            raise self.fail(self.now)

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
            raise ExpressionError(
                "parsing", f"Even number of parameters supplied, requires an odd number of parameters: {place}"
            )
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
    parser.end()
    return node
