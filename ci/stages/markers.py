"""The tier rule: every test bears exactly one tier marker. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ci.values import Word


class Tier(Word):
    """What a test needs before it can run at all."""

    CPU = "cpu"
    NATIVE_BACKEND = "native_backend"
    GPU = "gpu"
    MULTI_GPU = "multi_gpu"


GUARD = "lockgate_guard"
"""The marker that a guard puts on a test."""

TIERS = tuple(tier.value for tier in Tier)


@dataclass(frozen=True, kw_only=True)
class MarkedTest:
    """A collected test and the names of all its marks, wherever they were set (function, class, module, conftest)."""

    id: str
    marks: frozenset[str]


def audit_tiers(tests: Iterable[MarkedTest], *, tiers: Collection[str] = TIERS) -> list[str]:
    """Give one problem per test that has no tier or more than one; none means all is well."""
    problems = []
    for test in tests:
        found = sorted(test.marks & set(tiers))
        if not found:
            problems.append(f"{test.id} has no tier, expected exactly one of {', '.join(tiers)}")
        elif len(found) > 1:
            problems.append(f"{test.id} has {len(found)} tiers ({', '.join(found)}), expected exactly one")
    return problems
