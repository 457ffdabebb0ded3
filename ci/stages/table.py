"""Rows of `pyproject.toml` -> `Settings`. All problems are listed before stopping."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ci.errors import ConfigError, UsageError
from ci.stages.model import Check, Launch, Settings, Stage

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - the same parser under its older name
    import tomli as tomllib

DOCUMENTATION = ("*.md", "*.rst", "docs/**", "LICENSE*", "CHANGELOG*")

DEFAULT_STAGES: tuple[Stage, ...] = (
    Stage(name="cpu_gate", select="cpu", timeout=600, test_timeout=60, documentation=DOCUMENTATION),
    Stage(
        name="gpu_smoke",
        select="gpu and not multi_gpu and not slow",
        devices=1,
        force_label="run-gpu",
        documentation=DOCUMENTATION,
    ),
    Stage(
        name="multi_gpu",
        select="multi_gpu and not slow",
        devices=2,
        ranks=2,
        force_label="run-gpu",
        documentation=DOCUMENTATION,
    ),
    Stage(
        name="nightly",
        select="not manual",
        devices=2,
        timeout=14400,
        test_timeout=1800,
        documentation=DOCUMENTATION,
    ),
    Stage(name="package", select="native_backend and not gpu", timeout=1800, documentation=DOCUMENTATION),
)

TOP_KEYS = ("default_branch", "manifest_max_age_hours", "store", "stages", "checks", "package", "trust")
STAGE_KEYS = tuple(item.name for item in fields(Stage) if item.name != "name")
CHECK_KEYS = tuple(item.name for item in fields(Check) if item.name != "name")
POSITIVE = ("timeout", "test_timeout", "grace", "manifest_max_age_hours")


def read_settings(root: Path) -> Settings:
    """Read the settings of a repository; without a `pyproject.toml` the defaults hold."""
    path = root / "pyproject.toml"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return default_settings()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    return parse_settings(text, source=str(path))


def read_markers(root: Path) -> tuple[str, ...]:
    """Read pytest's `markers` setting: the lines `name(arguments): meaning`."""
    path = root / "pyproject.toml"
    if not path.is_file():
        return ()
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    return tuple(document.get("tool", {}).get("pytest", {}).get("ini_options", {}).get("markers", ()))


def default_settings() -> Settings:
    """Give the package's own rows."""
    return Settings(stages={stage.name: stage for stage in DEFAULT_STAGES})


def parse_settings(text: str, *, source: str) -> Settings:
    """Parse the text of a `pyproject.toml`; raises `ConfigError` listing every problem."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source} is not valid TOML: {error}") from error
    table = document.get("tool", {}).get("lockgate", {})
    problems: list[str] = []
    if not isinstance(table, Mapping):
        raise ConfigError(f"{source}: [tool.lockgate] is {_kind(table)}, expected a table")
    problems += _unknown(table, TOP_KEYS, place="[tool.lockgate]")
    base = default_settings()
    stages = dict(base.stages)
    for name, row in _tables(table, "stages", problems):
        start = stages.get(name, Stage(name=name))
        stages[name] = replace(
            start, **_values(row, STAGE_KEYS, start, place=f"[tool.lockgate.stages.{name}]", problems=problems)
        )
    checks = []
    for name, row in _tables(table, "checks", problems):
        start_check = Check(name=name, command=(), stages=())
        place = f"[tool.lockgate.checks.{name}]"
        check = replace(start_check, **_values(row, CHECK_KEYS, start_check, place=place, problems=problems))
        checks.append(check)
        if not check.command:
            problems.append(f"{place}: command is missing, expected an array such as ['ruff', 'check']")
        problems += [f"{place}: stages names {one!r}, which is no stage" for one in check.stages if one not in stages]
    top = _values(
        {key: table[key] for key in ("default_branch", "manifest_max_age_hours", "store") if key in table},
        TOP_KEYS,
        base,
        place="[tool.lockgate]",
        problems=problems,
    )
    raw = {key: table.get(key, {}) for key in ("package", "trust")}
    problems += [
        f"[tool.lockgate.{key}] is {_kind(value)}, expected a table"
        for key, value in raw.items()
        if not isinstance(value, Mapping)
    ]
    if problems:
        raise ConfigError(
            f"{source} has {len(problems)} problem(s):\n" + "\n".join(f"  - {problem}" for problem in problems),
            hint="the keys of a row are described in docs/adopt.md",
        )
    return replace(base, stages=stages, checks=tuple(checks), source=source, **raw, **top)


def _tables(table: Mapping[str, Any], key: str, problems: list[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    rows = table.get(key, {})
    if not isinstance(rows, Mapping):
        problems.append(f"[tool.lockgate.{key}] is {_kind(rows)}, expected a table of tables")
        return
    for name, row in rows.items():
        if isinstance(row, Mapping):
            yield name, row
        else:
            problems.append(f"[tool.lockgate.{key}] {name} is {_kind(row)}, expected a table")


def _unknown(row: Mapping[str, Any], valid: tuple[str, ...], *, place: str) -> list[str]:
    found = []
    for key in row:
        if key not in valid:
            close = difflib.get_close_matches(key, valid, n=1)
            meant = f" (did you mean {close[0]!r}?)" if close else ""
            found.append(f"{place}: unknown key {key!r}{meant}; valid keys: {', '.join(valid)}")
    return found


def _values(
    row: Mapping[str, Any], valid: tuple[str, ...], start: object, *, place: str, problems: list[str]
) -> dict[str, Any]:
    """Check each value against the type of its default; give the good ones."""
    problems += _unknown(row, valid, place=place)
    good: dict[str, Any] = {}
    for key, value in row.items():
        if key not in valid:
            continue
        try:
            good[key] = _value(key, value, getattr(start, key))
        except (UsageError, ValueError) as error:
            problems.append(f"{place}: {error}")
    return good


def _value(key: str, value: Any, default: Any) -> Any:
    if isinstance(default, Launch):
        if not isinstance(value, str):
            raise ValueError(f"{key} is {_kind(value)}, expected a string")
        return Launch.parse(value, what=key)
    if isinstance(default, tuple):
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ValueError(f"{key} is {_kind(value)}, expected an array of strings")
        return tuple(value)
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise ValueError(f"{key} is {_kind(value)}, expected true or false")
        return value
    if isinstance(default, int | float):
        whole = isinstance(default, int)
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
            raise ValueError(f"{key} is {_kind(value)}, expected {'a whole number' if whole else 'a number'}")
        if value < 0 or (key in POSITIVE and value == 0):
            raise ValueError(f"{key} is {value}, expected {'more than 0' if key in POSITIVE else '0 or more'}")
        return value if whole else float(value)
    if not isinstance(value, str):
        raise ValueError(f"{key} is {_kind(value)}, expected a string")
    return value


def _kind(value: object) -> str:
    names = {str: "a string", bool: "a boolean", int: "a number", float: "a number", list: "an array", dict: "a table"}
    return f"{names.get(type(value), type(value).__name__)} ({value!r})"
