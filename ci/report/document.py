"""Frozen values <-> JSON documents: the one reader and writer of `report.json`."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from functools import lru_cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from ci.errors import ReportError, UsageError
from ci.report.model import SCHEMA, RunReport
from ci.values import Word

T = TypeVar("T")


def render_document(report: RunReport) -> dict[str, Any]:
    """Give the report as JSON values; totals and verdict are written beside the results for other readers."""
    values = asdict(report, dict_factory=_plain)
    head = {
        "schema": SCHEMA,
        "stage": values.pop("stage"),
        "green": report.is_green,
        "complete": report.is_complete,
        "totals": report.totals,
        "executed": report.executed,
        "fingerprint": report.fingerprint,
    }
    return head | values


def parse_document(text: str, *, source: str) -> RunReport:
    """Read a `report.json`; raises `ReportError` naming the place of what is wrong."""
    try:
        values = json.loads(text)
    except ValueError as error:
        raise ReportError(f"{source} is damaged: {error}", hint=REBUILD) from error
    if not isinstance(values, dict) or values.get("schema") != SCHEMA:
        found = values.get("schema") if isinstance(values, dict) else type(values).__name__
        raise ReportError(
            f"{source} has schema {found!r}, expected {SCHEMA!r}", hint="was it written by another version?"
        )
    try:
        return decode(RunReport, values, place="")
    except ValueError as error:
        raise ReportError(f"{source} is damaged: {error}", hint=REBUILD) from error


REBUILD = "`lockgate report build DIR` makes it anew from the event logs beside it"


def decode(kind: type[T], values: object, *, place: str) -> T:
    """Build a frozen value from JSON values by its own annotations; raises `ValueError` naming the place.

    Keys that the value does not have are ignored, so that a reader outlives new fields.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{place or 'the document'} is {_name(values)}, expected an object")  # noqa: TRY004 - one kind
    found: dict[str, Any] = {}
    for name, hint, required in _fields(cast("Any", kind)):
        if name in values:
            found[name] = _decode(hint, values[name], f"{place}.{name}" if place else name)
        elif required:
            raise ValueError(f"{place or 'the document'} has no {name!r}")
    return kind(**found)


@lru_cache(maxsize=64)
def _fields(kind: Any) -> tuple[tuple[str, Any, bool], ...]:
    hints = get_type_hints(kind)
    return tuple(
        (item.name, hints[item.name], item.default is MISSING and item.default_factory is MISSING)
        for item in fields(kind)
    )


def _decode(hint: Any, value: Any, place: str) -> Any:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        return _decode(next(one for one in get_args(hint) if one is not type(None)), value, place)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ValueError(f"{place} is {_name(value)}, expected an array")
        inner = get_args(hint)[0]
        return tuple(_decode(inner, one, f"{place}[{position}]") for position, one in enumerate(value))
    if origin is not None:
        if not isinstance(value, Mapping):
            raise ValueError(f"{place} is {_name(value)}, expected an object")
        inner = get_args(hint)[1]
        return {str(key): _decode(inner, one, f"{place}.{key}") for key, one in value.items()}
    if is_dataclass(hint):
        return decode(cast("type[Any]", hint), value, place=place)
    return _plain_value(hint, value, place)


def _plain_value(hint: Any, value: Any, place: str) -> Any:
    if issubclass(hint, Word):
        try:
            return hint.parse(value, what=place)
        except UsageError as error:
            raise ValueError(error.message) from error
    allowed = (int, float) if hint is float else (hint,)
    if not isinstance(value, allowed) or (isinstance(value, bool) and hint is not bool):
        raise ValueError(f"{place} is {_name(value)}, expected {hint.__name__}")
    return hint(value)


def _plain(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value.value if isinstance(value, Word) else value for name, value in items}


def _name(value: object) -> str:
    return "null" if value is None else type(value).__name__
