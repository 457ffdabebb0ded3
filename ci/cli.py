"""The command line: a table of commands, and the one place that catches errors."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from ci import __version__
from ci.context import read_context
from ci.errors import CiError, UsageError
from ci.output import Output

INTERRUPTED = 130
"""What a shell reports for a program ended by Ctrl-C (128 + SIGINT)."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command: its module has `add_arguments(parser)` and `run(options, context) -> int`.

    With `passes_on`, arguments that it does not know are kept in
    `options.rest`, for pytest; otherwise they are usage errors.
    """

    name: str
    module: str
    summary: str
    passes_on: bool = False


COMMANDS: tuple[Command, ...] = (
    Command(name="plan", module="ci.impact.command", summary="say which tests of a stage a change needs, and why"),
    Command(
        name="run",
        module="ci.running.command",
        summary="run a stage: checks, devices, tests, verdict, report",
        passes_on=True,
    ),
    Command(name="manifest", module="ci.manifest.command", summary="build, check or show an impact manifest"),
    Command(name="replay", module="ci.impact.replay_command", summary="replay recent commits through the plan"),
    Command(name="audit", module="ci.trust.command", summary="which events reach which runner, with whose code"),
    Command(name="report", module="ci.report.command", summary="merge, show or convert reports"),
    Command(
        name="package", module="ci.packaging.command", summary="build, check and try the distributions", passes_on=True
    ),
    Command(name="docs", module="ci.docs.command", summary="write the generated documentation, or check it"),
    Command(
        name="doctor", module="ci.doctor", summary="what this machine has, lacks, and how to get it", passes_on=True
    ),
)


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors join the one error tree."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing a usage block and exiting."""
        raise UsageError(message, hint=f"`{self.prog} --help` lists what is possible")


def build_parser(command: Command | None = None) -> Parser:
    """Build the parser; only the chosen command's module is imported."""
    parser = Parser(prog="lockgate", description="Carry a change through locked gates, one stage at a time.")
    parser.add_argument("--version", action="version", version=f"lockgate {__version__}")
    parser.add_argument("--root", metavar="DIR", help="the repository (default: found from the current folder)")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    for row in COMMANDS:
        child = commands.add_parser(row.name, help=row.summary, description=row.summary, allow_abbrev=False)
        if row is command:
            importlib.import_module(row.module).add_arguments(child)
    return parser


def parse(words: Sequence[str]) -> tuple[Command, argparse.Namespace]:
    """Parse the command line; raises `UsageError` naming what is wrong with it."""
    parser = build_parser(find_command(words))
    options, rest = parser.parse_known_args(words)
    command = next(row for row in COMMANDS if row.name == options.command)
    if rest and not command.passes_on:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    options.rest = [word for word in rest if word != "--"]
    return command, options


def find_command(arguments: Sequence[str]) -> Command | None:
    """Find which command the arguments name, before anything is parsed."""
    names = {row.name: row for row in COMMANDS}
    return next((names[word] for word in arguments if word in names), None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; every expected problem ends here as a message, a hint and a code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    out = Output.for_process()
    try:
        command, options = parse(words)
        context = read_context(root=options.root)
        return int(importlib.import_module(command.module).run(options, context))
    except CiError as error:
        out.error(error)
        return error.exit_code
    except KeyboardInterrupt:
        out.stderr.print("interrupted", style="yellow")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`lockgate audit | head`): not our failure, and
        # Python must not complain a second time when it flushes at exit.
        sys.stderr.close()
        return 0
