"""What the controller says of its tests: one report each to pytest's hooks, one result each to the log."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

import pytest

from ci.report.model import Outcome, Problem, RankResult, TestResult
from ci.running.events import Kind
from ci.running.merge import RankAnswer, Verdict
from ci.running.outcome import decide_outcome, find_skip_class, is_declared
from ci.running.pool import Task
from ci.running.present import make_late_error, make_reports, read_reports, tell_report
from ci.running.rankset import Member, RankSet
from ci.running.session import SessionPlugin, read_phase, shorten


class Reporter:
    """Speaks for tests that ran on sets; remembers each result, since a wider fixture may amend it later."""

    def __init__(self, plugin: SessionPlugin, items: Mapping[str, pytest.Item]) -> None:
        """Speak through a session's plugin, of these items."""
        self.plugin = plugin
        self.items = items
        self.results: dict[str, TestResult] = {}

    def read_answer(self, member: Member, reports: Sequence[pytest.TestReport], one: RankSet) -> RankAnswer:
        """Read what a rank said of the test, or how it ended without a word."""
        died = member.read_death() if member.answer is None and member.closed else ""
        if member.answer is None:
            spent = time.monotonic() - one.dispatched
            return RankAnswer(rank=member.rank, died=died, duration=spent, device=member.device)
        outcome, reason = decide_outcome([read_phase(report) for report in reports])
        return RankAnswer(
            rank=member.rank, outcome=outcome, reason=reason, duration=sum(report.duration for report in reports),
            device=member.device, sequence=member.answer["sequence"], trouble=member.answer["trouble"],
        )  # fmt: skip

    def report(
        self, one: RankSet, verdict: Verdict, answers: list[RankAnswer],
        reports: dict[int, list[pytest.TestReport]], outputs: dict[int, str], duration: float,
    ) -> None:  # fmt: skip
        """Report a test whose ranks have all said what they will say; `duration` is in seconds."""
        item = self.items[one.test]
        made = make_reports(item, verdict, answers, reports, outputs)
        green = verdict.outcome in (Outcome.PASSED, Outcome.XFAILED)
        told = [report.longreprtext for report in made if report.failed]
        told += [f"--- rank {rank} output ---\n{text}" for rank, text in outputs.items() if text.strip()]
        skip_class = find_skip_class(verdict.reason) if verdict.outcome is Outcome.SKIPPED else ""
        result = TestResult(
            id=item.nodeid, outcome=verdict.outcome, duration=duration, started=time.time() - duration,
            width=one.shape.width, devices=one.devices, skip_class=skip_class, reason=verdict.reason,
            declared=bool(skip_class) and is_declared(skip_class, verdict.reason, self.plugin.job.stage.allow_skips),
            ranks=tuple(
                RankResult(
                    rank=answer.rank, outcome=answer.word, duration=answer.duration, device=answer.device,
                    reason=answer.died or answer.trouble or answer.reason,
                )
                for answer in answers
            ),
            output="" if green else shorten("\n".join(told)), attempts=one.attempt,
        )  # fmt: skip
        self._emit(item, result, made)

    def _emit(self, item: pytest.Item, result: TestResult, made: list[pytest.TestReport]) -> None:
        self.results[item.nodeid] = result
        self.plugin.answers[item.nodeid] = result
        for report in made:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def amend_late(self, one: RankSet, key: str = "answer") -> None:
        """Report the errors of wider fixtures' teardowns, which came after their last test had its answer."""
        parts: list[tuple[str, str]] = []
        for member in one.members:
            late = read_reports(self.plugin.config, getattr(member, key), "late")
            headline = f"rank {member.rank}: teardown of wider fixtures"
            parts += [(headline, tell_report(report)) for report in late]
        if parts and one.last:
            last = parts[0][1].strip().splitlines()[-1]
            self.amend(one.last, f"teardown failed: {last}", parts)

    def amend(self, test: str, reason: str, parts: list[tuple[str, str]]) -> None:
        """Add an error that was found after the test had its answer; (headline, text) of each rank that has one."""
        before = self.results[test]
        item = self.items[test]
        item.ihook.pytest_runtest_logreport(report=make_late_error(item, reason, parts))
        text = "\n".join(f"--- {headline} ---\n{content}" for headline, content in parts)
        red = before.outcome.is_red
        after = replace(
            before, outcome=before.outcome if red else Outcome.ERROR, reason=before.reason if red else reason,
            output=shorten(f"{before.output}\n{text}".strip()),
        )  # fmt: skip
        self.results[test] = after
        self.plugin.finish(after)

    def refuse(self, task: Task, *, size: int, nodes: int) -> None:
        """Answer for a test that is wider than the pool: the machine is not fit for it."""
        item = self.items[task.id]
        reason = f"needs {task.width} devices, the pool has {size}"
        hint = f"--simulate {task.width} runs it on the CPU"
        if task.width <= size:
            reason = f"has {task.width} ranks, which {nodes} nodes cannot share evenly"
            hint = f"give it an `nproc` that {nodes} divides"
        problem = Problem(check="width", message=f"{task.id} {reason}", hint=hint)
        self.plugin.log.write(Kind.PROBLEM, problem=asdict(problem))
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        result = TestResult(id=item.nodeid, outcome=Outcome.INFRASTRUCTURE, reason=reason, width=task.width)
        report = make_late_error(item, reason, [])
        report.when = "setup"
        self._emit(item, result, [report])
