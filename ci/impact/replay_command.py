"""`lockgate replay --last N`: what would have been selected on each of the last commits, and was it right."""

from __future__ import annotations

import argparse
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from ci.context import Context
from ci.errors import GitError, ManifestError, UsageError
from ci.impact.decide import decide
from ci.impact.gather import Request, find_stage, gather, read_worktree_settings, require_stage
from ci.impact.git import Repository, open_repository, temporary_folder
from ci.impact.plan import Decision, Plan, run_everything
from ci.impact.reasons import Reason
from ci.impact.verify import checked_out, find_missed, run_commit
from ci.manifest.publish import restore
from ci.stages.model import Stage


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """One commit: its plan, and what a full run said, if it was run."""

    commit: str
    subject: str
    plan: Plan
    verified: bool = False
    failed: int = 0
    missed: tuple[str, ...] = ()
    problem: str = ""

    @property
    def share(self) -> float:
        """Share of the known tests that run, 0 to 1."""
        if self.plan.decision is Decision.ALL:
            return 1.0
        return self.plan.selected / self.plan.known if self.plan.known else 0.0

    @property
    def time_share(self) -> float:
        """Share of the recorded seconds that run, 0 to 1."""
        if self.plan.decision is Decision.ALL:
            return 1.0
        return self.plan.seconds / self.plan.total_seconds if self.plan.total_seconds else self.share


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `lockgate replay`."""
    parser.add_argument("stage", metavar="STAGE", nargs="?", default="cpu_gate", help="a row (default: cpu_gate)")
    parser.add_argument("--last", metavar="N", type=int, required=True, help="how many commits, along first parents")
    parser.add_argument("--manifest", metavar="FILE", help="default: the newest of the stage in the store")
    parser.add_argument("--branch", metavar="REV", default="HEAD", help="where to start (default: HEAD)")
    parser.add_argument("--verify", metavar="K", type=int, default=0, help="really run K of them, and count misses")
    parser.add_argument("--marker", metavar="EXPR", help="select by this marker expression instead of a row's")
    parser.add_argument("--format", choices=("table", "json", "markdown"), default="table")


def run(options: argparse.Namespace, context: Context) -> int:
    """Replay, verify, show; exit code 1 if a verified plan missed a failing test."""
    require_stage(options.stage)
    if options.last < 1 or options.verify < 0:
        raise UsageError("--last and --verify count commits: at least 1 and at least 0")
    repository = open_repository(context.root, context.environ)
    tip = repository.commit(options.branch)
    if tip is None:
        raise GitError(f"--branch {options.branch} is no commit of this clone")
    settings = read_worktree_settings(context)
    with temporary_folder() as name:
        folder = Path(name)
        manifest = find_manifest(options, context, folder, store=settings.store)
        request = Request(stage=options.stage, manifest=manifest, policy_ref=tip, marker=options.marker)
        stage = find_stage(settings, request)
        rows = replay(repository, tip, options.last, request, context, folder=folder)
        rows = verify(repository, rows, options.verify, stage, context, folder=folder)
    context.out.summary(render_markdown(rows, stage))
    if options.format == "json":
        context.out.json(render_document(rows, stage))
    elif options.format == "markdown":
        context.out.line(render_markdown(rows, stage))
    else:
        context.out.show(render_table(rows, stage))
        for line in summarize(rows, stage):
            context.out.line(line)
    return 1 if any(row.missed for row in rows) else 0


def find_manifest(options: argparse.Namespace, context: Context, folder: Path, *, store: str) -> Path:
    """Give the manifest that was named, or the newest of the store; raises `ManifestError` where there is none."""
    if options.manifest:
        path = context.path(options.manifest)
        if not path.is_file():
            raise ManifestError(f"{path} does not exist", hint="record one: `lockgate run STAGE --record DIR`")
        return path
    out = folder / "restored.sqlite"
    slot = restore(context.root / store, stage=options.stage, profile="", out=out)
    if slot.problem:
        raise ManifestError(slot.problem, hint="give one with --manifest FILE")
    return out


def replay(
    repository: Repository, tip: str, count: int, request: Request, context: Context, *, folder: Path
) -> list[Replayed]:
    """Plan each of the last commits against its first parent, newest first."""
    rows = []
    for commit in repository.commits(tip, count):
        parent = repository.commit(f"{commit}^1")
        if parent is None:
            break
        context.out.step(f"plan {commit[:12]}")
        asked = Request(
            stage=request.stage, manifest=request.manifest, base=parent, head=commit, policy_ref=request.policy_ref,
            marker=request.marker,
        )  # fmt: skip
        try:
            found = gather(asked, context, folder=folder)
            plan = found if isinstance(found, Plan) else decide(found)
        except ManifestError as error:
            plan = run_everything(request.stage, Reason.MANIFEST_REFUSED, error.message)
        subject = repository.run("show", "--no-patch", "--format=%s", commit).decode("utf-8", "replace").strip()
        rows.append(Replayed(commit=commit, subject=subject, plan=plan))
    if not rows:
        raise GitError(f"{tip[:12]} has no parent in this clone", hint="fetch more history")
    return rows


def verify(
    repository: Repository, rows: Sequence[Replayed], count: int, stage: Stage, context: Context, *, folder: Path
) -> list[Replayed]:
    """Really run some commits, those first that skip most; a failure counts if the parent does not have it."""
    order = sorted(rows, key=lambda row: row.time_share)
    chosen = {row.commit for row in order[:count]}
    return [_verified(repository, row, stage, context, folder) if row.commit in chosen else row for row in rows]


def _verified(repository: Repository, row: Replayed, stage: Stage, context: Context, folder: Path) -> Replayed:
    context.out.step(f"run {row.commit[:12]} and its parent in full")
    with checked_out(repository, row.plan.base, folder) as root:
        before = run_commit(root, stage, context)
    with checked_out(repository, row.commit, folder) as root:
        after = run_commit(root, stage, context)
    failed = after.failed - before.failed
    return Replayed(
        commit=row.commit,
        subject=row.subject,
        plan=row.plan,
        verified=not (before.problem or after.problem),
        failed=len(failed),
        missed=tuple(find_missed(row.plan, failed)),
        problem=after.problem or before.problem,
    )


def summarize(rows: Sequence[Replayed], stage: Stage) -> list[str]:
    """Give the totals in a few lines: shares, saved device time, why everything ran, misses."""
    shares, times = [row.share for row in rows], [row.time_share for row in rows]
    width = max(1, stage.ranks or stage.devices)
    decisions = Counter(row.plan.decision for row in rows)
    total = sum(row.plan.total_seconds for row in rows)
    saved = sum((1 - row.time_share) * row.plan.total_seconds for row in rows)
    lines = [
        f"{len(rows)} commits: {_typical(shares)} of the tests and {_typical(times)} of the seconds run",
        f"saved: {saved * width:.0f} of {total * width:.0f} {'device' if stage.devices else 'test'} seconds",
        f"nothing ran on {decisions[Decision.NONE]}, everything on {decisions[Decision.ALL]} commits",
    ]
    reasons = Counter(word for row in rows if row.plan.decision is Decision.ALL for word in row.plan.reasons)
    lines += [
        f"everything ran {times} times for {word}: {Reason(word).meaning}" for word, times in reasons.most_common()
    ]
    tried = [row for row in rows if row.verified]
    if tried:
        missed = sum(len(row.missed) for row in tried)
        failed = sum(row.failed for row in tried)
        lines.append(f"verified {len(tried)} commits: {failed} tests failed, {missed} of them were missed")
    lines += [f"could not run {row.commit[:12]}: {row.problem}" for row in rows if row.problem]
    lines += [f"MISSED at {row.commit[:12]}: {name}" for row in rows for name in row.missed]
    return lines


def _typical(shares: Sequence[float]) -> str:
    return f"{statistics.mean(shares):.0%} (median {statistics.median(shares):.0%})"


def _cells(row: Replayed) -> list[str]:
    reason = row.plan.causes[0] if row.plan.causes else None
    why = f"{reason.reason}: {reason.detail}" if reason else row.plan.explanation
    truth = f"{row.failed} failed, {len(row.missed)} missed" if row.verified else row.problem or "-"
    return [
        row.commit[:10],
        row.subject,
        str(row.plan.decision),
        f"{row.share:.0%}",
        f"{row.time_share:.0%}",
        why,
        truth,
    ]


TITLES = ("commit", "subject", "decision", "tests", "seconds", "first reason", "verified")
FREE = ("subject", "first reason")
"""Free text, cut to one line in the table; the summary below it and the other formats have it whole."""


def render_table(rows: Sequence[Replayed], stage: Stage) -> Table:
    """Lay the commits out."""
    table = Table(title=f"replay of {stage.name}", title_justify="left")
    for title in TITLES:
        # rich narrows the columns that may wrap; their cells are cut to one line instead.
        table.add_column(title, no_wrap=title not in FREE)
    for row in rows:
        table.add_row(*(Text(cell, no_wrap=True, overflow="ellipsis") for cell in _cells(row)))
    return table


def render_markdown(rows: Sequence[Replayed], stage: Stage) -> str:
    """Render a step summary."""
    lines = [f"### Replay of `{stage.name}`", "", *(f"- {line}" for line in summarize(rows, stage)), ""]
    lines += [f"| {' | '.join(TITLES)} |", "|---|---|---|---:|---:|---|---|"]
    lines += [
        "| " + " | ".join(cell.replace("|", "\\|").replace("<", "&lt;") for cell in _cells(row)) + " |" for row in rows
    ]
    return "\n".join(lines)


def render_document(rows: Sequence[Replayed], stage: Stage) -> dict[str, Any]:
    """Give the replay as JSON."""
    return {
        "schema": 1,
        "stage": stage.name,
        "summary": summarize(rows, stage),
        "commits": [
            {
                "commit": row.commit,
                "subject": row.subject,
                "decision": str(row.plan.decision),
                "share": round(row.share, 4),
                "time_share": round(row.time_share, 4),
                "reasons": dict(row.plan.reasons),
                "explanation": row.plan.explanation,
                "verified": row.verified,
                "failed": row.failed,
                "missed": list(row.missed),
                "problem": row.problem,
            }
            for row in rows
        ],
    }
