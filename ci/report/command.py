"""`lockgate report show|merge|build|timeline`: look at reports, join shards, make files anew from event logs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from ci.context import Context
from ci.errors import UsageError
from ci.report.document import render_document
from ci.report.junit import render_junit
from ci.report.markdown import render_markdown
from ci.report.merge import merge_reports
from ci.report.model import RunReport
from ci.report.terminal import headline, render_report
from ci.report.timeline import render_timeline
from ci.report.write import build_report, read_report, write_report, write_whole
from ci.running.durations import record_report

REPORTS = Path(".lockgate", "report")
DURATIONS = Path(".lockgate", "durations.json")
TABLE, JSON = "table", "json"
TEXTS: dict[str, Callable[[RunReport], str]] = {"markdown": render_markdown, "junit": render_junit}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the four actions."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    show = actions.add_parser("show", help="show a report (a stage's name, a folder or a report.json)")
    show.add_argument("report", help="a stage's name, a report folder or a report.json")
    show.add_argument("--format", choices=(TABLE, JSON, *TEXTS), default=TABLE, help="how to show it (default: table)")
    show.add_argument("-v", "--verbose", action="store_true", help="with the whole output of what is bad")
    merge = actions.add_parser("merge", help="join the reports of shards into one; answers 0, 1 or 3 as one run would")
    merge.add_argument("reports", nargs="+", help="report folders or report.json files")
    merge.add_argument("-o", "--output", metavar="DIR", required=True, help="folder for the merged report's files")
    build = actions.add_parser("build", help="make a report's files anew from its event logs")
    build.add_argument("folder", help="a stage's name or a report folder")
    timeline = actions.add_parser("timeline", help="write the HTML timeline of a report")
    timeline.add_argument("report", help="a stage's name, a report folder or a report.json")
    timeline.add_argument("-o", "--output", metavar="FILE", help="where to write it (default: beside the report)")


def run(options: argparse.Namespace, context: Context) -> int:
    """Run one action; `merge` answers the verdict, the others 0."""
    return ACTIONS[options.action](options, context)


def run_show(options: argparse.Namespace, context: Context) -> int:
    """Show a report."""
    report = read_report(find_report(options.report, context))
    if options.format == TABLE:
        context.out.show(render_report(report, verbose=options.verbose))
    elif options.format == JSON:
        context.out.json(render_document(report))
    else:
        context.out.line(TEXTS[options.format](report).rstrip())
    return 0


def run_merge(options: argparse.Namespace, context: Context) -> int:
    """Join shards, write the files, record the durations, say the verdict."""
    report = merge_reports([read_report(find_report(name, context)) for name in options.reports])
    paths = write_report(context.path(options.output), report)
    context.out.line(headline(report))
    for reason in report.reasons:
        context.out.line(f"  {reason}")
    context.out.summary(render_markdown(report))
    warning = record_report(context.root / DURATIONS, report)
    if warning:
        context.out.warn(warning)
    context.out.step(f"wrote {', '.join(path.name for path in paths)} to {context.path(options.output)}")
    if report.exit_code is None:
        return 1
    return report.exit_code


def run_build(options: argparse.Namespace, context: Context) -> int:
    """Make the files of a report folder anew."""
    folder = find_report(options.folder, context)
    if not folder.is_dir():
        raise UsageError(f"{options.folder} is no folder", hint="give the folder that holds events-*.jsonl")
    report = build_report(folder)
    paths = write_report(folder, report)
    context.out.line(headline(report))
    context.out.step(f"wrote {', '.join(map(str, paths))}")
    return 0


def run_timeline(options: argparse.Namespace, context: Context) -> int:
    """Write the timeline of a report."""
    source = find_report(options.report, context)
    folder = source if source.is_dir() else source.parent
    target = context.path(options.output) if options.output else folder / "timeline.html"
    write_whole(target, render_timeline(read_report(source)))
    context.out.line(str(target))
    return 0


def find_report(name: str, context: Context) -> Path:
    """Find a report by path, or by the name of its stage."""
    path = context.path(name)
    stage = context.root / REPORTS / name
    return stage if not path.exists() and stage.is_dir() else path


ACTIONS: dict[str, Callable[[argparse.Namespace, Context], int]] = {
    "show": run_show,
    "merge": run_merge,
    "build": run_build,
    "timeline": run_timeline,
}
