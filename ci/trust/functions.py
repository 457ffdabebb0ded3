"""The functions of the expression language, over known and unknown values."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ci.trust.values import (
    MAX_OPTIONS,
    EvaluationError,
    Unknown,
    Value,
    equal,
    fold,
    merge,
    number_text,
    options_of,
    taints_of,
    text_of,
    truth,
    unknowns,
)

MAX_TEXT = (1 << 20) // 2
"""Characters that a call's texts may hold together; the original bounds its memory to 1 MiB of UTF-16."""


def call(name: str, arguments: Sequence[Value]) -> Value:
    """Apply a pure function; unknown arguments give every value the result can take.

    Raises `EvaluationError` where the original fails.
    """
    if sum(len(argument) for argument in arguments if isinstance(argument, str)) > MAX_TEXT:
        raise EvaluationError("The maximum allowed memory size was exceeded")
    if name == "contains" and isinstance(arguments[0], list):
        return _contains_element(arguments[0], arguments[1])
    if name == "tojson" and any(True for _ in unknowns(arguments[0])):
        return Unknown(reason="JSON of unknown values", truthy=True, taints=taints_of(arguments[0]))
    listed = [options_of(argument) for argument in arguments]
    if all(item is not None for item in listed):
        known = [item for item in listed if item is not None]
        if math.prod(len(item) for item in known) <= MAX_OPTIONS:
            return _each(name, known, arguments)
    return _open(name, arguments)


def _each(name: str, listed: Sequence[Sequence[Value]], arguments: Sequence[Value]) -> Value:
    function = FUNCTIONS[name]
    if all(len(item) == 1 for item in listed):
        return function(*(item[0] for item in listed))
    reason = next(argument.reason for argument in arguments if isinstance(argument, Unknown))
    results: list[Value] = []
    for combination in itertools.product(*listed):
        try:
            results.append(function(*combination))
        except EvaluationError:
            results.append(None)
    value = merge(results, reason=reason)
    taints = frozenset().union(*(taints_of(argument) for argument in arguments))
    return (
        Unknown(reason=reason, options=value.options, truthy=value.truthy, taints=taints)
        if isinstance(value, Unknown)
        else value
    )


def _open(name: str, arguments: Sequence[Value]) -> Value:
    reason = next((item.reason for argument in arguments for item in unknowns(argument)), name)
    taints = frozenset().union(*(taints_of(argument) for argument in arguments))
    if name in ("contains", "startswith", "endswith"):
        return _search(name, arguments, Unknown(reason=reason, options=(True, False), taints=taints))
    if name == "format" and isinstance(arguments[0], str):
        return concatenate(_format_parts(arguments[0], arguments[1:]))
    return Unknown(reason=reason, taints=taints)


def _search(name: str, arguments: Sequence[Value], unsure: Unknown) -> Value:
    subject, wanted = arguments
    if not isinstance(wanted, Unknown) and text_of(wanted) == "":
        return True
    if name == "contains" and isinstance(subject, Unknown) and isinstance(wanted, str):
        if any(isinstance(part, str) and fold(wanted) in fold(part) for part in subject.parts):
            return True
    elif name == "startswith" and isinstance(subject, Unknown) and subject.parts and isinstance(subject.parts[0], str):
        first, text = fold(subject.parts[0]), fold(text_of(wanted)) if not isinstance(wanted, Unknown) else ""
        if text and first.startswith(text):
            return True
        if text and not text.startswith(first):
            return False
    return unsure


def concatenate(parts: Sequence[Value]) -> Value:
    """Join pieces of text; the result is unknown where a piece is."""
    flat: list[Value] = []
    for part in parts:
        pieces = part.parts if isinstance(part, Unknown) and part.parts else (part,)
        for piece in pieces:
            if not isinstance(piece, Unknown) and flat and isinstance(flat[-1], str):
                flat[-1] += text_of(piece)
            else:
                flat.append(piece if isinstance(piece, Unknown) else text_of(piece))
    holes = [piece for piece in flat if isinstance(piece, Unknown)]
    if not holes:
        return _bounded(str(flat[0]) if flat else "")
    if all(hole.options is not None for hole in holes):
        listed = [[text_of(option) for option in options_of(piece) or ()] for piece in flat]
        if math.prod(len(item) for item in listed) <= MAX_OPTIONS:
            texts: list[Value] = ["".join(combination) for combination in itertools.product(*listed)]
            joined = merge(texts, reason=holes[0].reason)
            if isinstance(joined, Unknown):
                return Unknown(
                    reason=joined.reason,
                    options=joined.options,
                    taints=frozenset().union(*(hole.taints for hole in holes)),
                )
            return joined
    return Unknown(
        reason=holes[0].reason,
        parts=tuple(flat) if len(flat) > 1 else (),
        never=holes[0].never if len(flat) == 1 else (),
        truthy=any(truth(piece) is True for piece in flat),
        taints=frozenset().union(*(hole.taints for hole in holes)),
    )


def _contains_element(items: Sequence[Value], wanted: Value) -> Value:
    if isinstance(wanted, Unknown) and wanted.options is not None:
        found_each = merge([_contains_element(items, option) for option in wanted.options], reason=wanted.reason)
        return replace(found_each, taints=wanted.taints) if isinstance(found_each, Unknown) else found_each
    unsure: Unknown | None = None
    for item in items:
        found = compare_equal(item, wanted)
        if found is True:
            return True
        if isinstance(found, Unknown):
            unsure = found
    return unsure or False


def compare_equal(left: Value, right: Value) -> Value:
    """Apply `==`, also to values that are not known."""
    for unknown, other in ((left, right), (right, left)):
        if not isinstance(unknown, Unknown) or isinstance(other, Unknown):
            continue
        if isinstance(other, (str, float)) and fold(text_of(other)) in {fold(word) for word in unknown.never}:
            return False
        if unknown.truthy and (other is None or other == ""):
            return False
        if isinstance(other, str) and unknown.parts and not fits(unknown.parts, other):
            return False
    return compare(left, right, equal)


def compare(left: Value, right: Value, known: Callable[[Value, Value], bool]) -> Value:
    """Apply a comparison to every pair of values that both sides can take."""
    if not isinstance(left, Unknown) and not isinstance(right, Unknown):
        return known(left, right)
    unknown = left if isinstance(left, Unknown) else right
    assert isinstance(unknown, Unknown)
    unsure = Unknown(reason=unknown.reason, options=(True, False), taints=taints_of(left) | taints_of(right))
    firsts, seconds = options_of(left), options_of(right)
    if firsts is None or seconds is None or len(firsts) * len(seconds) > MAX_OPTIONS * MAX_OPTIONS:
        return unsure
    results = {known(first, second) for first in firsts for second in seconds}
    return results.pop() if len(results) == 1 else unsure


def fits(parts: Sequence[Value], text: str) -> bool:
    """Tell whether a text can be what `parts` give, unknown ones standing for anything."""
    first, last, text = parts[0], parts[-1], fold(text)
    if isinstance(first, str) and not text.startswith(fold(first)):
        return False
    if isinstance(last, str) and not text.endswith(fold(last)):
        return False
    position = 0
    for part in parts:
        if isinstance(part, str):
            found = text.find(fold(part), position)
            if found < 0:
                return False
            position = found + len(part)
    return True


def _bounded(text: str) -> str:
    if len(text) > MAX_TEXT:
        raise EvaluationError("The maximum allowed memory size was exceeded")
    return text


def _contains(search: Value, item: Value) -> Value:
    if isinstance(search, list):
        return any(equal(element, item) for element in search)
    if isinstance(search, dict) or isinstance(item, (list, dict)):
        return False
    return fold(text_of(item)) in fold(text_of(search))


def _starts_with(text: Value, start: Value) -> Value:
    if isinstance(text, (list, dict)) or isinstance(start, (list, dict)):
        return False
    return fold(text_of(text)).startswith(fold(text_of(start)))


def _ends_with(text: Value, end: Value) -> Value:
    if isinstance(text, (list, dict)) or isinstance(end, (list, dict)):
        return False
    return fold(text_of(text)).endswith(fold(text_of(end)))


def _format_parts(template: str, arguments: Sequence[Value]) -> list[Value]:
    parts: list[Value] = []
    position = 0
    invalid = EvaluationError(f"The following format string is invalid: {template}")
    while position < len(template):
        character = template[position]
        if template[position : position + 2] in ("{{", "}}"):
            parts.append(character)
            position += 2
        elif character == "{":
            close = template.find("}", position)
            digits = template[position + 1 : close] if close > 0 else ""
            if not (digits.isascii() and digits.isdecimal() and len(digits) < 4):
                raise invalid
            if int(digits) >= len(arguments):
                raise EvaluationError(
                    f"The following format string references more arguments than were supplied: {template}"
                )
            parts.append(arguments[int(digits)])
            position = close + 1
        elif character == "}":
            raise invalid
        else:
            following = min(
                (found for found in (template.find(mark, position) for mark in "{}") if found >= 0),
                default=len(template),
            )
            parts.append(template[position:following])
            position = following
    return parts


def _format(template: Value, *arguments: Value) -> Value:
    size, pieces = 0, []
    for part in _format_parts(text_of(template), arguments):
        pieces.append(text_of(part))
        size += len(pieces[-1])
        if size > MAX_TEXT:
            raise EvaluationError("The maximum allowed memory size was exceeded")
    return "".join(pieces)


def _join(items: Value, separator: Value = ",") -> Value:
    between = "," if isinstance(separator, (list, dict)) else text_of(separator)
    if isinstance(items, list):
        for unknown in unknowns(items):
            return Unknown(reason=unknown.reason, taints=taints_of(items))
        return _bounded(between.join(text_of(item) for item in items))
    return "" if isinstance(items, dict) else text_of(items)


def _to_json(value: Value) -> Value:
    return _bounded(_render_json(value, ""))


def _render_json(value: Value, indent: str) -> str:
    inner = indent + "  "
    if isinstance(value, list):
        rows = [f"{inner}{_render_json(item, inner)}" for item in value]
        return "[\n" + ",\n".join(rows) + f"\n{indent}]" if rows else "[]"
    if isinstance(value, dict):
        rows = [
            f"{inner}{json.dumps(key, ensure_ascii=False)}: {_render_json(item, inner)}" for key, item in value.items()
        ]
        return "{\n" + ",\n".join(rows) + f"\n{indent}}}" if rows else "{}"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return number_text(value)
    return json.dumps(value, ensure_ascii=False)


def _from_json(text: Value) -> Value:
    try:
        return normal_value(json.loads(text_of(text), object_pairs_hook=first_wins))
    except (ValueError, RecursionError) as error:
        raise EvaluationError(f"fromJSON cannot read {text_of(text)[:60]!r}: {error}") from None


def first_wins(pairs: Sequence[tuple[str, Value]]) -> dict[str, Value]:
    """Make an object of JSON pairs: of keys that differ only in case the first one stays."""
    found: dict[str, Value] = {}
    folded: set[str] = set()
    for key, value in pairs:
        if fold(key) not in folded:
            folded.add(fold(key))
            found[key] = value
    return found


def normal_value(value: Value) -> Value:
    """Give numbers their one type."""
    if isinstance(value, list):
        return [normal_value(item) for item in value]
    if isinstance(value, dict):
        return {key: normal_value(item) for key, item in value.items()}
    return number_value(value)


def number_value(value: Any) -> Value:
    """Turn JSON's whole numbers into the language's one kind of number."""
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    plain: Value = value
    return plain


def _hash_files(*_patterns: Value) -> Value:
    return Unknown(reason="hashFiles depends on the checked-out files")


FUNCTIONS: Mapping[str, Callable[..., Value]] = {
    "contains": _contains,
    "startswith": _starts_with,
    "endswith": _ends_with,
    "format": _format,
    "join": _join,
    "tojson": _to_json,
    "fromjson": _from_json,
    "hashfiles": _hash_files,
}
