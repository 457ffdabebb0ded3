"""`python -m ci.devices`: this machine's devices, and with `--check N` the whole verification."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ci.cli import Parser
from ci.context import Context, read_context
from ci.devices.checks import check_nvml
from ci.devices.model import Inventory, simulate_devices
from ci.devices.probe import probe_devices
from ci.devices.requirement import Requirement
from ci.devices.table import render_document, render_inventory
from ci.devices.verify import verify_devices, verify_simulated
from ci.errors import CiError, InfrastructureError
from ci.output import Output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--simulate", type=whole_number, metavar="N", help="show N simulated devices instead")
    parser.add_argument(
        "--check", type=whole_number, metavar="N", help="verify the machine for a stage of N ranks (kernel, all-reduce)"
    )


def whole_number(text: str) -> int:
    """Read a number of devices: 1 or more."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of devices (1 or more)")
    return int(text)


def run(options: argparse.Namespace, context: Context) -> int:
    """Show the inventory, then verify if asked; raises `InfrastructureError` for a machine that is not fit."""
    simulate: int | None = options.simulate
    inventory = simulate_devices(simulate, scope=context.root) if simulate else probe_devices(context.environ)
    if options.json:
        context.out.json(render_document(inventory))
    else:
        show_inventory(inventory, context.out)
    if options.check:
        wanted = Requirement(stage=f"{options.check} rank(s)", devices=options.check, ranks=options.check)
        if simulate:
            result = verify_simulated(wanted, count=simulate, root=context.root)
        else:
            result = verify_devices(wanted, environ=context.environ, root=context.root)
        for note in result.notes:
            context.out.warn(note)
        if not result.is_fit:
            raise result.error(hint="every line above names what to do")
        context.out.step(f"{len(result.devices)} device(s) are fit")
    elif inventory.fault is not None:
        problem = check_nvml(inventory)[0]
        raise InfrastructureError(problem.message, hint=problem.hint)
    return 0


def show_inventory(inventory: Inventory, out: Output) -> None:
    """Print the table and its notes."""
    if inventory.fault is None:
        out.show(render_inventory(inventory))
    for note in inventory.notes:
        out.warn(note)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run by itself, with the errors and codes of the whole tool."""
    parser = Parser(prog="python -m ci.devices", description="Show this machine's devices, and verify them.")
    add_arguments(parser)
    out = Output.for_process()
    try:
        return run(parser.parse_args(arguments), read_context())
    except CiError as error:
        out.error(error)
        return error.exit_code
    except BrokenPipeError:
        sys.stderr.close()
        return 0


if __name__ == "__main__":
    sys.exit(main())
