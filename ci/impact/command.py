"""`lockgate plan STAGE`: which tests of a stage a change needs, and why."""

from __future__ import annotations

import argparse
import heapq
from dataclasses import replace
from pathlib import Path

from ci.context import Context
from ci.errors import ManifestError, UsageError
from ci.impact.decide import decide
from ci.impact.gather import Request, gather, require_stage
from ci.impact.git import temporary_folder
from ci.impact.plan import Decision, Plan, Shard, run_everything
from ci.impact.plan_file import render_document, write_plan
from ci.impact.reasons import Reason
from ci.impact.render import (
    explain_path,
    explain_test,
    headline,
    job_outputs,
    list_tests,
    render_markdown,
    render_table,
)
from ci.manifest.model import Manifest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `lockgate plan`."""
    parser.add_argument("stage", metavar="STAGE", help="a row of [tool.lockgate.stages]; any name where there are none")
    parser.add_argument("--manifest", metavar="FILE", help="what the last nightly recorded; without it everything runs")
    parser.add_argument("--base", metavar="REV", help="what the change is compared with (default: the default branch)")
    parser.add_argument("--head", metavar="REV", help="the change (default: the work tree as it is)")
    parser.add_argument("--policy-ref", metavar="REV", help="where the settings are read (default: the base)")
    parser.add_argument(
        "--force", action="store_true", help="plan the whole stage (a label or a dispatch asked for it)"
    )
    parser.add_argument("--all", action="store_true", help="the same as --force")
    parser.add_argument("--marker", metavar="EXPR", help="select by this marker expression instead of a row's")
    parser.add_argument("--simulated", action="store_true", help="the tests will run on simulated devices")
    parser.add_argument("--shards", metavar="N", type=int, default=0, help="split the plan for a matrix of N jobs")
    parser.add_argument("--explain", metavar="TEST", help="say in one line why a test runs or not")
    parser.add_argument("--why", metavar="PATH", help="say what a changed path leads to")
    parser.add_argument("--format", choices=("table", "json", "markdown"), default="table")
    parser.add_argument("--out", metavar="FILE", help="write the plan as JSON there")


def run(options: argparse.Namespace, context: Context) -> int:
    """Plan, show, write; exit code 0 for any decision."""
    require_stage(options.stage)
    if options.shards < 0:
        raise UsageError(f"--shards is {options.shards}, expected a number of jobs")
    plan = make_plan(options, context)
    if options.out:
        write_plan(plan, context.path(options.out))
    for warning in plan.warnings:
        context.out.warn(warning)
    context.out.set_outputs(job_outputs(plan))
    context.out.summary(render_markdown(plan))
    show(plan, options, context)
    return 0


def make_plan(options: argparse.Namespace, context: Context) -> Plan:
    """Gather, decide, split."""
    force = "--force asked for the whole stage" if options.force or options.all else ""
    request = Request(
        stage=options.stage,
        manifest=context.path(options.manifest) if options.manifest else None,
        base=options.base,
        head=options.head,
        policy_ref=options.policy_ref,
        force=force,
        marker=options.marker,
        simulated=options.simulated,
    )
    try:
        with temporary_folder() as folder:
            found = gather(request, context, folder=Path(folder))
        if not isinstance(found, Plan):
            plan = decide(found)
            return replace(plan, shards=split_plan(plan, found.manifest, options.shards)) if options.shards else plan
    except ManifestError as error:
        # A packed value is only read when a rule asks for it.
        found = run_everything(options.stage, Reason.MANIFEST_REFUSED, str(error))
    if options.shards:
        # Without evidence there are no durations to split by; the runner splits what it collects.
        shards = tuple(Shard(index=index, tests=(), seconds=0.0) for index in range(1, options.shards + 1))
        return replace(found, shards=shards)
    return found


def split_plan(plan: Plan, manifest: Manifest, count: int) -> tuple[Shard, ...]:
    """Split a plan by recorded durations, longest first onto the shard with the least; unknown ones take the median."""
    durations = {test.id: test.duration for test in manifest.tests}
    ids = [test.id for test in manifest.tests] if plan.decision is Decision.ALL else [item.id for item in plan.tests]
    known = sorted(durations.values())
    median = known[len(known) // 2] if known else 0.0
    loads = [(0.0, index) for index in range(count)]
    parts: list[list[str]] = [[] for _ in range(count)]
    sums = [0.0] * count
    for test in sorted(ids, key=lambda one: (-durations.get(one, median), one)):
        load, index = heapq.heappop(loads)
        parts[index].append(test)
        sums[index] = load + durations.get(test, median)
        heapq.heappush(loads, (sums[index], index))
    return tuple(Shard(index=place + 1, tests=tuple(part), seconds=sums[place]) for place, part in enumerate(parts))


def show(plan: Plan, options: argparse.Namespace, context: Context) -> None:
    """Print the answer that was asked for."""
    out = context.out
    if options.explain:
        line = explain_test(plan, options.explain)
        if not line:
            raise UsageError(
                f"the plan knows no test {options.explain!r}",
                hint="give a node id as pytest prints it, relative to the repository",
            )
        out.line(line)
    if options.why:
        lines = explain_path(plan, options.why) or [f"{options.why}: did not change; it leads to nothing"]
        for line in lines:
            out.line(line)
    if options.explain or options.why:
        return
    if options.format == "json":
        out.json(render_document(plan))
    elif options.format == "markdown":
        out.line(render_markdown(plan))
    else:
        out.line(f"{plan.stage}: {headline(plan)}")
        for line in list_tests(plan.tests):
            out.line(line)
        if plan.causes:
            out.show(render_table(plan))
