"""Short names for builds and upkeep: `invoke -l` lists them.

Stages and their environments belong to nox (`nox -l`); nothing here holds logic.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from invoke.context import Context
from invoke.tasks import task

PYTHON = shlex.quote(sys.executable)


def setup(context: Context, command: str, *, mode: str = "cpu", debug: bool = False, sanitize: str = "") -> None:
    """Run one of setup.py's commands with the build's options in its environment."""
    options = {"LOCKGATE_NATIVE": mode, "LOCKGATE_SANITIZE": sanitize, "LOCKGATE_DEBUG": "1" if debug else ""}
    context.run(f"{PYTHON} setup.py -q {command}", env=options)


def module(context: Context, name: str, *arguments: str) -> None:
    """Run a module of this project; its colours need a terminal."""
    context.run(shlex.join([sys.executable, "-m", name, *arguments]), pty=sys.stdin.isatty())


@task
def build_clickhouse(context: Context) -> None:
    """Build the ClickHouse client library alone, and run its tests and fuzz targets."""
    setup(context, "test_native --client-only")


@task(help={"cuda": "build the CUDA ring too", "debug": "no optimizing", "sanitize": "thread or address"})
def build_native(context: Context, cuda: bool = False, debug: bool = False, sanitize: str = "") -> None:  # noqa: FBT001, FBT002 - invoke's flags
    """Build the native library into the tree (`CUDA_ARCHS` chooses the architectures of --cuda)."""
    setup(context, "build_ext --inplace", mode="cuda" if cuda else "cpu", debug=debug, sanitize=sanitize)


@task(help={"sanitize": "thread or address", "debug": "no optimizing"})
def test_native(context: Context, sanitize: str = "", debug: bool = False) -> None:  # noqa: FBT001, FBT002, PT028 - invoke's flags
    """Build the C++ unit tests and fuzz targets and run them."""
    setup(context, "test_native", sanitize=sanitize, debug=debug)


@task
def clean_native(context: Context) -> None:
    """Remove native build folders and the module in the tree."""
    setup(context, "clean_native")


@task
def clickhouse_up(_: Context) -> None:
    """Start a private ClickHouse server on loopback, which `clickhouse-down` stops; print its store URL."""
    from monitoring import devserver

    sys.stdout.write(f"{devserver.up().url}\n")


@task
def clickhouse_down(_: Context) -> None:
    """Stop the server that `clickhouse-up` started and remove its data."""
    from monitoring import devserver

    sys.stdout.write("stopped\n" if devserver.down() else "none was running\n")


@task
def doctor(context: Context) -> None:
    """Say what this machine can run, and how to get what is missing."""
    module(context, "ci", "doctor")


@task
def audit(context: Context) -> None:
    """Audit the workflows for trust."""
    module(context, "ci", "audit")


@task
def docs(context: Context) -> None:
    """Write the generated tables of the documentation."""
    module(context, "ci", "docs")


@task(iterable=["only"], help={"only": "name of a benchmark, may be given several times; default: all"})
def bench(context: Context, only: Sequence[str] = ()) -> None:
    """Run the benchmarks (`benchmarks/NAME.py`), one after the other."""
    names = only or sorted(path.stem for path in Path("benchmarks").glob("*.py"))
    for name in names:
        context.run(f"{PYTHON} benchmarks/{shlex.quote(name)}.py")


LOCKED = "lint test native model stores package"
LOCK_HEAD = "# The lock of every dependency group. Written by `invoke lock` from pyproject.toml; edit that instead."


@task
def lock(context: Context) -> None:
    """Write `.ci/constraints.txt`, the lock of every dependency group, with uv."""
    groups = " ".join(f"--group {name}" for name in LOCKED.split())
    context.run(
        "uv pip compile --universal --python-version 3.10 --no-python-downloads --no-emit-index-url --no-annotate "
        f"--no-header --all-extras {groups} pyproject.toml --output-file .ci/constraints.txt --quiet",
    )
    context.run(f"sed -i {shlex.quote('1i ' + LOCK_HEAD)} .ci/constraints.txt")
