"""Event log -> what pytest selected. Pure; the results are `ci.report.build`'s part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ci.running.events import Event, Kind


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What the first session collected.

    `selected` counts the tests that were to run, `deselected` those that the
    stage, a person, a plan or a shard left out; `unseen` are test files of which
    nothing was collected though they could hold a selected test; `unregistered`
    are markers of the stage's expression that pytest does not know.
    """

    selected: int = 0
    deselected: int = 0
    unseen: tuple[str, ...] = ()
    unregistered: tuple[str, ...] = ()


def read_selection(events: Sequence[Event]) -> Selection:
    """Take the selection from a run's log; a run that never collected has an empty one."""
    first = next((event.data for event in events if event.event is Kind.COLLECTED), {})
    return Selection(
        selected=len(first.get("tests", ())), deselected=int(first.get("deselected", 0)),
        unseen=tuple(first.get("unseen", ())), unregistered=tuple(first.get("unregistered", ())),
    )  # fmt: skip
