"""What a test's phases add up to, and which class a skip belongs to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ci.report.model import Outcome

NEEDS = re.compile(r"^needs (?P<name>[a-z0-9_-]+): ")
IMPORT = re.compile(r"^could not import '(?P<name>[\w.]+)'")
OTHER = "other"


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One report of pytest: `when` is setup, call or teardown; `outcome` passed, failed or skipped."""

    when: str
    outcome: str
    duration: float = 0.0
    xfail: bool = False
    reason: str = ""
    text: str = ""


def decide_outcome(phases: Sequence[Phase]) -> tuple[Outcome, str]:
    """Add the phases of one test up to an outcome and its reason.

    A failure of the test itself outranks one of its fixtures; no phase at all,
    or a test without an answer of its call, is never a pass.
    """
    failed = [phase for phase in phases if phase.outcome == "failed"]
    for phase in failed:
        if phase.when == "call":
            return Outcome.FAILED, phase.reason
    if failed:
        return Outcome.ERROR, f"{failed[0].when} failed: {failed[0].reason}"
    skipped = [phase for phase in phases if phase.outcome == "skipped"]
    if skipped:
        return (Outcome.XFAILED if skipped[0].xfail else Outcome.SKIPPED), skipped[0].reason
    if not any(phase.when == "call" and phase.outcome == "passed" for phase in phases):
        return Outcome.ERROR, "the test gave no answer"
    return Outcome.PASSED, ""


def find_skip_class(reason: str) -> str:
    """Name the class of a skip from its reason.

    Our guards start theirs with `needs <class>: `; `pytest.importorskip` gives
    `import:<module>`; every other reason is of the class "other".
    """
    needs = NEEDS.match(reason)
    if needs:
        return needs["name"]
    missing = IMPORT.match(reason)
    return f"import:{missing['name']}" if missing else OTHER


def is_declared(skip_class: str, reason: str, allowed: Sequence[str]) -> bool:
    """Whether a stage row allows this skip, by its class or by a pattern for its reason."""
    return any(entry == skip_class or fnmatchcase(reason, entry) for entry in allowed)
