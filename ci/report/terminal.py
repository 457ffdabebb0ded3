"""RunReport -> what a terminal shows. Pure; the first line carries the verdict and the counts."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ci.report.model import Outcome, RunReport, TestResult

MOST_ROWS = 40
SLOWEST = 5


def headline(report: RunReport) -> str:
    """Say verdict and counts in one line; skipped and not-run are always counted."""
    totals = report.totals
    always = (Outcome.PASSED.value, Outcome.SKIPPED.value, Outcome.NOT_RUN.value)
    counts = ", ".join(f"{count} {name}" for name, count in totals.items() if count or name in always)
    labels = [f"shard {report.shard}"] * bool(report.shard) + ["SIMULATED devices"] * report.simulated
    label = f" [{', '.join(labels)}]" if labels else ""
    return f"{report.stage}{label}: {describe_verdict(report)}: {counts}"


def describe_verdict(report: RunReport) -> str:
    """Say how a run ended in a few words."""
    if not report.is_complete:
        return "never finished"
    if report.is_green:
        return "green"
    # Answered 0, but holds tests that were only collected: nothing was shown to be green.
    return f"red (exit code {report.exit_code})" if report.exit_code else "nothing to judge"


def render_report(report: RunReport, *, verbose: bool = False) -> RenderableType:
    """Lay out a report: headline, why, what is bad, the slowest; `verbose` adds every output."""
    style = "bold green" if report.is_green else "bold red"
    parts: list[RenderableType] = [Text(headline(report), style=style)]
    facts = [f"commit {report.commit[:12]}"] * bool(report.commit)
    facts += [f"took {report.finished - report.started:.1f} s"] * bool(report.finished)
    facts += [f"devices: {report.fingerprint}"]
    parts.append(Text("  " + ", ".join(facts), style="dim"))
    parts += [
        Text(f"  infrastructure: {one.check}: {one.message} ({one.hint})", style="magenta")
        for one in report.infrastructure
    ]
    parts += [Text(f"  check {one.name} failed", style="red") for one in report.checks if not one.passed]
    parts += [Text(f"  {reason}", style="red") for reason in report.reasons]
    parts += [Text(f"  note: {note}", style="yellow") for note in report.notes]
    bad = [result for result in report.results if report.is_bad(result)]
    if bad:
        parts += ["", _table(bad[:MOST_ROWS])]
        if len(bad) > MOST_ROWS:
            parts.append(
                Text(f"  and {len(bad) - MOST_ROWS} more; the timeline and the JUnit file list all", style="dim")
            )
    for result in bad:
        parts += _output(result, verbose=verbose)
    slowest = sorted((one for one in report.results if one.duration > 0), key=lambda one: -one.duration)[:SLOWEST]
    if slowest:
        parts += ["", Text("slowest", style="bold")]
        parts += [Text(f"  {one.duration:8.2f} s  {one.id}") for one in slowest]
    return Group(*parts)


def _table(results: list[TestResult]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("outcome", no_wrap=True)
    table.add_column("seconds", justify="right", no_wrap=True)
    table.add_column("test", overflow="fold")
    for result in results:
        words = Text(result.id)
        if result.reason.strip():
            words.append("\n" + result.reason.strip().splitlines()[0], style="dim")
        for rank in result.ranks:
            words.append(f"\nrank {rank.rank}: {rank.outcome}", style="red" if rank.outcome.is_red else "dim")
            if rank.reason.strip():
                words.append(f" ({rank.reason.strip().splitlines()[0]})", style="dim")
        table.add_row(Text(result.outcome.value, style="red"), f"{result.duration:.2f}", words)
    return table


def _output(result: TestResult, *, verbose: bool) -> list[RenderableType]:
    lines = result.output.rstrip().splitlines()
    if not lines or not verbose:
        return []
    return ["", Text(f"--- {result.id}", style="bold"), *map(Text, lines)]
