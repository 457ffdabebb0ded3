"""What a person reads at the end of a run; the first line carries the counts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ci.report.model import Outcome, RunReport, TestResult, is_green

ALWAYS = (Outcome.PASSED, Outcome.FAILED, Outcome.SKIPPED, Outcome.NOT_RUN)
MOST_LISTED = 20


def render_first_line(report: RunReport) -> str:
    """Render the line that says it all: `cpu_gate: GREEN  3 passed, 0 failed, 0 skipped, 0 not-run (1.2 s)`."""
    totals = report.totals
    counts = [f"{totals[outcome]} {outcome}" for outcome in Outcome if outcome in ALWAYS or totals[outcome]]
    red = "INFRASTRUCTURE" if report.infrastructure else "RED"
    verdict = "GREEN" if report.exit_code == 0 else red
    simulated = "  [simulated: no real device]" if report.simulated else ""
    shard = f" shard {report.shard}" if report.shard else ""
    seconds = max(0.0, report.finished - report.started)
    return f"{report.stage}{shard}: {verdict}  {', '.join(counts)} ({seconds:.1f} s){simulated}"


def render_summary(report: RunReport) -> list[str]:
    """Render the whole summary: counts, why it is red, red tests, skips with their reasons, notes."""
    lines = [render_first_line(report)]
    lines += [f"  red because: {reason}" for reason in report.reasons]
    for problem in report.infrastructure:
        lines.append(f"  {problem.check}: {problem.message}" + (f" ({problem.hint})" if problem.hint else ""))
    lines += _list([result for result in report.results if not is_green(result) and result.outcome.is_red])
    lines += _list([result for result in report.results if result.outcome is Outcome.NOT_RUN])
    lines += _list_skips([result for result in report.results if result.outcome is Outcome.SKIPPED])
    flaky = [result for result in report.results if result.attempts > 1 and result.outcome is Outcome.PASSED]
    lines += [f"  flaky: {result.id} passed at attempt {result.attempts}" for result in flaky]
    lines += [f"  note: {note}" for note in report.notes]
    return lines


def render_markdown(lines: Sequence[str]) -> str:
    """Render the summary for a workflow's step summary."""
    first, *rest = lines
    body = "\n".join(f"- {line.strip()}" for line in rest)
    return f"### {first}\n\n{body}\n"


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
