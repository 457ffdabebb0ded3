"""The answers of a test's ranks -> one outcome. Pure.

All passed is a pass, all skipped a skip, all xfailed an xfail; anything mixed is
a failure. Blame goes to a crash before a hang before a failure.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from ci.report.model import Outcome

MOST_DETAIL = 200
AGREED = (Outcome.PASSED, Outcome.SKIPPED, Outcome.XFAILED)


@dataclass(frozen=True, kw_only=True)
class RankAnswer:
    """What one rank said of one test, or how it failed to.

    `outcome` is None without an answer; `died` then says how the process ended
    ("" while it lives: it is late). `sequence` is the number of collectives
    that its process group has started; `trouble` what it wanted but may not
    decide (the end of the session).
    """

    rank: int
    outcome: Outcome | None = None
    reason: str = ""
    duration: float = 0.0
    device: str = ""
    sequence: str = "none"
    died: str = ""
    trouble: str = ""

    @property
    def word(self) -> Outcome:
        """Give the rank's own outcome: without an answer it crashed or hung."""
        if self.outcome is not None and not self.trouble:
            return self.outcome
        if self.trouble:
            return Outcome.FAILED
        return Outcome.CRASHED if self.died else Outcome.HUNG

    @property
    def detail(self) -> str:
        """Give why it did not pass, in one line that can be read at a glance."""
        return textwrap.shorten(self.died or self.trouble or self.reason, MOST_DETAIL, placeholder=" ...")

    def describe(self) -> str:
        """Say it in words: `rank 1 failed: assert 1 == 2`."""
        return f"rank {self.rank} {self.word}" + (f": {self.detail}" if self.detail else "")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One test's outcome; `keeps_set`: the ranks are all alive, idle and in step; `blamed` is the telling rank."""

    outcome: Outcome
    reason: str = ""
    keeps_set: bool = True
    blamed: int = 0
    why_dropped: str = ""


def merge_answers(answers: Sequence[RankAnswer], *, limit: str = "", graced: bool = False) -> Verdict:
    """Merge the answers of all ranks.

    `limit` says in words which limit struck, if one did; `graced`: it was the
    peers' grace, so that a late rank is late because of another one.
    """
    words = [answer.word for answer in answers]
    why = _why_dropped(answers)
    if len(set(words)) == 1 and words[0] in AGREED:
        reasons = dict.fromkeys(answer.reason for answer in answers if answer.reason)
        return Verdict(outcome=words[0], reason="; ".join(reasons), keeps_set=not why, why_dropped=why)
    blamed = min(answers, key=lambda answer: (_blame(answer.word, graced=graced), answer.rank))
    # A peer is late because of the rank that crashed or did not pass: only a test limit makes it a hang.
    late = "was still in the test" if graced or blamed.word is Outcome.CRASHED else Outcome.HUNG.value
    others = "; ".join(_group(answers, but=blamed, late=late))
    reason = blamed.describe() + (f"; {others}" if others else "") + (f" ({limit})" if limit else "")
    if len(answers) == 1:
        reason = "; ".join(filter(None, (blamed.detail, limit and f"ran past the {limit}")))
    return Verdict(
        outcome=_mixed(words, graced=graced), reason=reason, blamed=blamed.rank, keeps_set=not why, why_dropped=why
    )


def _mixed(words: Sequence[Outcome], *, graced: bool) -> Outcome:
    """Name the outcome of ranks that do not agree on a good one."""
    if Outcome.CRASHED in words:
        return Outcome.CRASHED
    if Outcome.HUNG in words:
        return Outcome.FAILED if graced else Outcome.HUNG
    return Outcome.ERROR if set(words) <= {Outcome.ERROR, Outcome.PASSED} else Outcome.FAILED


def _why_dropped(answers: Sequence[RankAnswer]) -> str:
    if any(answer.word is Outcome.CRASHED for answer in answers):
        return "a rank crashed"
    if any(answer.outcome is None for answer in answers):
        return "a rank did not answer"
    sequences = {answer.sequence for answer in answers}
    if len(sequences) > 1:
        steps = ", ".join(f"rank {answer.rank} at {answer.sequence}" for answer in answers)
        return f"the ranks are out of step ({steps})"
    return ""


def _blame(word: Outcome, *, graced: bool) -> int:
    order = [Outcome.CRASHED, Outcome.HUNG, Outcome.FAILED, Outcome.ERROR]
    if graced:  # the rank that did not pass comes first, its waiting peers last
        order = [Outcome.CRASHED, Outcome.FAILED, Outcome.ERROR, Outcome.SKIPPED, Outcome.XFAILED, Outcome.HUNG]
    return order.index(word) if word in order else len(order)


def _group(answers: Sequence[RankAnswer], *, but: RankAnswer, late: str) -> list[str]:
    """Describe the other ranks, equal ones together: `ranks 1, 2, 3 hung`."""
    groups: dict[tuple[Outcome, str], list[int]] = {}
    for answer in answers:
        if answer is not but:
            groups.setdefault((answer.word, answer.detail), []).append(answer.rank)
    return [
        f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))} "
        + (late if word is Outcome.HUNG else word.value)
        + (f": {detail}" if detail else "")
        for (word, detail), ranks in groups.items()
    ]
