"""Values of the workflow expression language, and how they turn into one another.

A value is `None`, `bool`, `float`, `str`, a `list`, a `dict` or `Unknown`.
Arrays and objects are equal only to the same instance, as in the original.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, Union

Value: TypeAlias = Union[bool, float, str, "list[Value]", "dict[str, Value]", "Unknown", None]

ATTACKER = "attacker"
PR_HEAD = "pr-head"
RUN_ARTIFACT = "run-artifact"
OUTPUT = "output"
UNIQUE = "unique"
CHOSEN = "chosen"
"""What a value that is not known may carry: a stranger's text, a pull request's
head, something read from a run's artifact, a step's or job's output, a value no
other run shares, a value that the person who starts the run chooses."""

MAX_OPTIONS = 64


@dataclass(frozen=True, kw_only=True)
class Unknown:
    """A value that the files alone do not tell.

    `options` lists every value it can take (None: open); `never` lists strings
    that it cannot equal; `truthy` says that it is certainly not empty; `parts`
    are the pieces of a text put together from known and unknown ones.
    """

    reason: str
    options: tuple[Value, ...] | None = None
    never: tuple[str, ...] = ()
    truthy: bool = False
    parts: tuple[Value, ...] = ()
    taints: frozenset[str] = field(default_factory=frozenset)


class OpenObject(dict[str, "Value"]):
    """An object of which only some keys are modelled: the others are unknown, not null."""

    def __init__(self, items: Mapping[str, Value], *, rest: Unknown) -> None:
        """Take the known keys and what any other key gives."""
        super().__init__(items)
        self.rest = rest


class FilteredArray(list["Value"]):
    """What `.*` gives: a later access maps over it and drops items without the key."""


class EvaluationError(Exception):
    """The expression fails when it is evaluated, and the job or workflow with it."""


DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
BLANKS = " \t\r\n\v\f\u0085\u00a0\ufeff"


def to_number(text: str) -> float:
    """Turn a string into a number; NaN when it is none."""
    text = text.strip(BLANKS)
    if not text:
        return 0.0
    if DECIMAL.fullmatch(text):
        return float(text)
    if re.fullmatch(r"0x[0-9a-fA-F]+", text):
        return _bounded(int(text, 16))
    if re.fullmatch(r"0o[0-7]+", text):
        return _bounded(int(text, 8))
    signs = {"Infinity": math.inf, "+Infinity": math.inf, "-Infinity": -math.inf}
    return signs.get(text, math.nan)


def _bounded(number: int) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


def number_text(number: float) -> str:
    """Give a number's string form: up to 15 digits, whole numbers without a point."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0:
        return "0"
    mantissa, _, exponent = f"{number:.15g}".partition("e")
    if not exponent:
        return mantissa
    sign, digits = exponent[0], exponent[1:].lstrip("0")
    return f"{mantissa}E{sign}{digits.zfill(2)}"


def text_of(value: Value) -> str:
    """Turn a known value into a string (`Array` and `Object` for containers)."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return number_text(float(value))
    return "Array" if isinstance(value, list) else "Object"


def number_of(value: Value) -> float:
    """Turn a known value into a number; NaN for containers."""
    if value is None:
        return 0.0
    if isinstance(value, (bool, int, float)):
        return float(value)
    return to_number(value) if isinstance(value, str) else math.nan


def truth(value: Value) -> bool | None:
    """Tell whether a value is truthy; None when that is not known."""
    if isinstance(value, Unknown):
        if value.truthy:
            return True
        if value.options is None:
            return None
        found = {truth(option) for option in value.options}
        return found.pop() if len(found) == 1 else None
    if value is None or value == "" or value is False:
        return False
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return not (value == 0 or math.isnan(value))
    return True


def fold(text: str) -> str:
    """Fold case as an ordinal comparison does: one character to one, never into ASCII from outside."""
    if text.isascii():
        return text.upper()
    return "".join(_fold(character) for character in text)


def _fold(character: str) -> str:
    upper = character.upper()
    return upper if len(upper) == 1 and (character.isascii() or not upper.isascii()) else character


def kind(value: Value) -> str:
    """Name the kind of a known value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    return "number" if isinstance(value, (int, float)) else "container"


def pair(left: Value, right: Value) -> tuple[Value, Value] | None:
    """Coerce two known values to one kind; None when they stay different."""
    kinds = {kind(left), kind(right)}
    if len(kinds) == 1:
        return left, right
    if "container" in kinds:
        return None
    return number_of(left), number_of(right)


def equal(left: Value, right: Value) -> bool:
    """Compare two known values with `==`."""
    same = pair(left, right)
    if same is None:
        return False
    left, right = same
    if isinstance(left, str) and isinstance(right, str):
        return fold(left) == fold(right)
    if isinstance(left, (list, dict)):
        return left is right
    return left == right


def less(left: Value, right: Value) -> bool:
    """Compare two known values with `<`; false when they cannot be ordered."""
    same = pair(left, right)
    if same is None or isinstance(same[0], (list, dict)):
        return False
    first, second = same
    if isinstance(first, str) and isinstance(second, str):
        return utf16(fold(first)) < utf16(fold(second))
    return number_of(first) < number_of(second)


def utf16(text: str) -> bytes:
    """Give the code units by which the original orders strings."""
    return text.encode("utf-16-be", "surrogatepass")


def lookup(container: Value, key: Value) -> Value:
    """Index a known container by a known key; a missing key is null, at any depth."""
    found = find(container, key)
    return found[0] if found else None


def find(container: Value, key: Value) -> tuple[Value] | None:
    """Index a container, telling a missing key from a null value."""
    if isinstance(container, list):
        number = number_of(key)
        if math.isnan(number) or math.isinf(number) or number < 0 or number >= len(container):
            return None
        return (container[math.floor(number)],)
    if isinstance(container, dict) and not isinstance(key, (list, dict)):
        name = text_of(key)
        if name in container:
            return (container[name],)
        folded = fold(name)
        for candidate, value in container.items():
            if fold(candidate) == folded:
                return (value,)
        if isinstance(container, OpenObject):
            return (container.rest,)
    return None


def options_of(value: Value) -> tuple[Value, ...] | None:
    """List the values that a value can take; None when that is open."""
    return value.options if isinstance(value, Unknown) else (value,)


def taints_of(value: Value) -> frozenset[str]:
    """Collect the taints of a value and of everything inside it."""
    return frozenset().union(*(unknown.taints for unknown in unknowns(value)))


def unknowns(value: Value) -> Iterator[Unknown]:
    """Walk over every unknown inside a value."""
    stack: list[Value] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, Unknown):
            yield item
        elif isinstance(item, dict):
            stack.extend(item.values())
            if isinstance(item, OpenObject):
                stack.append(item.rest)
        elif isinstance(item, list):
            stack.extend(item)


def merge(values: Sequence[Value], *, reason: str = "") -> Value:
    """Give the value that may be any of `values`; a single one stays itself."""
    options: list[Value] = []
    closed = True
    for value in values:
        listed = options_of(value)
        closed = closed and listed is not None
        for option in listed or ():
            if not any(same(option, known) for known in options):
                options.append(option)
    closed = closed and len(options) <= MAX_OPTIONS
    if closed and len(options) == 1:
        return options[0]
    inner = [value for value in values if isinstance(value, Unknown)]
    return Unknown(
        reason=reason or next((value.reason for value in inner), "several values"),
        options=tuple(options) if closed else None,
        truthy=all(truth(value) is True for value in values),
        taints=frozenset().union(*(taints_of(value) for value in values)),
    )


def same(left: Value, right: Value) -> bool:
    """Tell whether two known values are one and the same (case and kind included)."""
    if isinstance(left, (list, dict)) or isinstance(right, (list, dict)):
        return left is right
    return type(left) is type(right) and left == right
