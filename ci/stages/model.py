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


class ProcessGroup(Word):
    """Who initialises `torch.distributed` for a set of ranks, and with which backend."""

    AUTO = "auto"  # nccl on devices, gloo when simulated, none without torch
    NONE = "none"  # the tests call `init_process_group` themselves
    GLOO = "gloo"
    NCCL = "nccl"


def _key(default: Any, meaning: str) -> Any:
    """Declare one key of a row with the sentence that the documentation prints for it."""
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage; the field names are the keys another repository writes. Times are in seconds."""

    name: str
    select: str = _key("", 'pytest marker expression; "" is every test')
    paths: tuple[str, ...] = _key((), "test roots; none means pytest's `testpaths`")
    devices: int = _key(0, "least number of CUDA devices, 0 for none")
    ranks: int = _key(0, "processes of a test's process group, 0 for none; a test's own `nproc` wins")
    launch: Launch = _key(Launch.STATIC, "`static`: a persistent set of ranks; `dynamic`: fresh processes per test")
    process_group: ProcessGroup = _key(
        ProcessGroup.AUTO, "`auto`, `gloo`, `nccl`; `none`: the tests call `init_process_group` themselves"
    )
    min_tests: int = _key(1, "least number of tests that must be executed")
    may_be_empty: bool = _key(False, "an empty selection is green, if no such test exists at all")
    allow_skips: tuple[str, ...] = _key((), "skip classes or reason patterns allowed on the stage's own runner")
    timeout: float = _key(1800.0, "limit of the whole stage")
    test_timeout: float = _key(300.0, "limit of one test")
    grace: float = _key(5.0, "how long the other ranks may still take once one has not passed")
    extra_args: tuple[str, ...] = _key((), "arguments for pytest")
    force_label: str = _key("", "pull request label that runs the whole stage, whatever changed")
    documentation: tuple[str, ...] = _key((), "glob patterns of files that never need a test")
    data: tuple[str, ...] = _key((), "glob patterns of files that are always tracked as data")
    plain: tuple[str, ...] = _key(
        (), "glob patterns of plain Python: a changed function that no test executed selects nothing there"
    )
    docstrings_inert: bool = _key(
        False, "docstrings are neither printed nor tested, so that changing one selects nothing"
    )
    mentioned_names: bool = _key(
        False, "a module-level change selects only the tests that executed code mentioning a changed name"
    )


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
