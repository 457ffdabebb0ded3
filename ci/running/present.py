"""A verdict on ranks -> the reports that pytest's own hooks carry on (terminal, JUnit, --lf, -x)."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pytest
from _pytest._code.code import ReprFileLocation, TerminalRepr
from _pytest._io import TerminalWriter

from ci.report.model import Outcome
from ci.running.channel import Message
from ci.running.merge import RankAnswer, Verdict

Phase = Literal["setup", "call", "teardown"]
PHASES: tuple[Phase, ...] = ("setup", "call", "teardown")


class RankFailure(TerminalRepr):
    """What pytest shows of a test that failed on ranks: the verdict, then each rank's own words."""

    def __init__(self, reason: str, parts: Sequence[tuple[str, str]], *, path: str, line: int) -> None:
        """Keep the parts: (headline, text) of each rank that did not pass."""
        self.reason = reason
        self.parts = tuple(parts)
        self.reprcrash = ReprFileLocation(path, line, reason)

    def toterminal(self, tw: TerminalWriter) -> None:
        """Write all of it."""
        tw.line(self.reason, red=True)
        for headline, text in self.parts:
            if text.strip():
                tw.sep("-", headline.partition(":")[0])
                tw.line(text.rstrip())


def read_reports(config: pytest.Config, answer: Message | None, key: str = "reports") -> list[pytest.TestReport]:
    """Give the reports in a rank's message as pytest's own values."""
    build = config.hook.pytest_report_from_serializable
    reports = [build(config=config, data=data) for data in (answer or {}).get(key, ())]
    for report in reports:
        if isinstance(report.longrepr, list):  # JSON has no tuples; pytest reads a skip's place from one
            report.longrepr = tuple(report.longrepr)
    return reports


def tell_report(report: pytest.TestReport) -> str:
    """Give what pytest would show of a report, as plain text."""
    text = io.StringIO()
    report.toterminal(TerminalWriter(text))
    return text.getvalue()


def make_reports(
    item: pytest.Item,
    verdict: Verdict,
    answers: Sequence[RankAnswer],
    reports: Mapping[int, list[pytest.TestReport]],
    outputs: Mapping[int, str],
) -> list[pytest.TestReport]:
    """Make the reports of one test: those of the ranks if they agree, else one failure that holds them all."""
    properties = [(f"rank{one.rank}", f"{one.word} {one.duration:.4f} s {one.device}".strip()) for one in answers]
    if verdict.outcome in (Outcome.PASSED, Outcome.SKIPPED, Outcome.XFAILED):
        own = reports[answers[0].rank]
        for report in own:
            same = [one for rank in reports.values() for one in rank if one.when == report.when]
            report.duration = max(one.duration for one in same)
            report.user_properties = [*report.user_properties, *properties]
        return own
    when = _find_phase(verdict, reports)
    made = []
    for phase in PHASES:
        red = phase == when
        spent = max((one.duration for rank in reports.values() for one in rank if one.when == phase), default=0.0)
        path, line, _ = item.location
        parts = [_tell(one, reports.get(one.rank, [])) for one in answers] if red else []
        made.append(
            pytest.TestReport(
                item.nodeid, item.location, dict.fromkeys(map(str, item.keywords), 1),
                "failed" if red else "passed",
                RankFailure(verdict.reason, parts, path=path, line=(line or 0) + 1) if red else None,
                phase,
                sections=_sections(outputs) if red else [],
                duration=spent, user_properties=properties,
            )
        )  # fmt: skip
        if red and phase == "setup":
            made.append(_passed(item, "teardown"))
            break
    return made


def make_late_error(item: pytest.Item, reason: str, parts: Sequence[tuple[str, str]]) -> pytest.TestReport:
    """Make the report of an error that was found after the test had its answer."""
    path, line, _ = item.location
    failure = RankFailure(reason, parts, path=path, line=(line or 0) + 1)
    keywords: Any = dict.fromkeys(map(str, item.keywords), 1)
    return pytest.TestReport(item.nodeid, item.location, keywords, "failed", failure, "teardown")


def _sections(outputs: Mapping[int, str]) -> list[tuple[str, str]]:
    return [(f"rank {rank} output", text) for rank, text in outputs.items() if text.strip()]


def _passed(item: pytest.Item, when: Any) -> pytest.TestReport:
    keywords: Any = dict.fromkeys(map(str, item.keywords), 1)
    return pytest.TestReport(item.nodeid, item.location, keywords, "passed", None, when)


def _find_phase(verdict: Verdict, reports: Mapping[int, list[pytest.TestReport]]) -> str:
    """Find the phase in which the blamed rank failed; a crash, a hang and a disagreement belong to the call."""
    if verdict.outcome in (Outcome.CRASHED, Outcome.HUNG):
        return "call"
    failed = [report for report in reports.get(verdict.blamed, []) if report.failed]
    return str(failed[0].when) if failed else "call"


def _tell(answer: RankAnswer, reports: Sequence[pytest.TestReport]) -> tuple[str, str]:
    text = "\n".join(tell_report(report) for report in reports if report.failed)
    return f"{answer.describe()} ({answer.duration:.2f} s)", text
