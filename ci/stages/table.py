"""Rows of `pyproject.toml` -> `Settings`. All problems are listed before stopping."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ci.errors import ConfigError
from ci.rows import describe, keys_of, parse_row
from ci.stages.model import Check, Settings, Stage

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
        name="nightly", select="not manual", devices=2, timeout=14400, test_timeout=1800, documentation=DOCUMENTATION
    ),
    Stage(name="package", select="native_backend and not gpu", documentation=DOCUMENTATION),
)

RAW_KEYS = ("package", "trust")
TOP_KEYS = ("default_branch", "manifest_max_age_hours", "store")
TABLE_KEYS = ("stages", "checks")


def read_settings(root: Path) -> Settings:
    """Read the settings of a repository; without a `pyproject.toml` the defaults hold."""
    path = root / "pyproject.toml"
    text = _read(path)
    return default_settings() if text is None else parse_settings(text, source=str(path))


def read_markers(root: Path) -> tuple[str, ...]:
    """Read pytest's `markers` setting: the lines `name(arguments): meaning`."""
    path = root / "pyproject.toml"
    document = _parse_toml(_read(path) or "", source=str(path))
    return tuple(document.get("tool", {}).get("pytest", {}).get("ini_options", {}).get("markers", ()))


def default_settings() -> Settings:
    """Give the package's own rows."""
    return Settings(stages={stage.name: stage for stage in DEFAULT_STAGES})


def parse_settings(text: str, *, source: str) -> Settings:
    """Parse the text of a `pyproject.toml`; raises `ConfigError` listing every problem."""
    tool = _parse_toml(text, source=source).get("tool", {})
    table = tool.get("lockgate", {}) if isinstance(tool, Mapping) else {}
    if not isinstance(table, Mapping):
        raise ConfigError(f"{source}: [tool.lockgate] is {describe(table)}, expected a table")
    problems: list[str] = []
    start = default_settings()
    stages = dict(start.stages)
    for name, row in _tables(table, "stages", problems):
        place = f"[tool.lockgate.stages.{name}]"
        known = stages.get(name, Stage(name=name))
        keys = keys_of(Stage, without=("name",))
        stages[name] = parse_row(row, known, place=place, keys=keys, problems=problems)
    checks = tuple(_parse_check(name, row, stages, problems) for name, row in _tables(table, "checks", problems))
    problems += [
        f"[tool.lockgate.{key}] is {describe(table[key])}, expected a table"
        for key in RAW_KEYS
        if not isinstance(table.get(key, {}), Mapping)
    ]
    rest = {key: value for key, value in table.items() if key not in (*RAW_KEYS, *TABLE_KEYS)}
    values = Settings(
        stages=stages, checks=checks, source=source, package=table.get("package", {}), trust=table.get("trust", {})
    )
    settings = parse_row(rest, values, place="[tool.lockgate]", keys=TOP_KEYS, problems=problems)
    if problems:
        raise ConfigError(
            f"{source} has {len(problems)} problem(s):\n" + "\n".join(f"  - {problem}" for problem in problems),
            hint="the keys of a row are described in docs/adopt.md",
        )
    return settings


def _parse_check(name: str, row: Mapping[str, Any], stages: Mapping[str, Stage], problems: list[str]) -> Check:
    place = f"[tool.lockgate.checks.{name}]"
    keys = keys_of(Check, without=("name",))
    check = parse_row(row, Check(name=name, command=(), stages=()), place=place, keys=keys, problems=problems)
    if not check.command:
        problems.append(f"{place}: command is missing, expected an array such as ['ruff', 'check']")
    problems += [f"{place}: stages names {one!r}, which is no stage" for one in check.stages if one not in stages]
    return check


def _tables(table: Mapping[str, Any], key: str, problems: list[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    rows = table.get(key, {})
    if not isinstance(rows, Mapping):
        problems.append(f"[tool.lockgate.{key}] is {describe(rows)}, expected a table of tables")
        return
    for name, row in rows.items():
        if isinstance(row, Mapping):
            yield name, row
        else:
            problems.append(f"[tool.lockgate.{key}] {name} is {describe(row)}, expected a table")


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


def _parse_toml(text: str, *, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source} is not valid TOML: {error}") from error
