"""A Plan: the decision, its tests, and an explanation of everything in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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
        """Whether a collected test has to run; an unknown one does."""
        if self.decision is Decision.ALL:
            return True
        return test not in self._skipped

    @property
    def _skipped(self) -> frozenset[str]:
        found = self.__dict__.get("_skipped_set")
        if found is None:
            found = frozenset(self.skipped)
            self.__dict__["_skipped_set"] = found
        return found


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
