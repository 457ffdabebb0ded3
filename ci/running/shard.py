"""`--shard I/N`: split a stage's tests over N runners by their estimates. Pure.

Every runner computes the same split from the same tests and the same estimates.
Longest first onto the shard with the least device-seconds; where estimates may
differ between runners (no common file of durations), all must run without one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ci.errors import UsageError
from ci.running.pool import Task

PATTERN = re.compile(r"(\d{1,4})/(\d{1,4})")


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One part of a split: number `index` (from 1) of `count`."""

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read `I/N`; raises `UsageError`."""
        match = PATTERN.fullmatch(text.strip())
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise UsageError(f"--shard is {text!r}, expected I/N with 1 <= I <= N", hint="for example --shard 2/4")
        return cls(index=int(match[1]), count=int(match[2]))

    def __str__(self) -> str:
        """Write as `I/N`."""
        return f"{self.index}/{self.count}"


def split_tasks(tasks: Iterable[Task], count: int) -> tuple[tuple[Task, ...], ...]:
    """Split tasks into `count` parts of about equal device-seconds, the same way on every runner."""
    loads = [0.0] * count
    parts: list[list[Task]] = [[] for _ in range(count)]
    for task in sorted(tasks, key=lambda one: (-one.area, one.id)):
        least = min(range(count), key=lambda one: (loads[one], len(parts[one]), one))
        parts[least].append(task)
        loads[least] += task.area
    return tuple(map(tuple, parts))


def select_shard(
    tests: Sequence[str], *, widths: Mapping[str, int], estimates: Mapping[str, float], shard: Shard
) -> tuple[str, ...]:
    """Give the tests of one shard, in the order in which they came."""
    tasks = [Task(id=test, width=widths.get(test, 1), duration=estimates[test]) for test in tests]
    chosen = {task.id for task in split_tasks(tasks, shard.count)[shard.index - 1]}
    return tuple(test for test in tests if test in chosen)


def fingerprint_split(tests: Iterable[str], estimates: Mapping[str, float], count: int) -> str:
    """Give a mark of what a split was computed from: shards with different marks may have lost a test."""
    lines = [f"{count}", *(f"{test} {estimates[test]:.4f}" for test in sorted(tests))]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
