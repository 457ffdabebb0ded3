"""What a configuration file means to tests: edits that no test can see vanish.

Every function takes the bytes of both sides (None: no such file) and gives the
names of the settings that differ, so that a decision can name them.
"""

from __future__ import annotations

import configparser
import io
import re
import sys
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from ci.impact.blocks import parse_blocks

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - the same parser under its older name
    import tomli as tomllib

INERT_TOOLS = frozenset(
    [
        "autoflake",
        "bandit",
        "basedpyright",
        "black",
        "bumpversion",
        "bump-my-version",
        "check-manifest",
        "check-wheel-contents",
        "codespell",
        "commitizen",
        "cosmic-ray",
        "coverage",
        "creosote",
        "cruft",
        "darker",
        "deptry",
        "docformatter",
        "flake8",
        "importlinter",
        "interrogate",
        "isort",
        "mutmut",
        "mypy",
        "pdoc",
        "pydocstyle",
        "pylint",
        "pyproject-fmt",
        "pyrefly",
        "pyright",
        "pyroma",
        "pyupgrade",
        "refurb",
        "ruff",
        "semantic_release",
        "slotscheck",
        "sphinx-theme-builder",
        "taplo",
        "towncrier",
        "ty",
        "typos",
        "vulture",
        "yapf",
        "zuban",
    ]
)
"""`[tool.*]` tables and ini sections that neither pytest nor an installation reads."""

INERT_PROJECT = frozenset(
    ["authors", "classifiers", "description", "keywords", "license", "license-files", "maintainers", "readme", "urls"]
)
"""Keys of `[project]` that change metadata alone, never what is installed beside it."""

PYTEST_SECTIONS = frozenset({"pytest", "tool:pytest"})


def toml_difference(before: bytes | None, after: bytes | None) -> list[str]:
    """Name the keys of two `pyproject.toml` that differ and matter, as dotted names.

    A key under `tool.lockgate` is named with its row (`tool.lockgate.stages.gpu`).
    """
    try:
        one, two = _toml(before), _toml(after)
    except ValueError as error:
        return [] if before == after else [f"(not valid TOML: {error})"]
    return [name for name in _differing(one, two) if not _is_inert_toml(name)]


def _toml(content: bytes | None) -> dict[str, Any]:
    return tomllib.loads((content or b"").decode("utf-8"))


def _differing(one: Mapping[str, Any], two: Mapping[str, Any], *, prefix: str = "", depth: int = 4) -> list[str]:
    found = []
    for key in sorted(one.keys() | two.keys()):
        left, right = one.get(key), two.get(key)
        if left == right and (key in one) == (key in two):
            continue
        name = f"{prefix}{key}"
        if depth > 1 and isinstance(left or {}, dict) and isinstance(right or {}, dict):
            found += _differing(left or {}, right or {}, prefix=f"{name}.", depth=depth - 1) or [name]
        else:
            found.append(name)
    return found


def _is_inert_toml(name: str) -> bool:
    parts = name.split(".")
    if parts[0] == "tool" and len(parts) > 1:
        return parts[1] in INERT_TOOLS
    return parts[0] == "project" and len(parts) > 1 and parts[1] in INERT_PROJECT


def ini_difference(before: bytes | None, after: bytes | None) -> list[str]:
    """Name the sections of two ini files that differ and matter; presence alone counts too."""
    try:
        one, two = _ini(before), _ini(after)
    except (configparser.Error, UnicodeDecodeError) as error:
        return [] if before == after else [f"(not valid: {str(error).splitlines()[0]})"]
    names = [name for name in sorted(one.keys() | two.keys()) if one.get(name) != two.get(name)]
    found = [name for name in names if re.split(r"[:\-.]", name)[0] not in INERT_TOOLS]
    if (before is None) != (after is None) and not found:
        found = ["(the file itself)"]
    return found


def _ini(content: bytes | None) -> dict[str, dict[str, str]]:
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    parser.read_string((content or b"").decode("utf-8"))
    return {name: dict(parser.items(name)) for name in [*parser.sections()]}


def requirements_difference(before: bytes | None, after: bytes | None) -> bool:
    """Whether two lists of requirements differ beyond comments and blank lines."""
    return _lines(before) != _lines(after)


def _lines(content: bytes | None) -> list[str] | None:
    if content is None:
        return None
    lines = (re.sub(r"(^|\s)#.*$", "", line).strip() for line in content.decode("utf-8", "replace").splitlines())
    return [line for line in lines if line]


def yaml_differs(before: bytes | None, after: bytes | None) -> bool:
    """Whether two YAML files differ in meaning; what cannot be read differs as soon as its bytes do."""
    if before is None or after is None:
        return before != after
    try:
        return bool(_yaml(before) != _yaml(after))
    except (YAMLError, ValueError, TypeError, RecursionError):
        return before != after


def _yaml(content: bytes) -> Any:
    # YAML 1.2 reads `on:` as the text that it is, and no tag can build an object.
    return YAML(typ="safe", pure=True).load(io.BytesIO(content))


def python_differs(before: bytes | None, after: bytes | None) -> bool:
    """Whether two Python files differ in any block."""
    if before is None or after is None:
        return before != after
    return parse_blocks(before).digests != parse_blocks(after).digests


def python_files(contents: Mapping[str, bytes]) -> tuple[str, ...]:
    """Give the names of files that pytest collects, from the first configuration that says so.

    `contents` maps names of configuration files to their bytes, in pytest's
    order of precedence. A setting that cannot be read leaves the default.
    """
    for name, content in contents.items():
        value = _python_files(name, content)
        if value:
            return tuple(value)
    return ("test_*.py", "*_test.py")


def _python_files(name: str, content: bytes) -> list[str]:
    try:
        if name.endswith(".toml"):
            table = _toml(content)
            if name == "pyproject.toml":
                tool = table.get("tool", {}).get("pytest", {})
                table = {**tool, **tool.get("ini_options", {})}
            value = table.get("python_files", table.get("pytest", {}).get("python_files", []))
            return value.split() if isinstance(value, str) else [str(item) for item in value]
        sections = _ini(content)
        return next((sections[one].get("python_files", "") for one in PYTEST_SECTIONS if one in sections), "").split()
    except (ValueError, AttributeError, TypeError, configparser.Error):
        return []
