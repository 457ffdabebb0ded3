"""Reads workflow folders, from disk or from a git revision: the only place that touches files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ci.errors import GitError, ProcessError, WorkflowError
from ci.process import run
from ci.trust.model import Action, Folder, Problem, Workflow
from ci.trust.steps import local_path
from ci.trust.workflow import parse_action, parse_workflow

WORKFLOWS = ".github/workflows"
MAX_BYTES = 1024 * 1024
"""A workflow of more bytes is not read; the service's own limit is far below."""
SUFFIXES = (".yml", ".yaml")
GIT_LIMIT = 60.0


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where workflows are: the repository's root, and the folder of the files below it ("" for a bare folder)."""

    root: Path
    folder: str


def find_place(folder: Path) -> Place:
    """Accept a repository, its `.github/workflows`, its `.github`, or a bare folder of workflow files.

    Raises `WorkflowError` when there is nothing of the kind.
    """
    hint = f"give a repository with {WORKFLOWS}, or a folder of workflow files"
    if not folder.is_dir():
        found = "is a file" if folder.exists() else "does not exist"
        raise WorkflowError(f"{folder} {found}, expected a folder", hint=hint)
    if (folder / WORKFLOWS).is_dir():
        return Place(root=folder, folder=WORKFLOWS)
    if folder.parts[-2:] == (".github", "workflows"):
        return Place(root=folder.parent.parent, folder=WORKFLOWS)
    if folder.name == ".github" and (folder / "workflows").is_dir():
        return Place(root=folder.parent, folder=WORKFLOWS)
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError as error:
        raise WorkflowError(f"{folder} cannot be listed: {error.strerror}", hint=hint) from error
    if not any(name.lower().endswith(SUFFIXES) for name in names):
        raise WorkflowError(f"{folder} holds no workflow file", hint=hint)
    return Place(root=folder, folder="")


def read_folder(place: Place) -> Folder:
    """Read and parse every workflow and every local action that they use."""
    base = place.root / place.folder
    try:
        names = sorted(path.name for path in base.iterdir())
    except OSError as error:
        raise WorkflowError(f"{base} cannot be listed: {error.strerror}") from error
    workflows: dict[str, Workflow] = {}
    notes: list[str] = []
    for name in names:
        if not name.lower().endswith(SUFFIXES):
            continue
        path = f"{place.folder}/{name}" if place.folder else name
        if (base / name).is_dir():
            notes.append(f"{path} is a folder, not a workflow")
            continue
        text = _read_text(base / name)
        workflows[path] = _refused(path, text) if isinstance(text, Problem) else parse_workflow(text, path=path)
    return Folder(workflows=workflows, actions=_read_actions(place.root, workflows), notes=tuple(notes))


def _refused(path: str, problem: Problem) -> Workflow:
    return Workflow(path=path, name=path, problems=(problem,))


def _read_text(path: Path) -> str | Problem:
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        return Problem(line=1, message=f"the file cannot be read: {error.strerror or error}")
    return decode(data)


def decode(data: bytes) -> str | Problem:
    """Decode a file's bytes as UTF-8 or, with its mark, UTF-16."""
    if len(data) > MAX_BYTES:
        return Problem(line=1, message=f"the file is larger than {MAX_BYTES:,} bytes and was not read")
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        name = encoding.removesuffix("-sig").upper()
        return Problem(line=line, message=f"the file is not valid {name}: {error.reason} at byte {error.start}")


def _read_actions(root: Path, workflows: Mapping[str, Workflow]) -> dict[str, Action]:
    wanted = [
        local_path(step) for workflow in workflows.values() for job in workflow.jobs.values() for step in job.steps
    ]
    found: dict[str, Action] = {}
    queue = list(dict.fromkeys(path for path in wanted if path))
    while queue:
        path = queue.pop()
        if path in found or ".." in PurePosixPath(path).parts:
            continue
        for name in ("action.yml", "action.yaml"):
            text = _read_text(root / path / name) if (root / path / name).is_file() else None
            if isinstance(text, str):
                found[path] = parse_action(text, path=f"{path}/{name}")
                queue += [inner for inner in map(local_path, found[path].steps) if inner]
                break
    return found


def read_revision(place: Place, revision: str, *, environ: Mapping[str, str]) -> Folder:
    """Read the same folder as it is at a git revision; raises `GitError`."""
    top = Path(_git(place.root, ["rev-parse", "--show-toplevel"], environ).strip())
    inside = os.path.relpath((place.root / place.folder).resolve(), top.resolve()).replace(os.sep, "/")
    prefix = os.path.relpath(place.root.resolve(), top.resolve()).replace(os.sep, "/")
    commit = _git(
        place.root,
        ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"],
        environ,
        revision,
    ).strip()
    # Every YAML file: local actions may stand in any folder.
    listing = _git(top, ["ls-tree", "-r", "-z", "--name-only", commit], environ)
    paths = [path for path in listing.split("\0") if path.endswith(SUFFIXES)]
    folder = "" if inside == "." else f"{inside}/"
    workflows: dict[str, Workflow] = {}
    for path in paths:
        name = path.removeprefix(folder)
        if path.startswith(folder) and "/" not in name:
            shown = f"{place.folder}/{name}" if place.folder else name
            workflows[shown] = parse_workflow(_git(top, ["show", f"{commit}:{path}"], environ), path=shown)
    actions: dict[str, Action] = {}
    below = "" if prefix == "." else f"{prefix}/"
    for path in paths:
        if path.rpartition("/")[2] in ("action.yml", "action.yaml") and path.startswith(below):
            key = path.removeprefix(below).rpartition("/")[0]
            actions[key] = parse_action(_git(top, ["show", f"{commit}:{path}"], environ), path=path)
    return Folder(workflows=workflows, actions=actions)


def _git(folder: Path, arguments: list[str], environ: Mapping[str, str], revision: str = "") -> str:
    done = run(["git", *arguments], cwd=folder, environ=environ, limit=GIT_LIMIT, capture=True, check=False)
    if done.returncode != 0:
        if revision:
            raise GitError(f"git knows no commit {revision!r}", hint="fetch it first, or give a branch, a tag or a SHA")
        raise GitError(f"git {arguments[0]} failed in {folder}: {done.stderr.strip()}")
    return done.stdout


def read_remote(folder: Path, *, environ: Mapping[str, str]) -> str:
    """Give `owner/name` of the git remote `origin`, "" when there is none, or no git."""
    command = ["git", "remote", "get-url", "origin"]
    try:
        done = run(command, cwd=folder, environ=environ, limit=GIT_LIMIT, capture=True, check=False)
    except ProcessError:
        return ""
    return parse_remote(done.stdout.strip()) if done.returncode == 0 else ""


def parse_remote(url: str) -> str:
    """Take `owner/name` from a remote's address, "" when it holds none."""
    path = url.removesuffix("/").removesuffix(".git")
    path = path.partition("://")[2].partition("/")[2] if "://" in path else path.partition(":")[2]
    parts = [part for part in path.split("/") if part]
    return "/".join(parts[-2:]) if len(parts) >= 2 else ""
