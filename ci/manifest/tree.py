"""The checked-out tree as git knows it: tracked files with their blob ids, links, and what differs from the commit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ci.errors import GitError, ProcessError
from ci.process import run

LIMIT = 120.0
LINK = "120000"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A tracked file: git's blob id and mode."""

    blob: str
    mode: str


@dataclass(kw_only=True)
class Tree:
    """The tracked files below `root` at `commit`, read from the working folder.

    `modified` are tracked files that differ from the commit.
    """

    root: Path
    commit: str
    files: Mapping[str, Entry]
    modified: tuple[str, ...] = ()
    cache: dict[str, bytes] = field(default_factory=dict)
    names: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Sort out links and Python files once."""
        self.links = frozenset(path for path, entry in self.files.items() if entry.mode == LINK)
        self.python = tuple(path for path in self.files if path.endswith(".py") and path not in self.links)
        self.inside = str(self.root) + os.sep

    def read(self, path: str) -> bytes:
        """Give a file's content; one that cannot be read is empty (the check of measured files names it)."""
        if path not in self.cache:
            try:
                self.cache[path] = (self.root / path).read_bytes()
            except OSError:
                self.cache[path] = b""
        return self.cache[path]

    def relative(self, absolute: str) -> tuple[str, tuple[str, ...]]:
        """Give the path in the tree of what a process saw, links resolved, and the tracked links on the way."""
        if absolute not in self.names:
            real = os.path.relpath(os.path.realpath(absolute), self.root).replace(os.sep, "/")
            links: list[str] = []
            if self.links and absolute.startswith(self.inside):
                place = ""
                for part in Path(absolute[len(self.inside) :]).parts:
                    place = f"{place}/{part}" if place else part
                    if place in self.links:
                        links.append(place)
            self.names[absolute] = (real, tuple(links))
        return self.names[absolute]

    def conftests_above(self, path: str) -> list[str]:
        """Give the conftest files of all folders at and above a file."""
        return [place for place in _above(path, "conftest.py") if place in self.files]

    def packages_above(self, path: str) -> list[str]:
        """Give the `__init__` files of the packages that hold a file, nearest first, without gaps."""
        found = []
        for place in _above(path, "__init__.py"):
            if place == path:
                continue
            if place not in self.files:
                break
            found.append(place)
        return found


def _above(path: str, name: str) -> list[str]:
    folder = path.rpartition("/")[0]
    found = []
    while folder:
        found.append(f"{folder}/{name}")
        folder = folder.rpartition("/")[0]
    return [*found, name]


def read_tree(root: Path, *, environ: Mapping[str, str]) -> Tree:
    """Read the commit that is checked out; raises `GitError` outside a repository with a commit."""

    def git(*words: str) -> str:
        return run(["git", *words], cwd=root, environ=environ, limit=LIMIT, capture=True).stdout

    try:
        commit = git("rev-parse", "--verify", "HEAD^{commit}").strip()
        listing = git("ls-tree", "-r", "-z", "HEAD")
        status = git("status", "--porcelain", "-z", "--untracked-files=no", "--no-renames", "--", ".")
        prefix = git("rev-parse", "--show-prefix").strip()
    except ProcessError as error:
        raise GitError(
            f"{root} cannot be read as a git tree: {error.message}", hint="a manifest needs a commit to speak of"
        ) from error
    files = {}
    for row in listing.split("\0"):
        if row:
            mode, _, rest = row.partition(" ")
            names, _, path = rest.partition("\t")
            files[path] = Entry(mode=mode, blob=names.split(" ")[1])
    modified = sorted(line[3:].removeprefix(prefix) for line in status.split("\0") if line)
    return Tree(root=Path(os.path.realpath(root)), commit=commit, files=files, modified=tuple(modified))


def read_blobs(tree: Tree, paths: list[str], *, environ: Mapping[str, str]) -> dict[str, str]:
    """Give the blob ids that git would store for files of the working folder, filters applied.

    Files that are gone, links and submodules are left out.
    """
    present = [path for path in paths if (tree.root / path).is_file() and path not in tree.links and "\n" not in path]
    if not present:
        return {}
    found: dict[str, str] = {}
    for start in range(0, len(present), 500):
        batch = present[start : start + 500]
        answer = run(
            ["git", "hash-object", "--", *batch], cwd=tree.root, environ=environ, limit=LIMIT, capture=True
        ).stdout.split()
        found.update(zip(batch, answer, strict=True))
    return found


def read_commits(root: Path, *, since: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Give the commits after `since` that led to the present one, oldest first; raises `GitError`."""
    try:
        words = ["git", "rev-list", "--topo-order", "--reverse", f"{since}..HEAD", "--"]
        return tuple(run(words, cwd=root, environ=environ, limit=LIMIT, capture=True).stdout.split())
    except ProcessError as error:
        raise GitError(
            f"{since!r} is not a commit that led here: {error.message}", hint="fetch more history"
        ) from error
