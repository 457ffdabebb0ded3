"""RunReport -> Markdown for a job's step summary. Pure.

GitHub cuts a summary at 1 MiB per step; long lists are cut here, with their count.
"""

from __future__ import annotations

import html
import re

from ci.report.model import Outcome, RunReport, TestResult
from ci.report.terminal import headline

MOST_ROWS = 50
MOST_OUTPUTS = 10
OUTPUT_LIMIT = 4_000

SPECIAL = re.compile(r"([\\`*_\[\]<>|~#!])")


def render_markdown(report: RunReport) -> str:
    """Render the report for a step summary."""
    mark = "✅" if report.is_green else "❌"
    lines = [f"## {mark} {escape(headline(report))}", ""]
    if report.simulated:
        lines += ["> **Simulated devices**: CPU ranks stood in for GPUs; this says nothing about a real runner.", ""]
    facts = [f"commit `{report.commit[:12]}`"] * bool(report.commit)
    facts += [f"took {report.finished - report.started:.1f} s"] * bool(report.finished)
    facts.append(f"{report.executed} of {len(report.results)} tests executed")
    lines += [", ".join(facts), ""]
    items = [f"- **{escape(one.check)}**: {escape(one.message)} — {escape(one.hint)}" for one in report.infrastructure]
    items += [f"- check **{escape(one.name)}** failed" for one in report.checks if not one.passed]
    items += [f"- {escape(reason)}" for reason in report.reasons]
    items += [f"- note: {escape(note)}" for note in report.notes]
    lines += [*items, ""] if items else []
    bad = [result for result in report.results if report.is_bad(result)]
    if bad:
        lines += ["| outcome | seconds | test | why |", "|---|---:|---|---|", *map(_row, bad[:MOST_ROWS]), ""]
        if len(bad) > MOST_ROWS:
            lines += [f"and {len(bad) - MOST_ROWS} more in the report's files", ""]
        shown = [result for result in bad if result.output.strip() and result.outcome is not Outcome.SKIPPED]
        for result in shown[:MOST_OUTPUTS]:
            lines += [
                f"<details><summary>{html.escape(result.id)}</summary>",
                "",
                *_fence(result.output),
                "</details>",
                "",
            ]
    return "\n".join(lines).rstrip() + "\n"


def _row(result: TestResult) -> str:
    reason = result.reason.strip().splitlines()[0] if result.reason.strip() else ""
    ranks = ", ".join(f"rank {rank.rank} {rank.outcome}" for rank in result.ranks if rank.outcome is not Outcome.PASSED)
    why = "; ".join(filter(None, (reason, ranks)))
    return f"| {result.outcome} | {result.duration:.2f} | {code(result.id)} | {escape(why)} |"


def _fence(text: str) -> list[str]:
    tail = text.rstrip()[-OUTPUT_LIMIT:]
    # A fence longer than any run of backticks inside: output can never end it.
    longest = max((len(run) for run in re.findall("`+", tail)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}text", tail, fence]


def escape(text: str) -> str:
    """Escape text for Markdown in one line, so that a test's name or reason stays text."""
    return SPECIAL.sub(r"\\\1", " ".join(text.split()))


def code(text: str) -> str:
    """Show text as code inside a table cell, whatever backticks and bars it holds."""
    plain = " ".join(text.split()).replace("|", "\\|")
    longest = max((len(run) for run in re.findall("`+", plain)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if longest else ""
    return f"{fence}{pad}{plain}{pad}{fence}"
