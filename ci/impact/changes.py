"""Trees of files and what differs between two of them, by content.

A tree says mode and blob of every tracked file, so two trees can be compared
without history: a wrong merge base, a force push or a shallow clone cannot
hide a difference. A rename is a removal and an addition; git's word for it is
kept as an explanation only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

LINK = "120000"
SUBMODULE = "160000"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One tracked path: git's mode (`100644`, `100755`, `120000`, `160000`) and the id of its content."""

    mode: str
    blob: str


Tree = Mapping[str, Entry]
"""Paths relative to the repository, with `/`; bytes that are not UTF-8 as surrogates."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One path that differs; `before` or `after` is None where it does not exist.

    `other` is the other name of a rename, as far as git saw one.
    """

    path: str
    before: Entry | None
    after: Entry | None
    other: str = ""

    @property
    def is_added(self) -> bool:
        """Whether the path is new."""
        return self.before is None

    @property
    def is_removed(self) -> bool:
        """Whether the path is gone."""
        return self.after is None

    @property
    def is_mode_only(self) -> bool:
        """Whether the content is the same and only its mode differs."""
        return self.before is not None and self.after is not None and self.before.blob == self.after.blob

    @property
    def modes(self) -> frozenset[str]:
        """The modes on both sides."""
        return frozenset(side.mode for side in (self.before, self.after) if side is not None)

    def __str__(self) -> str:
        """Say what happened in a few words."""
        if self.is_added:
            return f"{self.path} added" + (f" (renamed from {self.other})" if self.other else "")
        if self.is_removed:
            return f"{self.path} removed" + (f" (renamed to {self.other})" if self.other else "")
        return f"{self.path} changed" + (" its mode" if self.is_mode_only else "")


def compare_trees(before: Tree, after: Tree, *, renames: Mapping[str, str] | None = None) -> tuple[Change, ...]:
    """List the differing paths in order; `renames` maps new names to old ones."""
    names = dict(renames or {})
    names.update({old: new for new, old in names.items()})
    changes = [
        Change(path=path, before=before.get(path), after=after.get(path), other=names.get(path, ""))
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    ]
    return tuple(changes)


def through_links(changes: Iterable[Change], links: Mapping[str, str]) -> tuple[Change, ...]:
    """Repeat each change under every path that reaches it through a symbolic link.

    `links` maps the path of a link to the path that it stands for. A recording
    may have seen the file under either name.
    """
    found = list(changes)
    for change in tuple(found):
        for link, target in links.items():
            if change.path == target or change.path.startswith(f"{target}/"):
                found.append(replace(change, path=link + change.path[len(target) :], other=change.path))
    return tuple(found)


def resolve_link(link: str, target: str) -> str:
    """Give the path in the repository that a link stands for; "" when it leaves the repository."""
    parts = [] if target.startswith("/") else link.split("/")[:-1]
    if target.startswith("/"):
        return ""
    for part in target.split("/"):
        if part == "..":
            if not parts:
                return ""
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def folders_of(path: str) -> list[str]:
    """Give the folders that hold a path, nearest first; the root is ""."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:size]) for size in range(len(parts), -1, -1)]


def is_below(path: str, folder: str) -> bool:
    """Whether a path lies in a folder or deeper; the root "" holds everything."""
    return not folder or path.startswith(f"{folder}/")
