"""What git knows: revisions, trees, contents. An edge, and the only one of this room.

Paths and contents are bytes here and never pass through a text layer, which
would fold line ends and lose names that are not UTF-8; that is why git is not
started through `ci.process`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ci.errors import GitError
from ci.impact.changes import LINK, Entry, Tree, resolve_link

LIMIT = 120.0
"""Seconds for one git command; a stuck network mount must not hold a plan for ever."""

RENAME_LIMIT = "1000"
"""Candidates that git compares for a rename; beyond it renames stay removals and additions."""

INSTALL_HINT = "install git, or give the commits another way: `lockgate plan` cannot work without it"


@dataclass(frozen=True, kw_only=True)
class Repository:
    """One repository; `root` may be a folder inside the work tree, and paths are relative to it.

    A path outside `root` reads `../name`. `environ` is the environment of the
    git processes.
    """

    root: Path
    environ: Mapping[str, str]
    prefix: str = ""

    @cached_property
    def top(self) -> str:
        """The folder of the whole work tree."""
        return os.fsdecode(self.run("rev-parse", "--show-toplevel").removesuffix(b"\n"))

    def run(self, *arguments: str, data: bytes | None = None, environ: Mapping[str, str] | None = None) -> bytes:
        """Run git and give its output; raises `GitError` with git's own words."""
        finished = self._start(arguments, data=data, environ=environ)
        if finished.returncode != 0:
            words = finished.stderr.decode("utf-8", "replace").strip()
            raise GitError(f"git {' '.join(arguments[:3])} failed: {words or f'exit code {finished.returncode}'}")
        return finished.stdout

    def ask(self, *arguments: str, data: bytes | None = None) -> bytes | None:
        """Run git and give its output, or None where it says no."""
        finished = self._start(arguments, data=data, environ=None)
        return finished.stdout if finished.returncode == 0 else None

    def _start(
        self, arguments: Iterable[str], *, data: bytes | None, environ: Mapping[str, str] | None
    ) -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run(
                ["git", *arguments],
                cwd=self.root,
                env={**self.environ, **FIXED_ENVIRON, **(environ or {})},
                input=data if data is not None else b"",
                capture_output=True,
                check=False,
                timeout=LIMIT,
            )
        except FileNotFoundError:
            raise GitError("git was not found on PATH", hint=INSTALL_HINT) from None
        except OSError as error:
            raise GitError(f"git cannot be started in {self.root}: {error.strerror}") from error
        except subprocess.TimeoutExpired:
            raise GitError(f"git {next(iter(arguments), '')} ran past its limit of {LIMIT:g} s") from None

    def commit(self, revision: str) -> str | None:
        """Give the full commit id of a revision, or None where this clone does not have it."""
        if not revision or revision.startswith("-"):
            return None
        found = self.ask("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        return found.decode().strip() if found else None

    def merge_base(self, one: str, two: str) -> str | None:
        """Give a best common ancestor, or None where there is none in this clone."""
        found = self.ask("merge-base", one, two)
        return found.decode().split()[0] if found else None

    def is_shallow(self) -> bool:
        """Whether history was cut off when cloning."""
        return self.run("rev-parse", "--is-shallow-repository").strip() == b"true"

    def tree(self, treeish: str) -> dict[str, Entry]:
        """Read mode and blob of every path of a commit or tree."""
        entries: dict[str, Entry] = {}
        for record in self.run("ls-tree", "-r", "-z", "--full-tree", treeish).split(b"\0"):
            if record:
                facts, _, path = record.partition(b"\t")
                mode, _, blob = facts.split(b" ")
                entries[self._relative(os.fsdecode(path))] = Entry(mode=mode.decode(), blob=blob.decode())
        return entries

    def _relative(self, path: str) -> str:
        if not self.prefix:
            return path
        if path.startswith(self.prefix):
            return path[len(self.prefix) :]
        return "../" * self.prefix.count("/") + path

    def renames(self, before: str, after: str) -> dict[str, str]:
        """Map new names to old ones, as git's similarity sees them; empty where git cannot tell."""
        raw = self.ask("diff", "--raw", "-z", "--find-renames", f"-l{RENAME_LIMIT}", "--no-abbrev", before, after, "--")
        return {self._relative(new): self._relative(old) for old, new in parse_renames(raw or b"")}

    def blobs(self, ids: Iterable[str]) -> dict[str, bytes]:
        """Read contents in one process; an object that this clone lacks is left out."""
        wanted = sorted(set(ids))
        if not wanted:
            return {}
        output = self.run("cat-file", "--batch", data=("\n".join(wanted) + "\n").encode())
        found: dict[str, bytes] = {}
        place = 0
        while place < len(output):
            end = output.index(b"\n", place)
            header = output[place:end].split(b" ")
            place = end + 1
            if header[-1] == b"missing" or len(header) != 3:
                continue
            size = int(header[2])
            found[header[0].decode()] = output[place : place + size]
            place += size + 1
        return found

    def grep(self, words: Iterable[str], treeish: str) -> frozenset[str]:
        """Name the files of a tree that hold one of some words as a whole word, binary files included."""
        patterns = [part for word in sorted(set(words)) for part in ("-e", word)]
        if not patterns:
            return frozenset()
        output = self.ask("grep", "-z", "-l", "-w", "-F", *patterns, treeish, "--", ":/")
        head = f"{treeish}:".encode()
        names = (record.removeprefix(head) for record in (output or b"").split(b"\0") if record)
        # grep already names paths relative to where it stands.
        return frozenset(os.fsdecode(name) for name in names)

    def file(self, treeish: str, path: str) -> bytes | None:
        """Read one file of a commit or tree, None where it has none."""
        return self.ask("cat-file", "blob", f"{treeish}:{self.prefix}{path}")

    def contents(self, paths: Iterable[str], treeish: str) -> dict[str, bytes]:
        """Read some files of a tree by their paths."""
        wanted = set(paths)
        if not wanted:
            return {}
        ids = {path: entry.blob for path, entry in self.tree(treeish).items() if path in wanted}
        found = self.blobs(ids.values())
        return {path: found[blob] for path, blob in ids.items() if blob in found}

    def links(self, tree: Tree) -> dict[str, str]:
        """Map each symbolic link that stays in the repository to the path it stands for."""
        entries = {path: entry for path, entry in tree.items() if entry.mode == LINK}
        contents = self.blobs(entry.blob for entry in entries.values())
        found = {
            path: resolve_link(path, os.fsdecode(contents[entry.blob]))
            for path, entry in entries.items()
            if entry.blob in contents
        }
        return {path: target for path, target in found.items() if target}

    def commits(self, revision: str, count: int) -> list[str]:
        """List the last commits of a branch along first parents, newest first."""
        return self.run("rev-list", "--first-parent", f"--max-count={count}", revision, "--").decode().split()

    def snapshot(self, folder: Path, *, untracked: Callable[[str], bool] = bool) -> tuple[Repository, str]:
        """Turn the work tree into a tree; `untracked` says which files that git does not track belong to it.

        Gives a repository that can read the tree, and the tree's id: its
        objects lie in `folder`, and neither the index nor the object store of
        the work tree is touched. Ignored files and `.lockgate` stay out.
        """
        objects = Path(os.fsdecode(self.run("rev-parse", "--path-format=absolute", "--git-path", "objects").strip()))
        index = Path(os.fsdecode(self.run("rev-parse", "--path-format=absolute", "--git-path", "index").strip()))
        copy = folder / "index"
        if index.is_file():
            # The copy keeps git's notes of file times, so that only changed files are read.
            shutil.copy2(index, copy)
        (folder / "objects").mkdir(exist_ok=True)
        known = self.environ.get("GIT_ALTERNATE_OBJECT_DIRECTORIES", "")
        environ = {
            **self.environ,
            "GIT_INDEX_FILE": str(copy),
            "GIT_OBJECT_DIRECTORY": str(folder / "objects"),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": os.pathsep.join(filter(None, (str(objects), known))),
        }
        reader = Repository(root=self.root, environ=environ, prefix=self.prefix)
        quiet = ("-c", "core.safecrlf=false", "-c", "advice.addEmbeddedRepo=false", "--literal-pathspecs")
        reader.run(*quiet, "add", "--update", "--", self.top)
        listed = self.run("ls-files", "--others", "--exclude-standard", "-z", "--full-name", "--", ":/").split(b"\0")
        names = [name for name in listed if name and untracked(self._relative(os.fsdecode(name)))]
        fresh = [os.fsencode(self.top) + b"/" + name for name in names if b".lockgate" not in name.split(b"/")]
        if fresh:
            reader.run(*quiet, "add", "--pathspec-from-file=-", "--pathspec-file-nul", data=b"\0".join(fresh))
        return reader, reader.run("write-tree").decode().strip()


FIXED_ENVIRON = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", "LC_ALL": "C"}
"""Never wait for a person, never fetch in the middle of a plan, always speak the language we parse."""


def open_repository(root: Path, environ: Mapping[str, str]) -> Repository:
    """Open the repository around a folder; raises `GitError` where there is none."""
    probe = Repository(root=root, environ=environ)
    output = probe._start(("rev-parse", "--show-prefix"), data=None, environ=None)  # noqa: SLF001
    if output.returncode != 0:
        words = output.stderr.decode("utf-8", "replace").strip().splitlines()
        raise GitError(
            f"{root} is not in a git work tree: {words[0] if words else 'git says no more'}",
            hint="run in a clone, or give one with --root DIR",
        )
    return Repository(root=root, environ=environ, prefix=os.fsdecode(output.stdout.removesuffix(b"\n")))


def parse_renames(raw: bytes) -> list[tuple[str, str]]:
    """Read (old, new) pairs of `git diff --raw -z`; names are bytes between NULs."""
    fields = raw.split(b"\0")
    pairs: list[tuple[str, str]] = []
    place = 0
    while place < len(fields) and fields[place].startswith(b":"):
        status = fields[place].rsplit(b" ", 1)[-1]
        is_pair = status[:1] in (b"R", b"C")
        if status[:1] == b"R":
            pairs.append((os.fsdecode(fields[place + 1]), os.fsdecode(fields[place + 2])))
        place += 3 if is_pair else 2
    return pairs


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """Make a folder for the objects of a snapshot."""
    return tempfile.TemporaryDirectory(prefix="lockgate-plan-")
