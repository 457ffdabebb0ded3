"""An outsider's run shares a concurrency group with a trusted one.

With `cancel-in-progress` it ends the trusted run; without, it takes its place
in the queue. Groups are compared across files, since they are the repository's.
"""

from __future__ import annotations

from collections.abc import Iterator

from ci.trust.cells import Audit, Finding, GroupUse
from ci.trust.functions import fits
from ci.trust.rules.base import rule
from ci.trust.trust import Severity, Trust
from ci.trust.values import ATTACKER, UNIQUE, Unknown, Value, fold, options_of, text_of, unknowns

ID = "shared-concurrency"


def check(audit: Audit) -> Iterator[Finding]:
    """Find outsiders' entries into groups that trusted runs use."""
    trusted = [use for use in audit.groups if is_victim(use)]
    for use in audit.groups:
        if not use.row.outsider:
            continue
        victim = next((other for other in trusted if may_meet(use.group, other.group)), None)
        if victim is None:
            continue
        does = "can cancel" if use.cancels is not False else "can take the place of"
        yield Finding(
            rule=ID,
            severity=Severity.FAIL,
            workflow=use.workflow.path,
            job=use.job or None,
            event=use.row.id,
            line=use.declared.line,
            message=f"{use.row.label} enters the group {use.declared.group} "
            f"and {does} {victim.workflow.path} on {victim.row.id}",
            fix="put what only trusted runs have into the group: github.ref (an outsider's is refs/pull/N/merge) "
            "or github.event_name",
        )


def is_victim(use: GroupUse) -> bool:
    """Tell whether a run is one that outsiders must not end: of no pull request, or of a vetted mirror."""
    return (use.row.head is None and use.row.code is Trust.TRUSTED and not use.row.outsider) or use.row.id.startswith(
        "mirror:"
    )


def may_meet(left: Value, right: Value) -> bool:
    """Tell whether two groups can be the same text, an outsider choosing what is theirs.

    What no other run shares (a commit, a run's id) meets nothing. An unknown
    that nobody outside chooses is taken to differ between events.
    """
    firsts, seconds = options_of(left), options_of(right)
    if firsts is not None and seconds is not None:
        return bool({fold(text_of(value)) for value in firsts} & {fold(text_of(value)) for value in seconds})
    for one, other in ((left, right), (right, left)):
        listed = options_of(other)
        if isinstance(one, Unknown) and one.options is None and listed is not None:
            return _open(one) and any(_can_be(one, text_of(option)) for option in listed)
    return isinstance(left, Unknown) and isinstance(right, Unknown) and _same_shape(left, right)


def _open(group: Unknown) -> bool:
    holes = list(_holes(group))
    return all(ATTACKER in hole.taints for hole in holes)


def _holes(group: Unknown) -> Iterator[Unknown]:
    if not group.parts:
        yield group
        return
    for part in group.parts:
        yield from unknowns(part)


def _can_be(group: Unknown, text: str) -> bool:
    never = {fold(word) for hole in _holes(group) for word in hole.never}
    if not group.parts:
        return fold(text) not in never and not text.startswith("refs/")
    if not fits(group.parts, text):
        return False
    # Names of branches never begin with refs/, and an excluded name is not in the hole.
    left = fold(text)
    for part in group.parts:
        if isinstance(part, str):
            left = left.replace(fold(part), "\0", 1)
    return not any(piece.startswith("REFS/") or piece in never for piece in left.split("\0") if piece)


def _same_shape(left: Unknown, right: Unknown) -> bool:
    if any(UNIQUE in hole.taints for hole in (*_holes(left), *_holes(right))):
        return False
    mine, theirs = left.parts or (left,), right.parts or (right,)
    if len(mine) != len(theirs):
        return False
    return all(_parts_meet(one, other) for one, other in zip(mine, theirs, strict=True))


def _parts_meet(left: Value, right: Value) -> bool:
    if isinstance(left, str) and isinstance(right, str):
        return fold(left) == fold(right)
    return (
        isinstance(left, Unknown)
        and isinstance(right, Unknown)
        and (ATTACKER in left.taints or left.reason == right.reason)
    )


RULE = rule(__doc__, id=ID, severity=Severity.FAIL, check=check)
