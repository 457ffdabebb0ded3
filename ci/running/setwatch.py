"""What has happened to a set: its ranks' words against its limits. Its only edges: the clock, the ranks' stacks."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ci.running.rankset import Member, RankSet, State, compare_ids
from ci.running.stacks import trim_stacks
from ci.values import Word

START_LIMIT = 180.0
"""Seconds for a set to import, collect and join its process group on a cold, busy machine."""
MOST_LINES = 30
END_LIMIT = 30.0
CRASH_GRACE = 1.0
"""Seconds that peers of a crashed rank get to say what they saw."""


class Event(Word):
    """What must be acted on."""

    AGREED = "agreed"  # its ranks have collected the same tests: it may begin
    READY = "ready"  # the set can take a test
    DONE = "done"  # its test has all the answers it will get
    LOST = "lost"  # it could not start: the run cannot go on
    ENDED = "ended"  # all its processes are gone, after `end`


@dataclass(frozen=True, kw_only=True)
class Happening:
    """One thing that happened to a set; `detail` says a limit in words or why a start failed."""

    event: Event
    set: RankSet
    detail: str = ""
    graced: bool = False


@dataclass(frozen=True, kw_only=True)
class FleetPlan:
    """What all sets have in common; limits in seconds."""

    run_id: str
    folder: Path
    scratch: Path
    arguments: tuple[str, ...]
    backend: str
    test_limit: float
    grace: float
    group_limit: float
    masks_devices: bool
    expected: Callable[[], Sequence[str]]
    known: Callable[[], Sequence[str]]
    files: tuple[str, ...] = ()
    nodes: int = 1
    listen: str = ""
    token: str = ""


def check_set(one: RankSet, plan: FleetPlan) -> Happening | None:
    """Say what has happened to a set since the last look, by what its ranks have said and by its limits."""
    if one.state in (State.STARTING, State.BEGINNING):
        return _check_start(one, plan)
    if one.state is State.BUSY:
        return _check_test(one, plan)
    if one.state is State.ENDING:
        return _check_end(one)
    if one.state is State.IDLE and any(member.closed for member in one.members):
        # Between two tests: the next one gets a new set, and the last one's teardown is to blame.
        return Happening(event=Event.ENDED, set=one, detail=_tell_deaths(one))
    return None


def _check_start(one: RankSet, plan: FleetPlan) -> Happening | None:
    dead = [member for member in one.members if member.closed]
    if dead:
        log = trim_stacks(dead[0].read_log()).strip().splitlines()[-MOST_LINES:]
        detail = f"{_tell_deaths(one)} before its first test:\n" + "\n".join(log)
        return Happening(event=Event.LOST, set=one, detail=detail)
    if one.state is State.STARTING and all(member.ids is not None for member in one.members):
        problems = compare_ids(plan.expected(), plan.known(), one.members)
        if problems:
            return Happening(event=Event.LOST, set=one, detail="; ".join(problems))
        return None if one.spare else Happening(event=Event.AGREED, set=one)
    if one.state is State.BEGINNING and all(member.begun is not None for member in one.members):
        errors = [f"rank {member.rank}: {member.begun}" for member in one.members if member.begun]
        if errors:
            detail = f"the process group cannot be joined: {'; '.join(errors)}"
            return Happening(event=Event.LOST, set=one, detail=detail)
        one.move(State.IDLE)
        return Happening(event=Event.READY, set=one)
    if not one.spare and time.monotonic() - one.since > START_LIMIT:
        one.ask_stacks(one.members, signal.SIGUSR1)
        logs = "\n".join(member.read_log()[-2000:] for member in one.members)
        detail = f"the ranks were not ready after {START_LIMIT:g} s:\n{logs}"
        return Happening(event=Event.LOST, set=one, detail=detail)
    return None


def _check_test(one: RankSet, plan: FleetPlan) -> Happening | None:
    now = time.monotonic()
    waiting = [member for member in one.members if member.answer is None]
    if not waiting:
        return Happening(event=Event.DONE, set=one)
    dead = [member for member in waiting if member.closed]
    alive = [member for member in waiting if not member.closed]
    if one.grace_end is None and (dead or any(map(_not_passed, one.members))):
        one.grace_end = now + (min(CRASH_GRACE, plan.grace) if dead else plan.grace)
    elif dead and one.grace_end is not None:
        one.grace_end = min(one.grace_end, now + CRASH_GRACE)
    if not alive:
        return Happening(event=Event.DONE, set=one)
    if one.grace_end is not None and now >= one.grace_end:
        one.ask_stacks(alive, signal.SIGUSR1)
        words = "" if dead else f"grace of {plan.grace:g} s"
        return Happening(event=Event.DONE, set=one, detail=words, graced=not dead)
    if now - one.dispatched >= plan.test_limit:
        one.ask_stacks([member for member in one.members if not member.closed], signal.SIGUSR1)
        return Happening(event=Event.DONE, set=one, detail=f"test limit of {plan.test_limit:g} s")
    return None


def _check_end(one: RankSet) -> Happening | None:
    if all(member.closed for member in one.members):
        return Happening(event=Event.ENDED, set=one, detail=_tell_deaths(one))
    if time.monotonic() - one.since > END_LIMIT:
        late = [member for member in one.members if not member.closed]
        one.ask_stacks(late, signal.SIGUSR1)
        ranks = ", ".join(str(member.rank) for member in late)
        detail = f"rank {ranks} did not end within {END_LIMIT:g} s of its last test"
        return Happening(event=Event.ENDED, set=one, detail=detail)
    return None


def _not_passed(member: Member) -> bool:
    """Whether a rank has answered with anything but a pass."""
    if member.answer is None:
        return False
    reports = [report for report in member.answer["reports"] if report.get("outcome") != "passed"]
    return bool(reports or member.answer["trouble"])


def _tell_deaths(one: RankSet) -> str:
    """Say which ranks ended otherwise than with code 0 after the end; "" when all is well."""
    words = []
    for member in one.members:
        if not member.closed:
            continue
        how = member.read_death()
        if member.ended is None or (member.process is not None and member.process.exitcode != 0):
            words.append(f"rank {member.rank}: {how.removesuffix(' in the middle of a test')}")
    return "; ".join(words)
