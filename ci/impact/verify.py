"""Runs a commit for the truth: in a work tree of its own, with nothing left behind."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ci.context import Context
from ci.errors import ProcessError
from ci.impact.git import Repository
from ci.impact.plan import Decision, Plan
from ci.impact.witness import VARIABLE
from ci.process import run
from ci.stages.model import Stage

TOOL = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What a full run said: failing ids (a file that cannot be collected by its path), and how many tests ran."""

    failed: frozenset[str]
    ran: int
    problem: str = ""


@contextmanager
def checked_out(repository: Repository, commit: str, folder: Path) -> Iterator[Path]:
    """Check a commit out into a detached work tree, and remove it afterwards."""
    target = folder / commit[:12]
    repository.run("worktree", "add", "--detach", "--force", "--quiet", str(target), commit)
    try:
        yield target / repository.prefix if repository.prefix else target
    finally:
        repository.run("worktree", "remove", "--force", str(target))


def run_commit(root: Path, stage: Stage, context: Context) -> Truth:
    """Run the whole stage in a checked out tree; the tree's own sources come first on the path."""
    witness = root / ".lockgate-witness.json"
    witness.unlink(missing_ok=True)
    selection = ["-m", stage.select] if stage.select else []
    words = [
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "ci.impact.witness",
        "--continue-on-collection-errors", *selection, *stage.extra_args, *stage.paths,
    ]  # fmt: skip
    try:
        done = run(
            words, cwd=root, environ=tree_environ(root, context.environ, witness=witness), limit=stage.timeout,
            capture=True, check=False,
        )  # fmt: skip
    except ProcessError as error:
        return Truth(failed=frozenset(), ran=0, problem=error.message)
    if not witness.is_file():
        tail = (done.stderr or done.stdout).strip().splitlines()[-1:]
        return Truth(failed=frozenset(), ran=0, problem=f"pytest could not start: {' '.join(tail)}")
    document = json.loads(witness.read_text(encoding="utf-8"))
    witness.unlink()
    return Truth(failed=frozenset(document["failed"]), ran=int(document["ran"]))


def tree_environ(root: Path, environ: Mapping[str, str], *, witness: Path) -> dict[str, str]:
    """Give the environment in which a tree's own packages win over an installed copy of them."""
    # The repository that is replayed may hold this tool itself; then its own tree comes first as well.
    paths = [str(root), str(root / "src"), str(TOOL), environ.get("PYTHONPATH", "")]
    return {
        **environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHONDONTWRITEBYTECODE": "1",
        VARIABLE: str(witness),
    }


def find_missed(plan: Plan, failed: frozenset[str]) -> list[str]:
    """Name what failed though the plan would have skipped it.

    A file that cannot be collected is missed unless some entry of the plan
    lies in it.
    """
    if plan.decision is Decision.ALL:
        return []
    missed = []
    for name in sorted(failed):
        is_selected = plan.selects(name) if "::" in name else any(item.id.startswith(name) for item in plan.tests)
        if not is_selected:
            missed.append(name)
    return missed
