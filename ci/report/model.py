"""The values of a report: what was run, on what, and how each test ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from ci.values import Word

SCHEMA = "lockgate-report/1"
"""Name and version of `report.json`; a reader refuses another version."""


class Outcome(Word):
    """How a test, or one rank of it, ended."""

    PASSED = "passed"
    FAILED = "failed"  # an assertion or exception in the test, or ranks that disagree
    ERROR = "error"  # setup or teardown failed
    CRASHED = "crashed"  # a process ended in the middle of a test, whatever its exit code
    HUNG = "hung"  # a limit struck
    SKIPPED = "skipped"
    XFAILED = "xfailed"
    NOT_RUN = "not-run"  # selected, but the run ended before its turn
    INFRASTRUCTURE = "infrastructure"  # the machine was not fit; says nothing about the test

    @property
    def is_red(self) -> bool:
        """Whether the outcome alone makes a run red (a skip needs its declaration looked at)."""
        return self in RED

    @property
    def is_executed(self) -> bool:
        """Whether the test's code ran to an answer; counts towards a stage's `min_tests`."""
        return self in EXECUTED


RED = frozenset({Outcome.FAILED, Outcome.ERROR, Outcome.CRASHED, Outcome.HUNG})
EXECUTED = frozenset({Outcome.PASSED, Outcome.XFAILED}) | RED


@dataclass(frozen=True, kw_only=True)
class RankResult:
    """One rank's part of a test; `duration` in seconds, `device` a UUID or "" for a CPU rank."""

    rank: int
    outcome: Outcome
    duration: float = 0.0
    device: str = ""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class TestResult:
    """One test: exactly one of these per selected test, however many ranks ran it.

    `started` is in seconds since the epoch (0.0: never started), `duration` in
    seconds. `devices` are the UUIDs that it held. `skip_class` and `reason` say
    why it was skipped, not run, or blamed; `declared` marks a skip that the
    stage row allows. `output` holds what every rank printed and the stacks of
    late ranks. `attempts` counts reruns.
    """

    __test__: ClassVar[bool] = False

    id: str
    outcome: Outcome
    duration: float = 0.0
    started: float = 0.0
    width: int = 0
    ranks: tuple[RankResult, ...] = ()
    devices: tuple[str, ...] = ()
    skip_class: str = ""
    reason: str = ""
    declared: bool = False
    output: str = ""
    attempts: int = 1


@dataclass(frozen=True, kw_only=True)
class DeviceRecord:
    """A device as the report names it; `memory` in bytes, `capability` such as "9.0"."""

    uuid: str
    index: int
    name: str
    capability: str = ""
    memory: int = 0
    driver: str = ""
    simulated: bool = False


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Something that happened beside the tests: a restart, a rerun, an Xid event."""

    time: float
    kind: str
    text: str
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Why the machine was not fit: which check, what was found, what to do."""

    check: str
    message: str
    hint: str = ""
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """A program that ran before the tests (a linter, an audit); `duration` in seconds."""

    name: str
    command: tuple[str, ...]
    passed: bool
    duration: float = 0.0
    output: str = ""


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """One run of one stage.

    `started` and `finished` are in seconds since the epoch; `finished` is 0.0
    while the run goes on, and stays so when the tool was killed. `exit_code` is
    what the command answered (None: it never did), `reasons` why it is not 0.
    `shard` is "I/N" or "". `notes` are sentences that a reader must see, such as
    a plan that could not be used.
    """

    stage: str
    commit: str = ""
    simulated: bool = False
    started: float = 0.0
    finished: float = 0.0
    shard: str = ""
    exit_code: int | None = None
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    devices: tuple[DeviceRecord, ...] = ()
    results: tuple[TestResult, ...] = ()
    infrastructure: tuple[Problem, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    marks: tuple[Mark, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def totals(self) -> dict[str, int]:
        """Count the tests of each outcome; every outcome is named, also with 0."""
        counts = {outcome.value: 0 for outcome in Outcome}
        for result in self.results:
            counts[result.outcome.value] += 1
        return counts

    @property
    def executed(self) -> int:
        """Count the tests whose code ran to an answer."""
        return sum(result.outcome.is_executed for result in self.results)

    @property
    def is_complete(self) -> bool:
        """Whether the run ended by itself and answered."""
        return self.finished > 0.0 and self.exit_code is not None

    @property
    def is_green(self) -> bool:
        """Whether the run ended, answered 0, and holds nothing that contradicts it.

        Whether a skip that nobody declared is red depends on the runner (on the
        stage's own it is): the run has judged that, and its exit code says it.
        """
        return (
            self.is_complete
            and self.exit_code == 0
            and not self.infrastructure
            and all(check.passed for check in self.checks)
            and not any(self.is_bad(result) for result in self.results)
        )

    def is_bad(self, result: TestResult) -> bool:
        """Whether a result is to be looked at: a skip only if nobody declared it and the run was not green."""
        if result.outcome is Outcome.SKIPPED:
            return not result.declared and self.exit_code != 0
        return result.outcome not in (Outcome.PASSED, Outcome.XFAILED)

    @property
    def fingerprint(self) -> str:
        """Name the kind of devices: equal fingerprints mean results may be compared."""
        if self.simulated:
            return f"simulated:{len(self.devices)}"
        kinds = sorted(f"{device.name}/{device.capability}/{device.driver}" for device in self.devices)
        return "cpu" if not kinds else "cuda:" + ",".join(kinds)
