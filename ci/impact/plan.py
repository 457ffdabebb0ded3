"""A Plan: the decision, its tests, and an explanation of everything in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ci.impact.reasons import Reason
from ci.values import Word

SCHEMA = 1
"""Grows whenever an older reader would misread a newer plan."""


class Decision(Word):
    """What a stage has to run."""

    ALL = "all"
    SUBSET = "subset"
    NONE = "none"


@dataclass(frozen=True, kw_only=True)
class Selected:
    """One entry to run: a node id, or a whole test file (whose new tests the manifest cannot know)."""

    id: str
    reason: Reason
    detail: str


@dataclass(frozen=True, kw_only=True)
class Cause:
    """What one changed path led to; `tests` counts the tests, None where it is everything."""

    path: str
    reason: Reason
    detail: str
    tests: int | None


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Which manifest a plan rests on."""

    source: str
    age_hours: float
    content_hash: str


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One part of a split plan; `seconds` is what its tests took when recorded."""

    index: int
    tests: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to run for a change, and why.

    A runner leaves out a test only if `skipped` names it: a test that nobody
    planned for runs. `reasons` counts how often each reason struck, `seconds`
    and `total_seconds` are recorded durations of the selected and of all tests.
    """

    stage: str
    decision: Decision
    explanation: str
    tests: tuple[Selected, ...] = ()
    skipped: tuple[str, ...] = ()
    is_explicit: bool = True
    reasons: Mapping[str, int] = field(default_factory=dict)
    causes: tuple[Cause, ...] = ()
    base: str = ""
    head: str = ""
    merge_base: str = ""
    manifest: Identity | None = None
    policy_hash: str = ""
    warnings: tuple[str, ...] = ()
    shards: tuple[Shard, ...] = ()
    known: int = 0
    selected: int = 0
    seconds: float = 0.0
    total_seconds: float = 0.0

    def selects(self, test: str) -> bool:
        """Whether a collected test has to run; one that the plan does not know does.

        A plan without a list of skipped tests (`is_explicit` false) selects by
        its entries alone: a node id, or a file, class or function above it.
        """
        if self.decision is Decision.ALL:
            return True
        if self.is_explicit:
            return test not in self._skipped
        return any(name in self._entries for name in names_above(test))

    @cached_property
    def _skipped(self) -> frozenset[str]:
        return frozenset(self.skipped)

    @cached_property
    def _entries(self) -> frozenset[str]:
        return frozenset(item.id for item in self.tests)


def names_above(test: str) -> list[str]:
    """Give a node id and every id above it: without its parameters, its class, its file."""
    plain, bracket, _ = test.partition("[")
    parts = plain.split("::")
    names = ["::".join(parts[:size]) for size in range(len(parts), 0, -1)]
    return [test, *names] if bracket else names


def run_everything(stage: str, reason: Reason, detail: str, *, warnings: tuple[str, ...] = ()) -> Plan:
    """Give the plan for where nothing can be decided: everything, with the reason."""
    return Plan(
        stage=stage,
        decision=Decision.ALL,
        explanation=f"everything runs: {reason} ({detail})",
        reasons={str(reason): 1},
        causes=(Cause(path="", reason=reason, detail=detail, tests=None),),
        warnings=warnings,
    )
