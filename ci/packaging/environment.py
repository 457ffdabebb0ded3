"""A clean environment that knows the wheel and nothing of the source tree."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from ci.context import Context
from ci.errors import PackageError
from ci.packaging.model import PackageRules
from ci.process import run

INSTALL_LIMIT = 3600.0
IMPORT_LIMIT = 60.0


def make_environment(context: Context, wheel: Path, rules: PackageRules, folder: Path) -> Path:
    """Create an environment with the wheel, its extras and the test group; give its Python."""
    uv = shutil.which("uv", path=context.environ.get("PATH"))
    python = folder / "bin" / "python"
    create = [uv, "venv", "--python", sys.executable] if uv else [sys.executable, "-m", "virtualenv"]
    install = [uv, "pip", "install", "--python", str(python)] if uv else [str(python), "-m", "pip", "install"]
    _run(context, [*create, str(folder)])
    extras = f"[{','.join(rules.extras)}]" if rules.extras else ""
    group = ["--group", f"{context.root / 'pyproject.toml'}:{rules.group}"] if rules.group else []
    lock = context.root / ".ci" / "constraints.txt"
    constraint = ["--constraint", str(lock)] if lock.is_file() else []
    _run(context, [*install, f"{wheel}{extras}", *group, *constraint])
    return python


def check_origin(context: Context, python: Path, names: Sequence[str], folder: Path) -> None:
    """Import every top-level package in the clean environment, and see that it comes from there."""
    for package in top_level_packages(names):
        found = run(
            [str(python), "-I", "-c", f"import {package}; print({package}.__file__)"],
            cwd=folder,
            environ=context.environ,
            limit=IMPORT_LIMIT,
            capture=True,
        ).stdout.strip()
        if not Path(found).is_relative_to(python.parents[1]):
            raise PackageError(f"{package} was imported from {found}, expected it from the installed wheel")


def top_level_packages(names: Sequence[str]) -> list[str]:
    """Name the import packages of a wheel, from its file names."""
    return sorted({name.split("/")[0] for name in names if name.count("/") == 1 and name.endswith("/__init__.py")})


def copy_tests(context: Context, rules: PackageRules, folder: Path) -> None:
    """Copy the tests outside the source tree, so that only the installed package can answer imports."""
    for name in rules.tests:
        source = context.root / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.is_file():
            shutil.copy2(source, folder / name)
        else:
            raise PackageError(f"{source} is missing, expected it for the tests of the installed wheel")


def run_stage(context: Context, python: Path, folder: Path, arguments: Sequence[str]) -> int:
    """Run the package stage with the clean environment's own command; give its exit code."""
    environ = {name: value for name, value in context.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environ["PATH"] = f"{python.parent}:{environ.get('PATH', '')}"
    finished = run(
        [str(python.parent / "lockgate"), "--root", str(folder), "run", "package", *arguments],
        cwd=folder,
        environ=environ,
        limit=INSTALL_LIMIT,
        check=False,
        announce=context.out.step,
    )
    return finished.returncode


def _run(context: Context, arguments: Sequence[str]) -> None:
    run(
        arguments,
        cwd=context.root,
        environ=context.environ,
        limit=INSTALL_LIMIT,
        capture=True,
        announce=context.out.step,
    )
