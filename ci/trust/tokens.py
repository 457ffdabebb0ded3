"""Expression text -> tokens; errors carry their kind and place, in characters from 1."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ci.trust.values import DECIMAL, Value, to_number


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


SKIP = re.compile(r"\s+")
OPERATOR = re.compile(r"&&|\|\||==|!=|<=|>=|[()\[\],.*!<>]")
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)
WORD = re.compile(r"[^\s()\[\],.!<>=&|]+")
NUMBER = re.compile(r"[^\s()\[\],!<>=&|]+")
STRING = re.compile(r"'(?:[^']|'')*'")
STRAY = re.compile(r"[^\s()\[\],!<>]*")
CONSTANTS: dict[str, Value] = {"null": None, "true": True, "false": False, "NaN": math.nan, "Infinity": math.inf}


def unexpected(kind: str, text: str, start: int, source: str) -> ExpressionError:
    """Make the error for a text that cannot stand where it stands."""
    return ExpressionError(
        kind, f"Unexpected symbol: '{text}'. Located at position {start + 1} within expression: {source}"
    )


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
                    raise unexpected(failed, word.group(), start, source)
                token = Token("name", word.group(), start, word.end())
                after_value = True
                yield token
        position = token.end


def _token(source: str, position: int, *, after_value: bool) -> Token:
    character = source[position]
    if character == "'":
        string = STRING.match(source, position)
        if not string:
            raise unexpected("lexing", source[position:], position, source)
        return Token("literal", string.group(), position, string.end(), string.group()[1:-1].replace("''", "'"))
    if character in "+-" or character.isdecimal() or (character == "." and not after_value):
        word = NUMBER.match(source, position)
        text = word.group() if word else character
        value = to_number(text)
        if math.isnan(value) or text.strip() != text or not (DECIMAL.fullmatch(text) or text[-1:].isalnum()):
            raise unexpected("lexing", text, position, source)
        return Token("literal", text, position, position + len(text), value)
    operator = OPERATOR.match(source, position)
    if operator:
        return Token("op", operator.group(), position, operator.end())
    if character in "=&|":
        stray = STRAY.match(source, position + 1)
        text = character + (stray.group() if stray else "")
        raise unexpected("lexing", text, position, source)
    word = WORD.match(source, position)
    text = word.group() if word else character
    if not IDENTIFIER.fullmatch(text):
        raise unexpected("lexing", text, position, source)
    if text in CONSTANTS:
        return Token("literal", text, position, position + len(text), CONSTANTS[text])
    return Token("name", text, position, position + len(text))
