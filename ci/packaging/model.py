"""What a distribution must and must not hold. Pure: names in, problems out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from ci.errors import ConfigError
from ci.rows import keys_of, parse_row
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
    """The row `[tool.lockgate.package]`; patterns are matched case-sensitively against whole paths.

    `tests` names what is copied beside the clean environment for its tests.
    """

    wheel_must_hold: tuple[str, ...] = ()
    wheel_must_not_hold: tuple[str, ...] = ()
    pure_must_not_hold: tuple[str, ...] = ("*.so", "*.pyd")
    sdist_must_hold: tuple[str, ...] = ()
    pure_environment: tuple[str, ...] = ("SKIP_NATIVE_BUILD=1",)
    extras: tuple[str, ...] = ()
    group: str = ""
    tests: tuple[str, ...] = ("pyproject.toml", "tests")


def parse_rules(table: Mapping[str, Any]) -> PackageRules:
    """Parse the row; raises `ConfigError` listing every problem."""
    problems: list[str] = []
    place = "[tool.lockgate.package]"
    rules = parse_row(table, PackageRules(), place=place, keys=keys_of(PackageRules), problems=problems)
    problems += [
        f"{place}: pure_environment holds {item!r}, expected NAME=VALUE"
        for item in rules.pure_environment
        if "=" not in item
    ]
    if problems:
        raise ConfigError("\n".join(problems))
    return rules


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
