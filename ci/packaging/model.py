"""What a distribution must and must not hold. Pure: names in, problems out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any

from ci.errors import ConfigError
from ci.values import Word

STRAY = ("*.pyc", "*/__pycache__/*", "*.orig", "*.rej", "*/.git/*", "*.o", "*/.env", "*/CMakeCache.txt")
"""Never shipped, whatever the project says."""


class Native(Word):
    """Which native part a wheel is built with."""

    CPU = "cpu"
    CUDA = "cuda"
    OFF = "off"


@dataclass(frozen=True, kw_only=True)
class PackageRules:
    """The row `[tool.lockgate.package]`; patterns are matched case-sensitively against whole paths."""

    wheel_must_hold: tuple[str, ...] = ()
    wheel_must_not_hold: tuple[str, ...] = ()
    pure_must_not_hold: tuple[str, ...] = ("*.so", "*.pyd")
    sdist_must_hold: tuple[str, ...] = ()
    pure_environment: tuple[str, ...] = ("SKIP_NATIVE_BUILD=1",)
    extras: tuple[str, ...] = ()
    group: str = ""


def parse_rules(table: Mapping[str, Any]) -> PackageRules:
    """Parse the row; raises `ConfigError` listing every problem."""
    valid = {item.name for item in fields(PackageRules)}
    problems = [f"unknown key {key!r}; valid keys: {', '.join(sorted(valid))}" for key in table if key not in valid]
    values: dict[str, Any] = {}
    for key in valid & set(table):
        value = table[key]
        if key == "group" and isinstance(value, str):
            values[key] = value
        elif key != "group" and isinstance(value, list) and all(isinstance(item, str) for item in value):
            values[key] = tuple(value)
        else:
            expected = "a string" if key == "group" else "an array of strings"
            problems.append(f"{key} is {value!r}, expected {expected}")
    problems += [
        f"pure_environment holds {item!r}, expected NAME=VALUE"
        for item in values.get("pure_environment", ())
        if "=" not in item
    ]
    if problems:
        raise ConfigError("[tool.lockgate.package]:\n" + "\n".join(f"  - {problem}" for problem in problems))
    return PackageRules(**values)


def check_sdist(names: Sequence[str], rules: PackageRules) -> list[str]:
    """Check the paths of an sdist, without its top folder."""
    return [*_missing(names, rules.sdist_must_hold, what="the sdist"), *_stray(names, STRAY, what="the sdist")]


def check_wheel(names: Sequence[str], tag: str, rules: PackageRules, *, native: Native) -> list[str]:
    """Check the paths and the tag (`cp310-abi3-linux_x86_64`) of a wheel built with `native`."""
    pure = native is Native.OFF
    what = "the pure wheel" if pure else f"the {native} wheel"
    problems = _stray(names, (*STRAY, *rules.wheel_must_not_hold), what=what)
    if pure:
        problems += _stray(names, rules.pure_must_not_hold, what=what)
        wanted = [pattern for pattern in rules.wheel_must_hold if not _matches_any(pattern, rules.pure_must_not_hold)]
        if not tag.endswith("-none-any"):
            problems.append(f"{what} is tagged {tag}, expected py3-none-any")
    else:
        wanted = list(rules.wheel_must_hold)
        if tag.endswith("-any"):
            problems.append(f"{what} is tagged {tag}, expected a platform: the native part did not get in")
    return [*problems, *_missing(names, wanted, what=what)]


def _matches_any(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _missing(names: Sequence[str], patterns: Iterable[str], *, what: str) -> list[str]:
    return [f"{what} lacks {pattern}" for pattern in patterns if not any(fnmatchcase(name, pattern) for name in names)]


def _stray(names: Sequence[str], patterns: Sequence[str], *, what: str) -> list[str]:
    return [f"{what} holds {name}, which must not be shipped" for name in names if _matches_any(name, patterns)]
