"""`lockgate run STAGE`: checks -> devices -> sessions -> verdict -> report."""

from __future__ import annotations

import argparse
import secrets
import signal
from pathlib import Path

from ci.context import Context
from ci.errors import UsageError
from ci.process import die_with_parent
from ci.running.agent import TOKEN
from ci.running.events import SUPERVISOR, EventLog
from ci.running.folder import hold_folder
from ci.running.options import compose_arguments
from ci.running.shard import Shard
from ci.running.steps import Run
from ci.running.supervisor import terminable
from ci.stages.table import read_settings

NOX = "NOX_CURRENT_SESSION"
"""Set by nox for the commands of a session."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line; what is not known here goes to pytest."""
    parser.add_argument("stage", metavar="STAGE", help="a row of [tool.lockgate.stages] (comes first)")
    parser.add_argument("--plan", metavar="FILE", help="run the tests that this plan selects")
    parser.add_argument("--record", metavar="DIR", help="record what each test depends on, for a manifest")
    parser.add_argument("--simulate", metavar="N", type=_count, default=0, help="N fake devices, ranks on the CPU")
    parser.add_argument("--shard", metavar="I/N", default="", help="run part I of N of the stage")
    parser.add_argument("--report", metavar="DIR", help="report folder (default: .lockgate/report/STAGE)")
    parser.add_argument("--reruns", metavar="N", type=_count, default=0, help="run a failed test again, up to N times")
    parser.add_argument(
        "--process-group",
        choices=("auto", "none", "gloo", "nccl"),
        default="auto",
        help="what the ranks initialise before the tests (auto: nccl on CUDA, gloo without, none without torch)",
    )
    parser.add_argument(
        "--preload",
        metavar="MODULES",
        default="torch",
        help="imported once for all ranks (default: torch; '' for none)",
    )
    parser.add_argument("--coverage", action="store_true", help="measure coverage in every process of the run")
    parser.add_argument("--nodes", metavar="N", type=_count, default=1, help="spread the ranks of a test over N nodes")
    parser.add_argument("--listen", metavar="HOST:PORT", default="", help="where the other nodes' agents find this one")
    parser.add_argument("--no-checks", action="store_true", help="leave out the stage's checks, run the tests alone")
    parser.epilog = "Other arguments (-k EXPR, -x, --lf, paths, ...) are pytest's."


def run(options: argparse.Namespace, context: Context) -> int:
    """Run a stage; gives 0 (green), 1 (red) or the code of what made a verdict impossible."""
    settings = read_settings(context.root)
    stage = settings.stage(options.stage)
    if options.nodes > 1 and not (options.listen and context.environ.get(TOKEN)):
        raise UsageError(
            f"--nodes {options.nodes} needs --listen HOST:PORT and a secret in {TOKEN}",
            hint=f"on the other nodes: {TOKEN}=<secret> python -m ci.running.agent HOST:PORT",
        )
    if options.shard:
        Shard.parse(options.shard)  # a wrong one is told before anything starts
    arguments = compose_arguments(stage, options.rest, root=context.root, cwd=context.cwd)
    folder = context.path(options.report) if options.report else context.root / ".lockgate" / "report" / stage.name
    if context.environ.get(NOX):
        # nox dies of a SIGTERM and leaves its command behind: that is then the run's end too.
        die_with_parent(signal.SIGTERM)
    with hold_folder(folder), terminable(), EventLog(_log_path(folder), clock=context.clock) as log:
        return Run(
            context=context, settings=settings, stage=stage, options=options, arguments=arguments, folder=folder,
            log=log, run_id=secrets.token_hex(8),
        ).run()  # fmt: skip


def _log_path(folder: Path) -> Path:
    return folder / f"events-{SUPERVISOR}.jsonl"


def _count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of 0 or more")
    return int(text)
