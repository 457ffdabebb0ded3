"""`python -m monitoring list|show|check|plot|prune STORE`: look into a store, and tidy it up."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from monitoring.errors import IncompleteRun, MonitoringError, RunNotFound
from monitoring.read import find_run, read
from monitoring.reading.summary import RunSummary, summarize_run
from monitoring.reading.upkeep import UsageError, choose_runs, format_bytes, format_time, parse_age
from monitoring.rows import RunRecord
from monitoring.store import Store, open_store

OK, INCOMPLETE, USAGE, FAILED = 0, 1, 2, 3
INTERRUPTED = 130
PIPE_WIDTH = 160
"""Columns of a table that goes into a pipe, which has no width of its own."""

STORE_HELP = "a folder, clickhouse://host:8123/database or clickhouses://..."


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors join the one error tree."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing a usage block."""
        raise UsageError(message, hint=f"`{self.prog} --help` lists what is possible")


def build_parser() -> Parser:
    """Build the command line."""
    parser = Parser(prog="python -m monitoring", description="Look into a store of captured runs.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    for name, summary in (
        ("list", "the runs of a store: model, size, completeness"),
        ("show", "one run: its sites, shapes, bytes, losses and what it says about its model"),
        ("check", "list what runs lack; exit code 1 when they lack anything"),
        ("plot", "draw a picture of one run as a PNG"),
        ("prune", "remove runs"),
    ):
        command = commands.add_parser(name, help=summary, description=summary)
        command.add_argument("store", metavar="STORE", help=STORE_HELP)
        if name in ("list", "show", "check"):
            command.add_argument("--json", action="store_true", help="print JSON")
        if name in ("show", "check", "plot"):
            default = "all" if name == "check" else "the newest"
            command.add_argument("--run", metavar="ID", help=f"run id (default: {default})")
        if name == "plot":
            _add_plot_arguments(command)
        if name == "prune":
            _add_prune_arguments(command)
    return parser


def _add_plot_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--kind", choices=("norms", "attention"), default="norms", help="what to draw (default: norms)"
    )
    command.add_argument("--site", default="resid_pre", help="site whose norms are drawn (default: resid_pre)")
    command.add_argument("--layer", type=int, help="layer whose attention is drawn (default: the first)")
    command.add_argument("--request", type=int, default=0, metavar="N", help="request, counted from 0 (default: 0)")
    command.add_argument("--out", type=Path, metavar="FILE", help="the PNG to write (default: RUN-KIND.png)")
    command.add_argument("--allow-incomplete", action="store_true", help="draw a run that lacks records")


def _add_prune_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("--run", metavar="ID", action="append", default=[], help="remove this run (repeatable)")
    command.add_argument("--keep", type=int, metavar="N", help="remove all but the N newest runs")
    command.add_argument("--older-than", metavar="AGE", help="remove runs that started longer ago: 12h, 30d")
    command.add_argument("--dry-run", action="store_true", help="say what would be removed")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; every expected problem ends here as a message, a hint and a code."""
    errors = Console(stderr=True, soft_wrap=True)
    try:
        options = build_parser().parse_args(arguments)
        store = open_store(options.store)
        try:
            return COMMANDS[options.command](store, options)
        finally:
            store.close()
    except MonitoringError as error:
        errors.print(f"[bold red]error:[/] {escape(error.message)}", highlight=False)
        if error.hint:
            errors.print(f"[bold]hint:[/] {escape(error.hint)}", highlight=False)
        if isinstance(error, IncompleteRun):
            return INCOMPLETE
        return USAGE if isinstance(error, UsageError) else FAILED
    except KeyboardInterrupt:
        errors.print("interrupted", style="yellow")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`... | head`); Python must not complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK


def run_list(store: Store, options: argparse.Namespace) -> int:
    """List the runs."""
    runs = _summaries(store)
    if options.json:
        _print_json([_plain(run) for run in runs])
        return OK
    out = _console()
    if not runs:
        out.print(f"{store.url} holds no run", markup=False, highlight=False)
        return OK
    table = Table(title=escape(store.url), title_justify="left")
    for name in ("run", "model", "started", "state"):
        table.add_column(name, overflow="fold")
    for name in ("shards", "requests", "tokens", "rows", "bytes"):
        table.add_column(name, justify="right")
    for run in runs:
        table.add_row(
            escape(run.run_id), escape(run.model_id), format_time(run.started_at), _state(run), str(run.shards),
            str(run.requests), str(run.tokens), str(run.rows), format_bytes(run.bytes),
        )  # fmt: skip
    out.print(table)
    return OK


def run_show(store: Store, options: argparse.Namespace) -> int:
    """Show one run."""
    records = find_run(store, options.run)
    run = summarize_run(records, store.read_index(records[0].run_id))
    if options.json:
        _print_json({**_plain(run), "details": dict(records[0].details), "losses": _losses(records)})
        return OK
    out = _console()
    out.print(f"[bold]{escape(run.run_id)}[/]  {escape(run.model_id)}  {_state(run)}", highlight=False)
    spent = f", took {(run.finished_at - run.started_at) / 1e9:.1f} s" if run.finished_at else ""
    out.print(f"started {format_time(run.started_at)}{spent}; {run.shards} shard(s)", highlight=False)
    table = Table()
    for name in ("site", "layers", "dtype", "shapes of rows"):
        table.add_column(name, overflow="fold")
    for name in ("rows", "bytes"):
        table.add_column(name, justify="right")
    for site in run.sites:
        cells = (site.site, site.layers, site.dtypes, site.shapes)
        table.add_row(*map(escape, cells), str(site.rows), format_bytes(site.bytes))
    table.add_section()
    table.add_row(
        "all", "", "", f"{run.requests} request(s), {run.tokens} tokens", str(run.rows), format_bytes(run.bytes)
    )
    out.print(table)
    for record in records:
        out.print(
            f"shard {record.shard_rank}: accepted {record.accepted} = {record.written} written"
            f" + {record.dropped} dropped + {record.failed} failed", highlight=False,
        )  # fmt: skip
    for reason, count in _losses(records).items():
        out.print(f"  lost: {escape(reason)} {count}", highlight=False)
    for key, value in sorted(records[0].details.items()):
        out.print(f"  {escape(key)}: {escape(value)}", highlight=False)
    _print_missing(out, run)
    return OK


def run_check(store: Store, options: argparse.Namespace) -> int:
    """Check completeness."""
    records = store.read_runs() if options.run is None else find_run(store, options.run)
    runs = _summaries(store, records)
    if not runs:
        raise RunNotFound(f"{store.url} holds no run", hint="capture one: watch(model, store=...)")
    if options.json:
        _print_json([{"run_id": run.run_id, "state": run.state, "missing": list(run.missing)} for run in runs])
    else:
        out = _console()
        for run in runs:
            out.print(f"{escape(run.run_id)}: {_state(run)}", highlight=False)
            _print_missing(out, run)
    return INCOMPLETE if any(run.missing for run in runs) else OK


def run_plot(store: Store, options: argparse.Namespace) -> int:
    """Draw a picture."""
    from monitoring import plot

    records = find_run(store, options.run)
    attention = options.kind == "attention"
    internals = read(
        store, records[0].run_id, sites=["pattern"] if attention else [options.site],
        allow_incomplete=options.allow_incomplete,
    )  # fmt: skip
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", records[0].run_id)
    path = options.out or Path(f"{safe}-{options.kind}.png")
    if attention:
        plot.plot_attention(internals, path, layer=options.layer, request=options.request)
    else:
        plot.plot_norms(internals, path, site=options.site, request=options.request)
    _console().print(f"wrote {path}", markup=False, highlight=False)
    return OK


def run_prune(store: Store, options: argparse.Namespace) -> int:
    """Remove runs."""
    if not options.run and options.keep is None and options.older_than is None:
        raise UsageError("prune needs --run, --keep or --older-than", hint="--dry-run shows what would be removed")
    if options.keep is not None and options.keep < 0:
        raise UsageError(f"--keep is {options.keep}, expected 0 or more", hint="--keep 0 removes every run")
    age = None if options.older_than is None else parse_age(options.older_than)
    chosen = choose_runs(
        store.read_runs(), named=options.run, keep=options.keep, older_than=age, now=time.time(), where=store.url
    )
    out = _console()
    for run_id in chosen:
        if not options.dry_run:
            store.delete_run(run_id)
        out.print(f"{'would remove' if options.dry_run else 'removed'} {run_id}", markup=False, highlight=False)
    if not chosen:
        out.print("nothing to remove", highlight=False)
    return OK


def _summaries(store: Store, records: Sequence[RunRecord] | None = None) -> list[RunSummary]:
    by_run: dict[str, list[RunRecord]] = {}
    for record in store.read_runs() if records is None else records:
        by_run.setdefault(record.run_id, []).append(record)
    return [summarize_run(some, store.read_index(run_id)) for run_id, some in by_run.items()]


def _plain(run: RunSummary) -> dict[str, object]:
    return asdict(run)


def _losses(records: Sequence[RunRecord]) -> dict[str, int]:
    found: dict[str, int] = {}
    for record in records:
        for reason, count in record.losses.items():
            found[reason] = found.get(reason, 0) + count
    return {reason: count for reason, count in sorted(found.items()) if count}


def _state(run: RunSummary) -> str:
    if run.state == "complete":
        return "[green]complete[/]"
    return f"[yellow]{run.state}[/], {len(run.missing)} gap(s)"


def _print_missing(out: Console, run: RunSummary) -> None:
    for line in run.missing:
        out.print(f"  - {line}", markup=False, highlight=False)


def _print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)


COMMANDS: Mapping[str, Callable[[Store, argparse.Namespace], int]] = {
    "list": run_list,
    "show": run_show,
    "check": run_check,
    "plot": run_plot,
    "prune": run_prune,
}

if __name__ == "__main__":
    sys.exit(main())
