"""`lockgate doctor`: what this machine has, what it lacks, and how to get it."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata

from rich.markup import escape
from rich.table import Table

from ci.context import Context
from ci.devices.model import Inventory
from ci.devices.requirement import require_devices
from ci.devices.verify import Verification, verify_devices, verify_simulated
from ci.stages.table import read_settings


@dataclass(frozen=True, kw_only=True)
class Need:
    """One thing that some stage or build needs."""

    name: str
    kind: str  # "program" is looked for on PATH, "package" in this environment
    serves: str
    remedy: str


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A need and what was found of it; empty means missing."""

    need: Need
    found: str


NEEDS: tuple[Need, ...] = (
    Need(name="git", kind="program", serves="plan, replay, audit --diff", remedy="install git"),
    Need(name="nox", kind="package", serves="stages", remedy="python -m pip install nox"),
    Need(name="uv", kind="program", serves="fast environments (else virtualenv)", remedy="python -m pip install uv"),
    Need(name="invoke", kind="package", serves="native build tasks", remedy="python -m pip install invoke"),
    Need(name="c++", kind="program", serves="native builds", remedy="install g++ 11 or later, or clang++ 14 or later"),
    Need(name="cmake", kind="program", serves="invoke build-native", remedy="python -m pip install cmake"),
    Need(name="ninja", kind="program", serves="invoke build-native", remedy="python -m pip install ninja"),
    Need(name="nanobind", kind="package", serves="invoke build-native", remedy="python -m pip install nanobind"),
    Need(
        name="nvcc",
        kind="program",
        serves="CUDA builds (gpu_smoke, multi_gpu, nightly)",
        remedy="install a CUDA toolkit, or python -m pip install 'lockgate[cuda-build]'",
    ),
    Need(
        name="clickhouse-server",
        kind="program",
        serves="tests against a real server",
        remedy="install ClickHouse; on Debian: apt-get install clickhouse-server",
    ),
    Need(
        name="torch", kind="package", serves="monitoring, ranks", remedy="python -m pip install 'lockgate[monitoring]'"
    ),
    Need(name="chdb", kind="package", serves="the embedded store", remedy="python -m pip install 'lockgate[embedded]'"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options; what is unknown is taken as meant for the stage's run."""
    parser.add_argument("--stage", metavar="NAME", help="only check whether this machine's devices are fit for a stage")
    parser.add_argument("--simulate", type=int, metavar="N", help="with --stage: take N simulated devices")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace, context: Context) -> int:
    """Show this machine, or raise `InfrastructureError` when it is not fit for `--stage`."""
    settings = read_settings(context.root)
    if options.stage:
        verification = verify_stage(context, options.stage, simulate=options.simulate)
        if not verification.is_fit:
            raise verification.error()
        names = ", ".join(device.label for device in verification.devices) or "no device needed"
        context.out.line(f"{options.stage}: this machine is fit ({names})")
        return 0
    findings = find_needs(NEEDS, which=lambda name: shutil.which(name, path=context.environ.get("PATH")))
    fits = {name: verify_stage(context, name, simulate=None) for name in settings.stages}
    if options.json:
        context.out.json(
            {
                "python": sys.version.split()[0],
                "needs": [{**asdict(finding.need), "found": finding.found} for finding in findings],
                "stages": {name: [asdict(problem) for problem in fit.problems] for name, fit in fits.items()},
            }
        )
        return 0
    context.out.show(render_needs(findings))
    context.out.show(render_stages(fits))
    return 0


def verify_stage(context: Context, name: str, *, simulate: int | None) -> Verification:
    """Check the devices for a stage without starting CUDA or importing torch."""
    requirement = require_devices(read_settings(context.root).stage(name))
    if not requirement.devices:
        return Verification(requirement=requirement, inventory=Inventory(), devices=())
    if simulate is not None:
        return verify_simulated(requirement, count=simulate, root=context.root)
    return verify_devices(requirement, environ=context.environ, root=context.root, deep=False)


def find_needs(needs: Sequence[Need], *, which: Callable[[str], str | None]) -> list[Finding]:
    """Look for every need; the finding is a version or a path."""
    return [
        Finding(need=need, found=(which(need.name) or "") if need.kind == "program" else package_version(need.name))
        for need in needs
    ]


def package_version(name: str) -> str:
    """Give the version of an installed distribution, or nothing; imports none of it."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def render_needs(findings: Sequence[Finding]) -> Table:
    """Lay out what was found, and the remedy for what was not."""
    table = Table(title=f"Python {sys.version.split()[0]}", title_justify="left")
    for column in ("need", "serves", "found, or how to get it"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        remedy = f"[yellow]missing:[/] {escape(finding.need.remedy)}"
        state = f"[green]{escape(finding.found)}[/]" if finding.found else remedy
        table.add_row(finding.need.name, finding.need.serves, state)
    return table


def render_stages(fits: dict[str, Verification]) -> Table:
    """Lay out which stages this machine's devices are fit for."""
    table = Table(title="Stages on this machine", title_justify="left")
    for column in ("stage", "devices"):
        table.add_column(column, overflow="fold")
    for name, fit in fits.items():
        reason = "; ".join(problem.message for problem in fit.problems)
        fit_words = "[green]fit[/]" if fit.requirement.devices else "needs none"
        table.add_row(name, f"[yellow]not fit:[/] {escape(reason)}" if reason else fit_words)
    return table
