"""A real repository for one kind of change: recorded at its base, changed, planned, and run in full for the truth."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import ci
from ci.context import Context
from ci.impact import command as plan_command
from ci.impact.plan import Decision, Plan
from ci.impact.plan_file import read_plan
from ci.impact.witness import VARIABLE
from ci.manifest import command as manifest_command
from ci.output import Output

SOURCES = Path(ci.__file__).parents[1]

PYPROJECT = """\
[tool.pytest.ini_options]
pythonpath = ["src"]
testpaths = ["tests"]

[tool.lockgate.stages.unit]
select = ""
documentation = ["*.md", "docs/**"]
plain = ["src/plain/**"]
"""
SCAFFOLD = {
    "pyproject.toml": PYPROJECT,
    ".gitignore": ".lockgate/\n__pycache__/\n.pytest_cache/\nbuild/\n",
    "src/calm.py": "def calm():\n    return 1\n",
    "tests/test_calm.py": "from calm import calm\n\n\ndef test_calm():\n    assert calm() == 1\n",
}
BYSTANDER = "tests/test_calm.py::test_calm"
Files = Mapping[str, "str | bytes | None"]


@dataclass(frozen=True, kw_only=True)
class Project:
    """A repository in a folder, with the commands that a nightly and a pull request run in it."""

    root: Path
    environ: dict[str, str] = field(default_factory=dict)

    def git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=self.root, env=self.environ, capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout.strip()

    def write(self, files: Files) -> None:
        """Write texts and bytes, remove what is None; a text `-> target` makes a link, a script may be executed.

        Bytecode is removed: it knows a source by size and second only, so a
        change of the same length within a second would not be seen.
        """
        for cache in list(self.root.rglob("__pycache__")):
            shutil.rmtree(cache)
        for path, content in files.items():
            place = self.root / path
            if content is None:
                place.unlink()
            elif isinstance(content, str) and content.startswith("-> "):
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(content[3:])
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content.encode() if isinstance(content, str) else content)
                if place.suffix == ".sh":
                    place.chmod(0o755)

    def commit(self, message: str) -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def python(self, *arguments: str, check: bool = True, **environ: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=self.root, env={**self.environ, **environ}, capture_output=True,
            text=True, check=False, timeout=120,
        )  # fmt: skip
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def record(self) -> Path:
        """Run the suite as a nightly does and build its manifest; it must hold every check."""
        folder, out = ".lockgate/record/unit", self.root / ".lockgate/manifest.sqlite"
        self.python(
            "-m", "pytest", "-q", "-p", "ci.manifest.plugin", "-p", "no:cacheprovider",
            LOCKGATE_RECORD_DIR=str(self.root / folder), LOCKGATE_RECORD_STAGE="unit",
        )  # fmt: skip
        code, text = self.lockgate(manifest_command, "build", "unit", "--run", folder, "--out", str(out))
        assert code == 0, text
        return out

    def failures(self) -> list[str]:
        """Run everything and give the ids that failed, files that cannot be collected included."""
        out = self.root / ".lockgate/failed.json"
        out.unlink(missing_ok=True)
        words = ("-m", "pytest", "-q", "-p", "ci.impact.witness", "-p", "no:cacheprovider")
        done = self.python(*words, check=False, **{VARIABLE: str(out)})
        if not out.exists():
            # Not even configured: every test is lost.
            assert done.returncode != 0
            return ["tests"]
        return [str(name) for name in json.loads(out.read_text())["failed"]]

    def plan(self, *arguments: str) -> Plan:
        """Plan as a pull request does, through the command, and read what it wrote."""
        out = self.root / ".lockgate/plan.json"
        code, text = self.lockgate(plan_command, "unit", *arguments, "--out", str(out))
        assert code == 0, text
        return read_plan(out)

    def lockgate_why(self, path: str, manifest: Path, base: str) -> str:
        """Ask why a path does what it does."""
        words = ("--manifest", str(manifest), "--base", base, "--head", "HEAD", "--why", path)
        return self.lockgate(plan_command, "unit", *words)[1]

    def lockgate(self, module: Any, *arguments: str) -> tuple[int, str]:
        """Run one command in this process, as `ci.cli` does."""
        from ci.cli import Parser

        parser = Parser(prog="lockgate")
        module.add_arguments(parser)
        context, read = self.context()
        code = module.run(parser.parse_args(list(arguments)), context)
        return code, read()

    def context(self) -> tuple[Context, Callable[[], str]]:
        import io

        from rich.console import Console

        stream = io.StringIO()
        console = Console(file=stream, width=200)
        output = Output(stdout=console, stderr=console)
        context = Context(root=self.root, cwd=self.root, environ=self.environ, out=output, clock=time.time)
        return context, stream.getvalue


def build_project(root: Path, home: Path) -> Project:
    home.mkdir(parents=True, exist_ok=True)
    environ = {
        key: value for key, value in os.environ.items() if not key.startswith(("GIT_", "PYTEST_", "COV", "LOCKGATE"))
    }
    environ |= {
        "PYTHONPATH": str(SOURCES),
        "HOME": str(home),
        "PYTHONDONTWRITEBYTECODE": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_AUTHOR_NAME": "Test",
        "GIT_AUTHOR_EMAIL": "test@example.invalid",
        "GIT_COMMITTER_NAME": "Test",
        "GIT_COMMITTER_EMAIL": "test@example.invalid",
        "GIT_ALLOW_PROTOCOL": "file",
    }
    root.mkdir(parents=True, exist_ok=True)
    project = Project(root=root, environ=environ)
    project.git("init", "--quiet", "--initial-branch=main", ".")
    project.git("config", "core.autocrlf", "false")
    return project


@pytest.fixture(scope="session")
def make_project() -> Callable[[Path, Path], Project]:
    """Give the function that makes an empty repository in a folder, with a home folder beside it."""
    return build_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Give an empty repository."""
    return build_project(tmp_path / "repository", tmp_path / "home")


def missed(plan: Plan, failed: list[str]) -> list[str]:
    """Name what failed and that the plan neither lists nor lets run."""
    if plan.decision is Decision.ALL:
        return []
    listed = [item.id for item in plan.tests]
    lost = []
    for name in failed:
        is_listed = name in listed or any(name.startswith((f"{one}::", f"{one}[")) for one in listed)
        # A file that cannot be collected fails as a whole: some entry of it has to run.
        is_inside = "::" not in name and any(one.startswith(name) for one in listed)
        if not (is_listed or is_inside) or ("::" in name and not plan.selects(name)):
            lost.append(name)
    return lost


@pytest.fixture
def check_kind(project: Project) -> Callable[[Mapping[str, Any]], None]:
    """Give the trial of one kind: a row with `files`, `change`, and what to expect of it.

    `reason` must be among the plan's reasons. `sweeping` kinds run everything,
    `quiet` ones nothing; all others leave the bystander out. `setup` is a
    program that generates files before a run.
    """

    def check(row: Mapping[str, Any]) -> None:
        files = {**SCAFFOLD, **row["files"]}
        if row.get("mentioned"):
            files["pyproject.toml"] = files["pyproject.toml"].replace(
                'select = ""', 'select = ""\nmentioned_names = true'
            )
        project.write(files)
        setup = row.get("setup")
        if setup:
            project.python("-c", setup)
        base = project.commit("base")
        manifest = project.record()
        project.write(row["change"])
        for path, mode in row.get("modes", {}).items():
            (project.root / path).chmod(mode)
        head = project.commit("change")
        if setup:
            project.python("-c", setup)
        failed = project.failures()
        plan = project.plan("--manifest", str(manifest), "--base", base, "--head", head)
        assert missed(plan, failed) == [], f"missed; {plan.explanation}\n{plan.causes}"
        if row.get("quiet"):
            assert failed == []
            assert plan.decision is Decision.NONE, plan.causes
        else:
            assert failed, "the change broke nothing: the kind is not tried"
            if row.get("sweeping"):
                assert plan.decision is Decision.ALL
            else:
                assert plan.decision is Decision.SUBSET, plan.explanation
                if not row.get("wide"):
                    assert BYSTANDER in plan.skipped, plan.causes
        words = {str(cause.reason) for cause in plan.causes} | set(plan.reasons)
        # With mentioned names on, the reason of a module-level change is another one.
        assert row.get("mentioned") or row["reason"] in words, plan.causes
        for test in (BYSTANDER, *failed[:1]):
            code, text = project.lockgate(
                plan_command, "unit", "--manifest", str(manifest), "--base", base, "--head", head, "--explain", test
            )
            assert code == 0
            assert text.strip()

    return check
