"""Environments and stages: every session is an install and one command.

`nox -l` lists them. What a stage does is a row of `[tool.lockgate.stages]`,
what it needs a dependency group of the same name, both in `pyproject.toml`.
Arguments behind `--` go to the command: `nox -s multi_gpu -- --simulate 2 -k ring`.
"""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path

import nox

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT))

from ci.installer import read_uv_environment  # noqa: E402

nox.needs_version = ">=2025.5.1"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["cpu_gate"]
nox.options.error_on_missing_interpreters = True

LOCK = ("--constraint", ".ci/constraints.txt")


@functools.cache
def installer() -> dict[str, str]:
    """Give uv what pip is configured with on this machine; asked once, and only by a session that installs."""
    return read_uv_environment(python=sys.executable, cwd=ROOT, environ=os.environ)


def install(session: nox.Session, group: str, *, native: str) -> None:
    """Install one dependency group and the project, with the native mode that the stage needs."""
    session.env.update(installer())
    session.install("--group", group, *LOCK)
    session.install("--editable", ".", *LOCK, env={"LOCKGATE_NATIVE": native})


def gpu_stage(session: nox.Session, stage: str) -> None:
    """Verify the devices before anything costly, then build natively and run the stage on them."""
    session.env.update(installer())
    session.install("--editable", ".", *LOCK, env={"LOCKGATE_NATIVE": "off"})
    session.run("lockgate", "doctor", "--stage", stage, *session.posargs)
    install(session, stage, native="cpu" if "--simulate" in session.posargs else "cuda")
    session.run("lockgate", "run", stage, *session.posargs)


@nox.session
def cpu_gate(session: nox.Session) -> None:
    """Lint, types, docs, workflow trust, and the tests that need neither torch nor a compiler."""
    install(session, "cpu_gate", native="off")
    session.run("lockgate", "run", "cpu_gate", *session.posargs)


@nox.session
def gpu_smoke(session: nox.Session) -> None:
    """Verify one CUDA device, build for it, and run its quick tests (`-- --simulate 1` without one)."""
    gpu_stage(session, "gpu_smoke")


@nox.session
def multi_gpu(session: nox.Session) -> None:
    """Run the tests that need two or more devices, one rank on each (`-- --simulate 2` without them)."""
    gpu_stage(session, "multi_gpu")


@nox.session
def nightly(session: nox.Session) -> None:
    """Run everything, slow tests included, and record which test depends on what."""
    gpu_stage(session, "nightly")


@nox.session
def package(session: nox.Session) -> None:
    """Build sdist and wheels in isolation, check them, and test the installed wheel in a clean environment."""
    install(session, "package", native="off")
    session.run("lockgate", "package", *session.posargs)


@nox.session
def thorough(session: nox.Session) -> None:
    """Run the CPU tests that start real processes, repositories and builds (minutes, no torch)."""
    install(session, "thorough", native="off")
    session.run("lockgate", "run", "thorough", *session.posargs)


@nox.session
def native(session: nox.Session) -> None:
    """Build the C++ library and run its unit tests, plain and under both sanitizers."""
    session.env.update(installer())
    session.install("--group", "native", *LOCK)
    sanitized = [word for name in ("thread", "address") for word in ("test-native", f"--sanitize={name}")]
    session.run("invoke", "test-native", *sanitized)


@nox.session
def demo(session: nox.Session) -> None:
    """Show the main job: capture a real model into ClickHouse, read it back, run two ranks."""
    install(session, "demo", native="cpu")
    session.run("python", "-m", "monitoring.demo", *session.posargs)
    session.run("lockgate", "run", "multi_gpu", "--simulate", "2")


@nox.session
def plan(session: nox.Session) -> None:
    """Say which tests of a stage a change needs: `nox -s plan -- multi_gpu --base main`."""
    install(session, "test", native="off")
    session.run("lockgate", "plan", *session.posargs)


@nox.session
def manifest(session: nox.Session) -> None:
    """Build, check, publish or restore impact manifests: `nox -s manifest -- check FILE`."""
    install(session, "test", native="off")
    session.run("lockgate", "manifest", *session.posargs)
