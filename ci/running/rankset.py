"""One process set as the controller sees it: its ranks, their state, what they have said."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

from ci import process
from ci.running.channel import Channel, Message
from ci.running.launcher import kill_rank
from ci.running.pool import Grant
from ci.running.tree import find_marked, kill_all
from ci.values import Word

JOIN_LIMIT = 2.0
STACK_WAIT = 0.3
MOST_LOG = 100_000
MOST_GROWTH = 4 << 30
"""Bytes by which a rank may grow over its first test before its set is replaced."""
MOST_DEVICE_SHARE = 0.5
"""Part of a device's memory that may stay allocated between two tests."""


class State(Word):
    """Where a set is in its life."""

    STARTING = "starting"  # processes start, collect and send their ids
    BEGINNING = "beginning"  # the process group is being joined
    IDLE = "idle"
    BUSY = "busy"
    ENDING = "ending"  # the last fixtures are torn down
    GONE = "gone"


@dataclass(kw_only=True)
class Member:
    """One rank: its process, its wire and what it has said."""

    rank: int
    log: Path
    device: str = ""
    pid: int = 0
    process: BaseProcess | None = None
    channel: Channel | None = None
    ids: tuple[str, ...] | None = None
    errors: tuple[str, ...] = ()
    begun: str | None = None
    answer: Message | None = None
    ended: Message | None = None
    answered: float = 0.0
    log_begin: int = 0

    @property
    def closed(self) -> bool:
        """Whether the wire is cut or the process has ended: both are the end of the rank."""
        if self.channel is not None and self.channel.closed:
            return True
        return self.has_exited

    @property
    def has_exited(self) -> bool:
        """Whether its process, if it is one of this machine, is gone; what it said last may still be unread."""
        return self.process is not None and self.process.exitcode is not None

    def read_death(self) -> str:
        """Say how the process ended; call it when the rank is closed."""
        if self.process is None:
            return "its connection was lost"
        self.process.join(JOIN_LIMIT)
        code = self.process.exitcode
        if code is None:
            return "closed its connection while it ran on"
        return process.describe_exit(code) if code < 0 else f"exited with code {code} in the middle of a test"

    def read_log(self) -> str:
        """Read what the rank printed since its test began, as far as it came."""
        try:
            with self.log.open("rb") as stream:
                stream.seek(self.log_begin)
                return stream.read().decode("utf-8", errors="replace")[-MOST_LOG:]
        except FileNotFoundError:
            return ""

    def read_output(self) -> str:
        """Read what the test printed: from the log, or from the answer of a rank on another machine."""
        if self.process is None and self.answer is not None:
            return str(self.answer["output"])
        return self.read_log()

    def mark_log(self) -> None:
        """Remember where the output of the next test begins."""
        self.log_begin = self.log.stat().st_size if self.log.exists() else 0


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What sets must have in common to be used for the same tests: processes, devices, launch."""

    processes: int
    width: int
    dynamic: bool


@dataclass(kw_only=True)
class RankSet:
    """A set of ranks bound to a block of devices."""

    name: str
    shape: Shape
    start: int
    devices: tuple[str, ...]
    mark: str
    members: list[Member]
    state: State = State.STARTING
    since: float = field(default_factory=time.monotonic)
    spare: bool = False
    grant: Grant | None = None
    attempt: int = 1
    dispatched: float = 0.0
    grace_end: float | None = None
    first_resident: dict[int, int] = field(default_factory=dict)
    last: str = ""
    tell: Callable[[Message], None] | None = None
    """How to reach the agents of the other nodes, if the set spans several."""

    @property
    def test(self) -> str:
        """The id of the test that this set runs or waits to run."""
        return self.grant.task.id if self.grant else ""

    def move(self, state: State) -> None:
        """Enter a state; the limits of a state count from here."""
        self.state = state
        self.since = time.monotonic()

    def send(self, message: Message) -> None:
        """Send a message to every rank."""
        for member in self.members:
            if member.channel is not None:
                member.channel.send(message)

    def dispatch(self, message: Message) -> None:
        """Start a test on all ranks."""
        for member in self.members:
            member.answer = None
            member.mark_log()
        self.grace_end = None
        self.dispatched = time.monotonic()
        self.move(State.BUSY)
        self.send(message)

    def ask_stacks(self, members: Sequence[Member], number: int) -> None:
        """Have these ranks write the stacks of all their threads into their logs."""
        pids = [member.pid for member in members if member.pid and not member.closed]
        if self.tell is not None:
            self.tell({"do": "signal", "pids": pids, "number": int(number)})
        kill_all(pids, number)
        if pids:
            time.sleep(STACK_WAIT)

    def kill(self) -> None:
        """End every process of the set, also those that the tests started."""
        for member in self.members:
            if member.process is not None and member.process.pid:
                kill_rank(member.process.pid)
        if self.tell is not None:
            self.tell({"do": "drop", "set": self.name})
        kill_all(find_marked(self.mark) - {os.getpid()})
        for member in self.members:
            if member.process is not None:
                member.process.join(JOIN_LIMIT)
            if member.channel is not None:
                member.channel.close()
        self.move(State.GONE)


def compare_ids(expected: Sequence[str], known: Sequence[str], members: Sequence[Member]) -> list[str]:
    """Compare the ranks' ids with the controller's: `expected` will run, `known` were collected; order is harmless.

    What every rank collected beyond that is no difference: --lf, say, shows the controller less.
    """
    common = set.intersection(*(set(member.ids or ()) for member in members))
    problems = []
    for member in members:
        ids = set(member.ids or ())
        missing = [test for test in expected if test not in ids]
        extra = sorted(ids - set(known) - common)
        why = f" ({member.errors[0].strip().splitlines()[-1]})" if member.errors else ""
        if missing:
            problems.append(f"rank {member.rank} did not collect {_some(missing)}{why}")
        if extra:
            problems.append(f"rank {member.rank} collected more than the controller: {_some(extra)}")
    return problems


def _some(tests: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(tests[:most])
    return f"{shown} and {len(tests) - most} more" if len(tests) > most else shown


def find_sickness(one: RankSet) -> str:
    """Say why ranks that all answered cannot be trusted with another test; "" when they can."""
    for member in one.members:
        health = (member.answer or {}).get("health")
        if not health:
            continue
        if health["sticky"]:
            return f"CUDA does not answer any more on rank {member.rank}: {health['sticky']}"
        growth = health["resident"] - one.first_resident.setdefault(member.rank, health["resident"])
        if growth > MOST_GROWTH:
            return f"rank {member.rank} has grown by {growth >> 20} MiB since its first test"
        if health["total"] and health["allocated"] > MOST_DEVICE_SHARE * health["total"]:
            return f"rank {member.rank} keeps {health['allocated'] >> 20} MiB of its device between tests"
    return ""
