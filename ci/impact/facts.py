"""What a decision is given (Facts), and what a rule says about one change (Effect)."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ci.impact.blocks import Blocks, parse_blocks
from ci.impact.changes import Change, Entry, Tree, folders_of, is_below
from ci.impact.names import module_suffixes
from ci.impact.patterns import matches
from ci.impact.reasons import Reason
from ci.manifest.model import Bits, Kind, Manifest
from ci.stages.model import Stage

PYTHON_FILES = ("test_*.py", "*_test.py")
"""pytest's default for `python_files`."""

SELECTOR = ("noxfile.py", ".ci/**")
"""Files that say how a stage is run, in any repository."""

OWN_SELECTOR = ("ci/impact/**", "ci/manifest/**", "ci/running/**", "ci/stages/**")
"""The selecting and running code itself, in the repository that holds it."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How to decide: the stage's row as the base ref has it, and what belongs to the gate itself.

    `installed` are the top-level names that a new file could shadow.
    """

    stage: Stage
    selector: tuple[str, ...] = SELECTOR
    python_files: tuple[str, ...] = PYTHON_FILES
    installed: frozenset[str] = frozenset(sys.stdlib_module_names)

    def is_documentation(self, path: str) -> str:
        """Give the pattern that makes a path documentation, or ""."""
        return matches(path, self.stage.documentation) or matches(path, INERT)


INERT = (
    ".editorconfig",
    ".git-blame-ignore-revs",
    ".github/CODEOWNERS",
    ".github/FUNDING.yml",
    ".github/ISSUE_TEMPLATE/**",
    ".github/PULL_REQUEST_TEMPLATE*",
    ".github/dependabot.yml",
    ".mailmap",
)
"""Paths that only the hosting site or an editor reads."""


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What one change leads to: a reason, a detail, and the tests, if it is not everything or nothing.

    `files` are test files of which tests that the manifest does not know run too.
    """

    path: str
    reason: Reason
    detail: str
    tests: Bits = 0
    files: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Span:
    """The changes from one tree to another, with the contents that the rules need.

    `sources` maps blob ids to contents; a missing one means that git does not
    have it. `mentions` maps a word to the files at base that mention it (the ones
    that start to do so differ, and are judged by that); `dynamic` are the
    files that look names up dynamically; `texts` are all Python files at base,
    if the row wants changes narrowed by mentioned names.
    """

    changes: tuple[Change, ...]
    before: Tree
    after: Tree
    sources: Mapping[str, bytes] = field(default_factory=dict)
    mentions: Mapping[str, frozenset[str]] = field(default_factory=dict)
    dynamic: frozenset[str] = frozenset()
    texts: Mapping[str, bytes] = field(default_factory=dict)

    def source(self, entry: Entry | None) -> bytes | None:
        """Give the content of one side, None where it does not exist or git lacks it."""
        return None if entry is None else self.sources.get(entry.blob)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Everything that a decision rests on.

    `own` is what the change does (base .. head), `drift` what happened since
    the manifest was recorded (manifest .. base). `base`, `head`, `merge_base`
    are commit ids, "" where there is none.
    """

    manifest: Manifest
    policy: Policy
    own: Span
    drift: Span
    base: str = ""
    head: str = ""
    merge_base: str = ""
    age_hours: float = 0.0
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class View:
    """One span seen through a manifest: what the rules ask."""

    manifest: Manifest
    policy: Policy
    span: Span

    @cached_property
    def by_file(self) -> dict[str, Bits]:
        """Tests of each test file."""
        found: dict[str, int] = {}
        for index, test in enumerate(self.manifest.tests):
            found[test.path] = found.get(test.path, 0) | 1 << index
        return found

    @cached_property
    def by_function(self) -> dict[tuple[str, str], Bits]:
        """Tests of each test function, by file and qualified name."""
        found: dict[tuple[str, str], int] = {}
        for index, test in enumerate(self.manifest.tests):
            key = (test.path, function_of(test.id))
            found[key] = found.get(key, 0) | 1 << index
        return found

    @cached_property
    def folders(self) -> tuple[frozenset[str], frozenset[str]]:
        """Folders that exist before and after."""
        return _folders(self.span.before), _folders(self.span.after)

    @cached_property
    def suffixes(self) -> dict[str, frozenset[str]]:
        """Python files before, by every tail of their path."""
        return module_suffixes(self.span.before)

    def below(self, folder: str) -> Bits:
        """Give the tests in a folder or deeper."""
        found = 0
        for path, bits in self.by_file.items():
            if is_below(path, folder):
                found |= bits
        return found

    def importers(self, path: str) -> Bits:
        """Give the tests whose import closure holds a module, or that were seen to run any of it."""
        return self.manifest.imported.get(path, 0) | self.manifest.executors(path)

    def users(self, path: str) -> Bits:
        """Give the tests that depend on a file in whatever way."""
        library = self.manifest.libraries.get(path)
        return (
            self.importers(path)
            | self.manifest.opened.get(path, 0)
            | self.by_file.get(path, 0)
            | (library.tests if library is not None else 0)
        )

    def is_test_file(self, path: str) -> bool:
        """Whether pytest collects a file: the manifest says so, or its name does."""
        return path in self.by_file or bool(path.endswith(".py") and matches(path, self.policy.python_files))

    def is_python(self, change: Change) -> bool:
        """Whether a file is Python: by its name, by what was recorded, or by its first line."""
        if change.path.endswith((".py", ".pyw")):
            return True
        known = self.manifest.files.get(change.path)
        if known is not None and known.kind is Kind.PYTHON:
            return True
        source = self.span.source(change.after) or self.span.source(change.before) or b""
        first = source[:100].split(b"\n")[0]
        return first.startswith(b"#!") and b"python" in first

    def blocks(self, path: str, entry: Entry | None) -> Blocks | Mapping[str, str] | None:
        """Give the blocks of one side, from the manifest where it holds this very content."""
        if entry is None:
            return None
        known = self.manifest.files.get(path)
        inert = self.policy.stage.docstrings_inert
        if known is not None and known.blob == entry.blob and known.blocks and not inert:
            return known.blocks
        source = self.span.source(entry)
        return None if source is None else parse_blocks(source, docstrings_inert=inert)

    def digests(self, path: str, entry: Entry | None) -> Mapping[str, str]:
        """Give the digests of the blocks of one side; empty where they are not known."""
        found = self.blocks(path, entry)
        return {} if found is None else found.digests if isinstance(found, Blocks) else found

    def appeared_or_went(self, change: Change) -> list[str]:
        """Give the paths that exist on one side only because of a change: itself and its new or emptied folders."""
        if not (change.is_added or change.is_removed):
            return []
        others = self.folders[0] if change.is_added else self.folders[1]
        return [change.path, *(folder for folder in folders_of(change.path) if folder and folder not in others)]


def function_of(test: str) -> str:
    """Give the qualified name of a test id's function: `a.py::C::test_x[1]` is `C.test_x`."""
    return ".".join(test.partition("[")[0].split("::")[1:])


def union(sets: Iterable[Bits]) -> Bits:
    """Unite sets of tests."""
    found = 0
    for bits in sets:
        found |= bits
    return found


def _folders(tree: Tree) -> frozenset[str]:
    found: set[str] = {""}
    for path in tree:
        for folder in folders_of(path):
            if folder in found:
                break
            found.add(folder)
    return frozenset(found)
