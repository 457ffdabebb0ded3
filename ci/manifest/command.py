"""`lockgate manifest build | check | show | publish | restore | escapes`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ci.context import Context
from ci.errors import UsageError
from ci.manifest import publish as publishing
from ci.manifest.build import build_manifest
from ci.manifest.checks import UNPUBLISHABLE_WARNINGS, Evidence, Totals, check_manifest, check_run
from ci.manifest.escapes import find_escapes, read_plans, render_markdown
from ci.manifest.model import Expectations, Finding, Manifest
from ci.manifest.native import Native, find_builds, read_native
from ci.manifest.records import read_records
from ci.manifest.show import render_header, render_path, render_test
from ci.manifest.store import Damaged, load_manifest, write_manifest
from ci.manifest.totals import read_totals
from ci.manifest.tree import read_blobs, read_commits, read_tree
from ci.stages.table import read_settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the six actions."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    build = actions.add_parser("build", help="make a manifest from a recorded run")
    build.add_argument("stage", metavar="STAGE")
    build.add_argument("--run", dest="folder", metavar="DIR", required=True, help="what `run --record DIR` left")
    build.add_argument("--out", metavar="FILE", required=True)
    build.add_argument("--report", metavar="FILE", help="the run's report.json or junit.xml, to be compared with")
    build.add_argument(
        "--profile", metavar="NAME", default="", help="the runner's profile (default: from the environment)"
    )
    build.add_argument("--native", metavar="DIR", action="append", default=[], help="a build folder (default: found)")
    build.add_argument(
        "--generated",
        metavar="GLOB",
        action="append",
        default=[],
        help="untracked files that tests may use because nothing of them matters (a version file)",
    )
    build.add_argument("--simulated", action="store_true", help="the run was on simulated devices")
    check = actions.add_parser("check", help="apply every check to a manifest")
    check.add_argument("file", metavar="FILE")
    check.add_argument("--stage", metavar="STAGE", default="")
    check.add_argument("--profile", metavar="NAME", default="")
    check.add_argument("--max-age-hours", metavar="H", type=float, default=None)
    show = actions.add_parser("show", help="show a manifest, one of its tests, or who depends on a path")
    show.add_argument("file", metavar="FILE")
    show.add_argument("--test", metavar="ID")
    show.add_argument("--path", metavar="PATH")
    show.add_argument("--format", choices=("text", "json"), default="text")
    publish = actions.add_parser("publish", help="put a checked manifest into the store (the publishing job alone)")
    publish.add_argument("file", metavar="FILE")
    publish.add_argument("--store", metavar="DIR", help="default: `store` of [tool.lockgate]")
    restore = actions.add_parser("restore", help="take the newest manifest of a stage from the store")
    restore.add_argument("stage", metavar="STAGE")
    restore.add_argument("--store", metavar="DIR")
    restore.add_argument("--out", metavar="FILE", required=True)
    restore.add_argument("--profile", metavar="NAME", default="")
    escapes = actions.add_parser("escapes", help="tests that failed in a full run though a plan had skipped them")
    escapes.add_argument("stage", metavar="STAGE")
    escapes.add_argument("--report", metavar="FILE", required=True, help="the full run's report.json or junit.xml")
    escapes.add_argument(
        "--plans", metavar="DIR", required=True, help="the plans of the changes since the last full run"
    )
    escapes.add_argument(
        "--since", metavar="REV", default="", help="the last full run's commit (default: every plan counts)"
    )


def run(options: argparse.Namespace, context: Context) -> int:
    """Do one action; 0 means that the manifest is good, 1 that a check did not hold."""
    actions: dict[str, Callable[[argparse.Namespace, Context], int]] = {
        "build": run_build,
        "check": run_check,
        "show": run_show,
        "publish": run_publish,
        "restore": run_restore,
        "escapes": run_escapes,
    }
    return actions[options.action](options, context)


def run_build(options: argparse.Namespace, context: Context) -> int:
    """Turn records into a manifest and check it; an incomplete one is written, marked, and refused by every reader."""
    settings = read_settings(context.root)
    stage = settings.stages.get(options.stage)
    folder = context.path(options.folder)
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}", hint="--run names what `lockgate run STAGE --record DIR` left")
    records = read_records(folder)
    tree = read_tree(context.root, environ=context.environ)
    builds = [context.path(text) for text in options.native] or find_builds(context.root)
    native = read_native(context.root, builds, environ=context.environ) if builds else Native()
    for note in native.notes:
        context.out.warn(f"native: {note}")
    totals = (
        read_totals(context.path(options.report)) if options.report else _found_totals(context, options.stage, records)
    )
    manifest = build_manifest(
        records,
        tree,
        stage=options.stage,
        now=context.clock(),
        native=native,
        generated=options.generated,
        runner_profile=options.profile or context.environ.get("LOCKGATE_RUNNER_PROFILE", ""),
        simulated=options.simulated or any(session.start.get("simulated") for session in records.sessions),
    )
    used = sorted({*manifest.executed, *manifest.imported, *manifest.opened} & set(tree.files))
    evidence = Evidence(
        stage=options.stage,
        records=records,
        tree=tree,
        manifest=manifest,
        totals=totals,
        blobs=read_blobs(tree, used, environ=context.environ),
        allow_skips=stage.allow_skips if stage else (),
    )
    findings = check_run(evidence)
    # What every reader would refuse is not complete, whatever the run looked like.
    readers = check_manifest(
        replace(manifest, header=replace(manifest.header, is_complete=True)), (), Expectations(now=context.clock())
    )
    known = {finding.check for finding in findings}
    findings += [finding for finding in readers if not finding.is_warning and finding.check not in known]
    recorded = {str(session.start.get("stage", "")) for session in records.sessions} - {"", options.stage}
    if recorded:
        findings.append(
            Finding(
                check="stage",
                found=f"a run of {', '.join(sorted(recorded))}",
                expected=options.stage,
                hint="name its stage",
            )
        )
    complete = all(finding.is_warning for finding in findings)
    publishable = complete and not any(finding.check in UNPUBLISHABLE_WARNINGS for finding in findings)
    manifest = replace(manifest, header=replace(manifest.header, is_complete=complete, is_publishable=publishable))
    header = write_manifest(manifest, context.path(options.out), problems=findings)
    _say(findings, context)
    context.out.line(
        f"{options.out}: {len(manifest.tests)} tests, {len(manifest.executed)} files executed, "
        f"{sum(bool(test.opaque) for test in manifest.tests)} opaque tests, {header.content_hash[:12]}"
        + ("" if complete else "; INCOMPLETE, every reader refuses it")
    )
    return 0 if complete else 1


def _found_totals(context: Context, stage: str, records: object) -> Totals:
    """Take the stage's own report when it is there and of this run."""
    path = context.root / ".lockgate" / "report" / stage / "report.json"
    if not path.is_file():
        return Totals()
    totals = read_totals(path)
    sessions = getattr(records, "sessions", [])
    newest = max((float(session.start.get("time", 0.0)) for session in sessions), default=0.0)
    return totals if path.stat().st_mtime >= newest else Totals()


def run_check(options: argparse.Namespace, context: Context) -> int:
    """Read a manifest as a plan would, and list what is wrong with it."""
    path = context.path(options.file)
    settings = read_settings(context.root)
    wanted = Expectations(
        now=context.clock(),
        stage=options.stage,
        runner_profile=options.profile,
        max_age_hours=options.max_age_hours or settings.manifest_max_age_hours,
    )
    manifest, problems = _load(path)
    findings = check_manifest(manifest, problems, wanted)
    findings += [problem for problem in problems if problem.is_warning]
    _say(findings, context)
    fatal = sum(not finding.is_warning for finding in findings)
    verdict = "good" if not fatal else f"refused: {fatal} check(s) do not hold"
    context.out.line(f"{options.file}: {verdict}")
    return 1 if fatal else 0


def run_show(options: argparse.Namespace, context: Context) -> int:
    """Show the header, one test, or one path."""
    manifest, problems = _load(context.path(options.file))
    if options.test and options.path:
        raise UsageError("--test and --path answer two questions", hint="ask one at a time")
    if options.test:
        value = render_test(manifest, options.test)
    elif options.path:
        value = render_path(manifest, options.path)
    else:
        value = render_header(manifest, problems)
    if options.format == "json":
        context.out.json(value)
        return 0
    for key, item in value.items():
        if isinstance(item, list):
            context.out.line(f"{key} ({len(item)})")
            for line in item:
                context.out.line(f"  {line}")
        else:
            context.out.line(f"{key}: {item}")
    return 0


def run_publish(options: argparse.Namespace, context: Context) -> int:
    """Publish, if this is the job that may, and the manifest is complete."""
    store = context.path(options.store) if options.store else context.root / read_settings(context.root).store
    slot = publishing.publish(context.path(options.file), store, environ=context.environ, now=context.clock())
    context.out.line(f"published {slot.content_hash[:12]} as {slot.pointer}")
    return 0


def run_restore(options: argparse.Namespace, context: Context) -> int:
    """Restore; without anything to restore the plan runs everything, so that is an answer, not an error."""
    store = context.path(options.store) if options.store else context.root / read_settings(context.root).store
    found = publishing.restore(store, stage=options.stage, profile=options.profile, out=context.path(options.out))
    if found.problem:
        context.out.warn(f"nothing restored: {found.problem}; the plan will run everything")
    else:
        context.out.line(f"restored {found.content_hash[:12]} to {options.out}")
    context.out.set_outputs({"restored": "false" if found.problem else "true"})
    return 0


def run_escapes(options: argparse.Namespace, context: Context) -> int:
    """Compare a full run with the plans before it; 1 when something escaped."""
    totals = read_totals(context.path(options.report))
    plans, notes = read_plans(context.path(options.plans))
    order = read_commits(context.root, since=options.since, environ=context.environ) if options.since else ()
    report = replace(find_escapes(options.stage, totals.outcomes, plans, order=order), notes=tuple(notes))
    context.out.line(report.headline)
    for escape in report.escapes:
        commits = ", ".join(commit[:12] for commit in escape.commits)
        context.out.line(f"ESCAPE {escape.test} ({escape.outcome}): skipped at {commits}")
    for note in notes:
        context.out.warn(note)
    context.out.summary(render_markdown(report))
    context.out.set_outputs({"escapes": str(len(report.escapes)), "escape-rate": f"{report.rate:.6f}"})
    return 1 if report.escapes else 0


def _load(path: Path) -> tuple[Manifest, tuple[Finding, ...]]:
    from ci.errors import ManifestError

    try:
        return load_manifest(path)
    except FileNotFoundError:
        raise UsageError(f"there is no file {os.fspath(path)}") from None
    except Damaged as error:
        raise ManifestError(f"{path} is refused: {error}", hint="record and build a new one") from error


def _say(findings: list[Finding], context: Context) -> None:
    for finding in findings:
        if finding.is_warning:
            context.out.warn(str(finding))
        else:
            context.out.line(f"FAILED {finding}")
