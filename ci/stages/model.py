"""What a stage is: one frozen row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ci.errors import UsageError
from ci.values import Word


class Launch(Word):
    """How the ranks of a test come to be."""

    STATIC = "static"  # a persistent set of ranks runs test after test
    DYNAMIC = "dynamic"  # every test gets fresh processes and may spawn its own workers


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage; the field names are the keys another repository writes.

    Times are in seconds. `select` is a pytest marker expression, "" selects
    every test. `devices` is the least number of CUDA devices, `ranks` the
    number of processes of a process group (0: none).
    """

    name: str
    select: str = ""
    paths: tuple[str, ...] = ()
    devices: int = 0
    ranks: int = 0
    launch: Launch = Launch.STATIC
    min_tests: int = 1
    may_be_empty: bool = False
    allow_skips: tuple[str, ...] = ()
    timeout: float = 1800.0
    test_timeout: float = 300.0
    grace: float = 5.0
    extra_args: tuple[str, ...] = ()
    force_label: str = ""
    documentation: tuple[str, ...] = ()
    data: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Check:
    """A program that must succeed before a stage's tests run (a linter, an audit)."""

    name: str
    command: tuple[str, ...]
    stages: tuple[str, ...]
    timeout: float = 300.0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything under `[tool.lockgate]`, parsed once.

    `trust` and `package` are handed on as they stand: their rooms parse them.
    `source` names the text it all came from, for messages.
    """

    stages: Mapping[str, Stage]
    checks: tuple[Check, ...] = ()
    default_branch: str = "main"
    manifest_max_age_hours: float = 72.0
    store: str = ".lockgate/manifests"
    trust: Mapping[str, Any] = field(default_factory=dict)
    package: Mapping[str, Any] = field(default_factory=dict)
    source: str = "defaults"

    def stage(self, name: str) -> Stage:
        """Find a row by name; raises `UsageError` listing the names there are."""
        if name not in self.stages:
            raise UsageError(f"there is no stage {name!r}", hint=f"stages: {', '.join(self.stages)}")
        return self.stages[name]
