"""What a person reads at the end of a run; the first line carries the counts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ci.report.model import Outcome, RunReport, TestResult
from ci.report.terminal import headline

MOST_LISTED = 20


def render_summary(report: RunReport) -> list[str]:
    """Render the whole summary: counts, why it is red, red tests, skips with their reasons, notes."""
    lines = [f"{headline(report)} ({max(0.0, report.finished - report.started):.1f} s)"]
    lines += [f"  red because: {reason}" for reason in report.reasons]
    for problem in report.infrastructure:
        lines.append(f"  {problem.check}: {problem.message}" + (f" ({problem.hint})" if problem.hint else ""))
    lines += _list([result for result in report.results if result.outcome.is_red])
    lines += _list([result for result in report.results if result.outcome is Outcome.NOT_RUN])
    lines += _list_skips([result for result in report.results if result.outcome is Outcome.SKIPPED])
    flaky = [result for result in report.results if result.attempts > 1 and result.outcome is Outcome.PASSED]
    lines += [f"  flaky: {result.id} passed at attempt {result.attempts}" for result in flaky]
    lines += [f"  note: {note}" for note in report.notes]
    return lines


def outputs_of(report: RunReport) -> Mapping[str, str]:
    """Give the outputs that a workflow job may use."""
    return {"verdict": "green" if report.exit_code == 0 else "red", "simulated": str(report.simulated).lower()}


def _list(results: Sequence[TestResult]) -> list[str]:
    lines = [
        f"  {result.outcome}: {result.id}" + (f"  ({result.reason})" if result.reason else "") for result in results
    ]
    return lines[:MOST_LISTED] + ([f"  ... and {len(lines) - MOST_LISTED} more"] if len(lines) > MOST_LISTED else [])


def _list_skips(results: Sequence[TestResult]) -> list[str]:
    groups: dict[tuple[str, str, bool], list[TestResult]] = {}
    for result in results:
        groups.setdefault((result.skip_class, result.reason, result.declared), []).append(result)
    return [
        f"  skipped {len(group)} ({name}{'' if declared else ', undeclared'}): {reason}"
        for (name, reason, declared), group in groups.items()
    ]
