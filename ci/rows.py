"""A table of TOML -> a frozen dataclass, with every problem listed. Pure.

The default of each field tells the type that its key takes, so a key is
described once, where it is declared.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from ci.errors import UsageError
from ci.values import Word

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

R = TypeVar("R", bound="DataclassInstance")


class CellError(ValueError):
    """One value of a row is not what its key takes."""


def parse_row(row: Mapping[str, Any], start: R, *, place: str, keys: Sequence[str], problems: list[str]) -> R:
    """Give `start` with the row's values; `problems` receives one line per key that is wrong."""
    problems += find_unknown(row, keys, place=place)
    good: dict[str, Any] = {}
    for key in keys:
        if key not in row:
            continue
        try:
            good[key] = parse_cell(row[key], getattr(start, key))
        except (CellError, UsageError) as error:
            problems.append(f"{place}: {key} {error}")
    return replace(start, **good)


def keys_of(kind: type[DataclassInstance], *, without: Sequence[str] = ()) -> tuple[str, ...]:
    """List the field names of a row's dataclass."""
    return tuple(item.name for item in fields(kind) if item.name not in without)


def find_unknown(row: Mapping[str, Any], keys: Sequence[str], *, place: str) -> list[str]:
    """Name every key that a row may not have, with the nearest that it may."""
    found = []
    for key in row:
        if key not in keys:
            close = difflib.get_close_matches(key, keys, n=1)
            meant = f" (did you mean {close[0]!r}?)" if close else ""
            found.append(f"{place}: unknown key {key!r}{meant}; valid keys: {', '.join(keys)}")
    return found


def parse_cell(value: Any, default: Any) -> Any:
    """Check a value against the type of the default; raises `CellError` saying what was expected."""
    for kind, parse in _PARSERS:
        if isinstance(default, kind):
            return parse(value, default)
    raise CellError(f"cannot be set: no rule for {type(default).__name__}")


def describe(value: object) -> str:
    """Say a TOML value in words: `a string ('x')`."""
    names = {str: "a string", bool: "a boolean", int: "a number", float: "a number", list: "an array", dict: "a table"}
    return f"{names.get(type(value), type(value).__name__)} ({value!r})"


def _word(value: Any, default: Word) -> Word:
    return type(default).parse(_string(value, ""), what="value")


def _array(value: Any, _default: object) -> tuple[str, ...]:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise CellError(f"is {describe(value)}, expected an array of strings")


def _boolean(value: Any, _default: object) -> bool:
    if isinstance(value, bool):
        return value
    raise CellError(f"is {describe(value)}, expected true or false")


def _whole(value: Any, _default: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise CellError(f"is {describe(value)}, expected a whole number, 0 or more")


def _duration(value: Any, _default: object) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < float("inf"):
        return float(value)
    raise CellError(f"is {describe(value)}, expected a number above 0")


def _string(value: Any, _default: object) -> str:
    if isinstance(value, str):
        return value
    raise CellError(f"is {describe(value)}, expected a string")


# In this order: a Word is a string as well, and a bool an int.
_PARSERS: tuple[tuple[type, Callable[[Any, Any], Any]], ...] = (
    (Word, _word),
    (tuple, _array),
    (bool, _boolean),
    (int, _whole),
    (float, _duration),
    (str, _string),
)
