"""A real repository, recorded for real: pytest with the recording plugin in a process of its own, then a manifest."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

import ci
from ci.cli import build_parser, find_command
from ci.context import Context
from ci.manifest import command
from ci.manifest.model import Atoms, Expectations, Manifest, Refusal
from ci.manifest.read import read_manifest
from ci.output import Output

SOURCES = Path(ci.__file__).parents[1]
CONFIG = '[tool.pytest.ini_options]\npythonpath = ["src"]\n'
IGNORE = ".lockgate/\n__pycache__/\n.pytest_cache/\nmade/\n"


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A recorded run: what pytest said, and the manifest that was built (or why it was refused)."""

    root: Path
    output: str
    code: int
    build_code: int
    build_output: str
    manifest: Manifest
    refusal: Refusal | None

    def atoms(self, test: str) -> Atoms:
        """Give what one test depends on; `test` may leave out the folder."""
        names = [item.id for item in self.manifest.tests if item.id.endswith(test)]
        assert len(names) == 1, (test, [item.id for item in self.manifest.tests], self.output)
        return self.manifest.atoms(names[0])

    def blocks(self, test: str) -> set[str]:
        """Give the names of the blocks that a test executed."""
        return {name for _, name in self.atoms(test).blocks}


def make_context(root: Path) -> tuple[Context, io.StringIO]:
    """Give a context whose words can be read."""
    stream = io.StringIO()
    console = Console(file=stream, width=500, emoji=False)
    return Context(root=root, cwd=root, environ=dict(os.environ), out=Output(stdout=console, stderr=console)), stream


def run_command(root: Path, *words: str) -> tuple[int, str]:
    """Run `lockgate manifest ...` in this process."""
    context, stream = make_context(root)
    options = build_parser(find_command(["manifest"])).parse_args(["manifest", *words])
    return command.run(options, context), stream.getvalue()


def git(root: Path, *words: str) -> str:
    """Run git with an identity of its own."""
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    return subprocess.run(
        ["git", *identity, *words], cwd=root, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def record(tmp_path: Path) -> Callable[..., Recorded]:
    """Give a function that commits files, records their tests and builds the manifest."""

    def run(
        files: Mapping[str, str],
        *,
        environ: Mapping[str, str] | None = None,
        arguments: tuple[str, ...] = (),
        runs: tuple[Mapping[str, str], ...] = ({},),
        before_build: Callable[[Path], None] | None = None,
        build: tuple[str, ...] = (),
    ) -> Recorded:
        root = tmp_path / "repo"
        for name, text in {"pyproject.toml": CONFIG, ".gitignore": IGNORE, **files}.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        git(root, "init", "-q")
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", "first")
        folder = root / ".lockgate" / "record"
        inherited = {
            key: value for key, value in os.environ.items() if not key.startswith(("LOCKGATE", "COVERAGE", "PYTEST"))
        }
        for extra in runs:
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "-p", "ci.manifest.plugin", "-q", *arguments],
                cwd=root,
                env={
                    **inherited, "PYTHONPATH": str(SOURCES), "LOCKGATE_RECORD_DIR": str(folder),
                    "LOCKGATE_RECORD_STAGE": "unit", **(environ or {}), **extra,
                },
                capture_output=True, text=True, timeout=120, check=False,
            )  # fmt: skip
        if before_build is not None:
            before_build(root)
        out = root / ".lockgate" / "unit.sqlite"
        code, words = run_command(root, "build", "unit", "--run", str(folder), "--out", str(out), *build)
        found = read_manifest(out, Expectations(now=time.time(), stage="unit"))
        from ci.manifest.store import load_manifest

        return Recorded(
            root=root, output=done.stdout + done.stderr, code=done.returncode, build_code=code, build_output=words,
            manifest=load_manifest(out)[0], refusal=found if isinstance(found, Refusal) else None,
        )  # fmt: skip

    return run
