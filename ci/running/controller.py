"""The one visible pytest session: it hands the tests to process sets and reports each of them once.

items -> demands -> order -> grant (devices, locks) -> set -> answers -> verdict -> pytest's own hooks
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from ci.report.model import Problem
from ci.running.agent import TOKEN
from ci.running.backend import choose_backend, rank_arguments
from ci.running.crew import Demand, Locks, read_demand
from ci.running.durations import read_durations
from ci.running.events import Kind
from ci.running.fleet import Fleet
from ci.running.launcher import Launcher
from ci.running.locks import read_held
from ci.running.merge import merge_answers
from ci.running.pool import Grant, Scheduler, Task, choose_order
from ci.running.present import read_reports
from ci.running.rankset import RankSet, Shape, State, find_sickness
from ci.running.reporter import Reporter
from ci.running.session import SessionPlugin
from ci.running.setwatch import Event, FleetPlan, Happening
from ci.running.stacks import trim_stacks

INFRASTRUCTURE_CODE = 3
LOCK_PAUSE = 0.2
TELL_AFTER = 1.0
GROUP_SHARE = 0.8
"""Part of the test limit after which a process group gives up: it names the collective, the limit only the test."""
WIND_DOWN = 10.0
"""Seconds for idle sets to tear down when the session stops early."""


class Controller:
    """Runs a session's tests on sets."""

    def __init__(self, plugin: SessionPlugin) -> None:
        """Join a session; in a stage with ranks or devices the server of the sets warms up while it collects."""
        self.plugin = plugin
        self.job = plugin.job
        self.config = plugin.config
        warm = bool(self.job.stage.ranks or self.job.stage.devices)
        self.launcher = Launcher(self.job.preload) if warm else None
        self.known: tuple[str, ...] = ()
        self.items: dict[str, pytest.Item] = {}
        self.demands: dict[str, Demand] = {}
        self.left: Counter[Shape] = Counter()
        self.idle_since = 0.0
        self.told = False

    @pytest.hookimpl(wrapper=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]):  # type: ignore[no-untyped-def] # noqa: ANN201 - pluggy's wrapper
        """Keep what is selected before --lf and its like choose: ranks collect that much."""
        result = yield
        self.known = (*self.known, *(item.nodeid for item in items))
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the tests that need none in this process, then the others on sets; None leaves all to pytest."""
        if session.testsfailed and not session.config.option.continue_on_collection_errors:
            return None
        if session.config.option.collectonly:
            return None
        demands = {item.nodeid: read_demand(item, self.job.stage, reruns=self.job.reruns) for item in session.items}
        if not any(demand.width for demand in demands.values()):
            return None
        self.demands = demands
        self.items = {item.nodeid: item for item in session.items if demands[item.nodeid].width}
        self.reporter = Reporter(self.plugin, self.items)
        self._run_plain(session, [item for item in session.items if not demands[item.nodeid].width])
        with tempfile.TemporaryDirectory(prefix="lockgate-", ignore_cleanup_errors=True) as scratch:
            self._run_sets(session, Path(scratch))
        return True

    def _run_plain(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        for item, following in zip(items, [*items[1:], None], strict=False):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            self._stop_if_asked(session)

    def _stop_if_asked(self, session: pytest.Session) -> None:
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)

    # Sets --------------------------------------------------------------------------------------

    def _run_sets(self, session: pytest.Session, scratch: Path) -> None:
        stage = self.job.stage
        self.locks = Locks(self.job.devices, os.environ)
        across = self.job.nodes > 1  # the devices of other nodes are theirs to name: one test at a time
        size = 0 if across else len(self.job.devices)
        size = size or max(demand.width for demand in self.demands.values())
        durations, _ = read_durations(Path(self.job.durations))
        estimates = durations.estimates(self.items, kind=self.job.kind)
        tasks = [Task(id=test, width=self.demands[test].width, duration=estimates[test]) for test in self.items]
        placeable = [task for task in tasks if task.width <= size and task.width % self.job.nodes == 0]
        order = choose_order(placeable, size).order if len(self.job.devices) > 1 and not across else tuple(placeable)
        self.scheduler = Scheduler(order, size)
        self.left = Counter(self.demands[task.id].shape for task in placeable)
        self.fleet = Fleet(
            FleetPlan(
                run_id=self.job.run_id, folder=Path(self.job.folder), scratch=scratch,
                arguments=rank_arguments(self.config.invocation_params.args), backend=choose_backend(self.job),
                test_limit=stage.test_timeout, grace=min(stage.grace, stage.test_timeout),
                group_limit=max(1.0, GROUP_SHARE * stage.test_timeout),
                masks_devices=bool(self.job.devices) and not self.job.simulated and not across,
                nodes=self.job.nodes, listen=self.job.listen, token=os.environ.get(TOKEN, ""),
                expected=lambda: tuple(self.items), known=lambda: self.known,
                files=tuple({str(item.path): None for item in self.items.values()}),
            ),
            self.launcher or Launcher(self.job.preload),
        )  # fmt: skip
        try:
            for task in tasks:
                if task not in placeable:
                    self.reporter.refuse(task, size=size, nodes=self.job.nodes)
                    self._stop_if_asked(session)
            self.fleet.wait_for_agents()
            self._loop(session)
        except (session.Failed, session.Interrupted):
            self._wind_down()
            raise
        finally:
            self.fleet.close()

    def _loop(self, session: pytest.Session) -> None:
        retry = 0.0
        while True:
            if time.monotonic() >= retry:
                waits = self._grant_all()
                retry = time.monotonic() + LOCK_PAUSE if waits else 0.0
                self._tell_wait(waits=waits)
            if not self.scheduler.waiting and not self.fleet.sets:
                return
            for happening in self.fleet.poll(LOCK_PAUSE if retry else 1.0):
                self._act(happening)
                self._stop_if_asked(session)
            for one in list(self.fleet.sets):
                if one.spare and not self.left[one.shape]:
                    self._release_spare(one)
                elif one.state is State.IDLE and one.grant is None and (one.shape.dynamic or not self.left[one.shape]):
                    self.fleet.end(one)
                elif one.grace_end is not None and one.state is State.BUSY:
                    self._keep_spare(one)

    def _grant_all(self) -> bool:
        """Hand out what fits now; gives whether a test waits for devices or a port that others hold."""
        blocked: set[int] = set()
        while (grant := self.scheduler.next_grant(blocked=blocked)) is not None:
            if not self._try_assign(grant):
                self.scheduler.put_back(grant)
                blocked.update(grant.positions)
        return bool(blocked)

    def _tell_wait(self, *, waits: bool) -> None:
        """Say once, after a second without a test running, which other run holds the devices."""
        idle = waits and not any(one.grant for one in self.fleet.sets)
        self.idle_since = (self.idle_since or time.monotonic()) if idle else 0.0
        if idle and not self.told and time.monotonic() - self.idle_since > TELL_AFTER:
            self.told = True
            for uuid, holder in read_held(self.locks.uuids, environ=os.environ).items():
                self.plugin.log.write(Kind.NOTE, message=f"waits for {uuid}, held by {holder}", now=True)

    def _try_assign(self, grant: Grant) -> bool:
        """Give a test to an idle set, a spare or a new one; False when another run holds what it needs."""
        demand = self.demands[grant.task.id]
        if not self.locks.is_free(demand.ports) or not self.locks.take(demand.ports):
            return False
        found = self._find_set(demand, grant.start)
        if found is None:
            uuids = self._uuids(grant)
            if not self.locks.take(uuids):
                self.locks.give(demand.ports)
                return False
            self._end_overlapping(grant)
            found = self._open(demand, grant.start, uuids)
        self.left[demand.shape] -= 1
        self._occupy(found, grant, attempt=1)
        return True

    def _occupy(self, one: RankSet, grant: Grant, *, attempt: int) -> None:
        one.grant = grant
        one.attempt = attempt
        one.spare = False
        if one.state is State.IDLE:
            self._start(one)

    def _find_set(self, demand: Demand, start: int) -> RankSet | None:
        fit = [
            one
            for one in self.fleet.sets
            if one.shape == demand.shape and one.start == start and one.grant is None
            and (one.spare or (one.state is State.IDLE and not demand.shape.dynamic))
        ]  # fmt: skip
        return min(fit, key=lambda one: one.spare) if fit else None

    def _open(self, demand: Demand, start: int, uuids: tuple[str, ...], *, spare: bool = False) -> RankSet:
        inherit = self.locks.descriptors(uuids)
        return self.fleet.open(demand.shape, start=start, devices=uuids, inherit=inherit, spare=spare)

    def _end_overlapping(self, grant: Grant) -> None:
        """End idle sets of another shape on these devices: what they hold of a real device's memory is needed."""
        for one in list(self.fleet.sets):
            overlaps = set(grant.positions) & set(range(one.start, one.start + one.shape.width))
            if overlaps and one.state is State.IDLE and one.grant is None and self.fleet.plan.masks_devices:
                self.fleet.end(one)

    def _keep_spare(self, one: RankSet) -> None:
        """Warm a spare while the peers' grace runs, so that the next test does not wait for imports."""
        waiting = self.left[one.shape] > 0
        if waiting and not any(other.spare and other.start == one.start for other in self.fleet.sets):
            assert one.grant is not None
            uuids = self._uuids(one.grant)
            if self.locks.take(uuids):
                self._open(self.demands[one.test], one.start, uuids, spare=True)

    def _release_spare(self, one: RankSet) -> None:
        self.fleet.drop(one)
        self.locks.give(one.devices)

    def _uuids(self, grant: Grant) -> tuple[str, ...]:
        if not self.job.devices or self.job.nodes > 1:
            return ()
        return tuple(self.job.devices[position].uuid for position in grant.positions)

    # One test ----------------------------------------------------------------------------------

    def _start(self, one: RankSet) -> None:
        item = self.items[one.test]
        about: dict[str, Any] = {
            "width": one.shape.width,
            "devices": list(one.devices),
            "set": one.name,
            "attempt": one.attempt,
        }
        if one.attempt == 1:
            self.plugin.about[one.test] = about
            item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        else:
            self.plugin.log.write(Kind.START, test=one.test, **about)
        self.fleet.dispatch(one, one.test, one.attempt)

    def _act(self, happening: Happening) -> None:
        one = happening.set
        if happening.event is Event.READY and one.grant is not None:
            self._start(one)
        elif happening.event is Event.DONE:
            self._judge(happening)
        elif happening.event is Event.LOST:
            self._lose(one, happening.detail)
        elif happening.event is Event.ENDED:
            self._part(one, happening.detail)

    def _judge(self, happening: Happening) -> None:
        """Merge the answers, decide on a rerun and on the set, report."""
        one = happening.set
        assert one.grant is not None
        duration = time.monotonic() - one.dispatched
        self.reporter.amend_late(one)
        reports = {member.rank: read_reports(self.config, member.answer) for member in one.members}
        answers = [self.reporter.read_answer(member, reports[member.rank], one) for member in one.members]
        outputs = {member.rank: trim_stacks(member.read_output()) for member in one.members}
        verdict = merge_answers(answers, limit=happening.detail, graced=happening.graced)
        why = verdict.why_dropped or find_sickness(one)
        again = verdict.outcome.is_red and one.attempt <= self.demands[one.test].reruns
        grant, test, attempt, demand = one.grant, one.test, one.attempt, self.demands[one.test]
        if again:
            self.plugin.log.write(
                Kind.RETRY, test=test, outcome=verdict.outcome, attempt=attempt, reason=verdict.reason,
                devices=list(one.devices),
            )  # fmt: skip
        else:
            self.reporter.report(one, verdict, answers, reports, outputs, duration)
        one.grant = None
        one.last = test
        if why:
            self._drop(one, why, test)
        else:
            one.move(State.IDLE)
        if again:
            self._run_again(one, demand, grant, attempt + 1)
            return
        self.locks.give(demand.ports)
        self.scheduler.release(grant)

    def _run_again(self, one: RankSet, demand: Demand, grant: Grant, attempt: int) -> None:
        if one.state is State.GONE:
            one_spare = self._find_set(demand, grant.start)
            uuids = self._uuids(grant)
            if one_spare is None:
                self.locks.take(uuids)  # never refused: the devices were this run's until now
                one_spare = self._open(demand, grant.start, uuids)
            one = one_spare
        self._occupy(one, grant, attempt=attempt)

    # Ends --------------------------------------------------------------------------------------

    def _drop(self, one: RankSet, why: str, test: str) -> None:
        self.plugin.log.write(Kind.RESTART, test=test, set=one.name, reason=why, devices=list(one.devices))
        self.fleet.drop(one)
        self.locks.give(one.devices)

    def _part(self, one: RankSet, trouble: str) -> None:
        """Take leave of a set that has ended: what its last fixtures left is its last test's."""
        self.reporter.amend_late(one, key="ended")
        said = {member.rank: (member.ended or {}).get("error", "") for member in one.members}
        errors = [f"rank {rank}: {error}" for rank, error in said.items() if error]
        if errors:
            self.plugin.log.write(Kind.NOTE, message=f"leaving the process group failed: {'; '.join(errors)}")
        if trouble and one.last:
            logs = [(f"rank {member.rank} log", member.read_log()) for member in one.members]
            self.reporter.amend(one.last, f"after the last test of its set: {trouble}", logs)
        self.fleet.drop(one)
        self.locks.give(one.devices)

    def _lose(self, one: RankSet, detail: str) -> None:
        """End the run: a set that cannot start says nothing about a test, and no other would fare better."""
        hint = f"the ranks' logs are {Path(self.job.folder).name}/rank-{one.name}-r*.log"
        problem = Problem(check="ranks", message=detail, hint=hint, devices=one.devices)
        self.plugin.log.write(Kind.PROBLEM, problem=asdict(problem))
        pytest.exit(f"infrastructure: {detail}", returncode=INFRASTRUCTURE_CODE)

    def _wind_down(self) -> None:
        """End idle sets in order when the session stops early; what runs is killed."""
        for one in list(self.fleet.sets):
            self.fleet.end(one)
        end = time.monotonic() + WIND_DOWN
        while self.fleet.sets and time.monotonic() < end:
            for happening in self.fleet.poll(LOCK_PAUSE):
                if happening.event is Event.ENDED:
                    self._part(happening.set, happening.detail)
