"""Records of a run + the tree that was checked out -> `Manifest` and the findings that speak against it."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from ci import __version__
from ci.impact.blocks import BLOCKS_VERSION, MODULE, Block, Blocks, parse_blocks
from ci.manifest.checks import is_safe
from ci.manifest.credit import Context, Graph, Owner, SharedRun, credit
from ci.manifest.model import (
    Bits,
    Core,
    Header,
    Kind,
    Library,
    Manifest,
    SourceFile,
    TestRecord,
    blob_id,
    listings_of,
    unpack,
)
from ci.manifest.native import Native
from ci.manifest.records import Records, Session, Test, Use
from ci.manifest.sources import parse_imports, resolve_import
from ci.manifest.tree import Tree

NATIVE_SUFFIXES = (".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hh", ".hpp", ".inl", ".pyx", ".pxd")
LIBRARY_SUFFIXES = (".so", ".pyd", ".dylib", ".dll")
SELF_MADE = ("*.egg-info/*", "*.dist-info/*", ".coverage*", ".hypothesis/*", "*.pyc")
"""Untracked files that the environment's own tools make: not evidence, not a reason to distrust."""


@dataclass(kw_only=True)
class Builder:
    """Translates what processes saw (absolute paths, lines, code objects) into the tree's own names."""

    records: Records
    tree: Tree
    native: Native
    generated: Sequence[str] = ()
    blocks: dict[str, Blocks] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)
    path_of: list[str] = field(default_factory=list)
    block_of: list[Block] = field(default_factory=list)
    masks: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    problems: set[str] = field(default_factory=set)

    def path(self, absolute: str) -> tuple[str, tuple[str, ...]]:
        """Give the path in the tree, and the links that lead there."""
        return self.tree.relative(absolute)

    def parsed(self, path: str) -> Blocks:
        """Give a Python file's blocks, numbering them when they are first asked for."""
        if path not in self.blocks:
            parsed = parse_blocks(self.tree.read(path))
            self.blocks[path] = parsed
            self.first[path] = len(self.path_of)
            self.path_of.extend([path] * len(parsed.blocks))
            self.block_of.extend(parsed.blocks)
        return self.blocks[path]

    def number(self, path: str, block: Block) -> int:
        """Give a block's number."""
        return self.first[path] + self.parsed(path).blocks.index(block)

    def line_masks(self, path: str) -> list[tuple[int, int]]:
        """Give (lines that are a block's own, block number) for a file, the module block first."""
        if path not in self.masks:
            parsed = self.parsed(path)
            owner = [0] * (parsed.module.last + 2)
            order = sorted(range(1, len(parsed.blocks)), key=lambda place: parsed.blocks[place].first)
            for place in order:
                block = parsed.blocks[place]
                owner[block.body : block.last + 1] = [place] * (block.last + 1 - block.body)
            lines: dict[int, int] = {}
            for line, place in enumerate(owner):
                lines[place] = lines.get(place, 0) | (1 << line)
            self.masks[path] = [(mask, self.first[path] + place) for place, mask in sorted(lines.items())]
        return self.masks[path]

    def context(self, label: str, use: Use) -> Context:
        """Translate one context."""
        found = Context(opaque=set(use.opaque))
        written = {self.path(path)[0] for path in use.written}
        for path, codes in use.executed.items():
            name = self._python(path, found, written)
            if name:
                self._codes(name, codes, found)
        for path, bits in use.lines.items():
            name = self._python(path, found, written)
            if name:
                self._lines(name, bits, found, is_module=label.startswith("module:"))
        found.modules.update(filter(None, (self._python(path, found, written) for path in use.imported)))
        for kind in ("opened", "listed", "probed", "loaded"):
            for path in getattr(use, kind):
                self._file(kind, path, found, written)
        if label.startswith("module:"):
            found.modules.discard(label.partition(":")[2])
        return found

    def _codes(self, path: str, codes: set[tuple[int, str]], context: Context) -> None:
        parsed = self.parsed(path)
        for line, code in codes:
            if code == MODULE:
                context.modules.add(path)
            else:
                self._ran(context, path, self.number(path, parsed.find(name=code, line=line)))

    def _lines(self, path: str, bits: int, context: Context, *, is_module: bool) -> None:
        for mask, number in self.line_masks(path):
            # The line of `def` runs when a module executes; calls were watched there instead.
            own = mask & ~(1 << self.block_of[number].first) if is_module and number != self.first[path] else mask
            if bits & own:
                self._ran(context, path, number)

    def _ran(self, context: Context, path: str, number: int) -> None:
        if number == self.first[path]:
            context.modules.add(path)
        else:
            context.blocks.add(number)

    def _python(self, absolute: str, context: Context, written: set[str]) -> str:
        """Give the tracked file of executed code; code of other files makes the context opaque."""
        path, links = self.path(absolute)
        context.opened.update(links)
        if path in self.tree.files:
            self.used.add(path)
            return path if path not in self.tree.links else ""
        self._distrust(path, context, written)
        return ""

    def _file(self, kind: str, absolute: str, context: Context, written: set[str]) -> None:
        path, links = self.path(absolute)
        context.opened.update(links)
        if path not in self.tree.files and not is_safe(path):
            # Nothing that git could hold under this name is asked for.
            return
        if kind == "loaded" or (kind == "opened" and path.endswith(LIBRARY_SUFFIXES)):
            context.loaded.add(path)
        elif kind == "opened" and path in self.tree.files:
            self.used.add(path)
            context.opened.add(path)
        elif kind == "opened":
            self._distrust(path, context, written)
        elif path != "." or kind == "listed":
            getattr(context, kind).add("" if path == "." else path)

    def _distrust(self, path: str, context: Context, written: set[str]) -> None:
        above = path.rpartition("/")[0]
        while above:
            if above in self.tree.files:
                # Inside an archive or a submodule: the tracked thing that holds it decides.
                self.used.add(above)
                context.opened.add(above)
                return
            above = above.rpartition("/")[0]
        if path in written or path.startswith("..") or any(fnmatch.fnmatch(path, glob) for glob in SELF_MADE):
            return
        if any(fnmatch.fnmatch(path, glob) for glob in self.generated):
            return
        reason = "reads-git" if path == ".git" or path.startswith(".git/") else "untracked-input"
        context.opaque.add(f"{reason}: {path}" if reason == "untracked-input" else reason)

    def contexts(self, uses: Mapping[str, Use]) -> dict[str, Context]:
        """Translate all contexts; modules get the tree's name of their file."""
        found: dict[str, Context] = {}
        for label, use in uses.items():
            if label.startswith("canary:"):
                continue
            name = self.label(label)
            context = self.context(name, use)
            if name in found:
                # One file under two names: reached through a link as well.
                for item in fields(Context):
                    getattr(context, item.name).update(getattr(found[name], item.name))
            found[name] = context
        return found

    def label(self, label: str) -> str:
        """Give a context's label with the tree's name of its module."""
        kind, _, path = label.partition(":")
        return f"module:{self.path(path)[0]}" if kind == "module" else label

    def graph(self, bases: Sequence[str], early: frozenset[str]) -> Graph:
        """Unite recorded and static import edges, and the packages above each file."""
        by_module: dict[str, set[str]] = {}
        by_block: dict[int, set[str]] = {}

        def edge(path: str, block: Block, targets: set[str]) -> None:
            # Untracked modules stay in the graph: whoever imports one cannot be trusted.
            targets = {target for target in targets if target != path and not target.startswith("..")}
            if not targets:
                return
            if block.name == MODULE:
                by_module.setdefault(path, set()).update(targets)
            else:
                by_block.setdefault(self.number(path, block), set()).update(targets)

        for (importer, line, name), targets in self.records.edges.items():
            path = self.path(importer)[0]
            if path in self.tree.files and path.endswith(".py"):
                block = self.parsed(path).module if name == MODULE else self.parsed(path).find(name=name, line=line)
                edge(path, block, {self.path(target)[0] for target in targets})
        for path in self.tree.python:
            parsed = self.parsed(path)
            names = {block.name: block for block in parsed.blocks}
            for holder, module, level, items in parse_imports(self.tree.read(path), blocks=parsed):
                local = {*bases, path.rpartition("/")[0]}
                targets = resolve_import(path, module, level, items, files=self.tree.files, bases=local)
                edge(path, names[holder], targets)
            edge(path, parsed.module, set(self.tree.packages_above(path)))
        return Graph(
            path_of=self.path_of,
            by_module={path: frozenset(targets) for path, targets in by_module.items()},
            by_block={number: frozenset(targets) for number, targets in by_block.items()},
            early=early,
        )


def build_manifest(  # noqa: PLR0913 - facts of the run that nothing else knows
    records: Records,
    tree: Tree,
    *,
    stage: str,
    now: float,
    native: Native,
    runner_profile: str = "",
    simulated: bool = False,
    generated: Sequence[str] = (),
    is_complete: bool = True,
) -> Manifest:
    """Credit everything and put it into the manifest's form; never raises for strange records."""
    builder = Builder(records=records, tree=tree, native=native, generated=generated)
    for path in tree.python:
        builder.parsed(path)
    contexts = builder.contexts(records.use)
    sessions = records.sessions
    entries = {builder.path(path)[0] for session in sessions for path in session.end.get("paths", ())}
    bases = sorted({"" if entry == "." else entry for entry in entries} | {"", "src"})
    early = frozenset(builder.path(path)[0] for session in sessions for path in session.start.get("early", ()))
    graph = builder.graph(bases, early)
    # They were loaded for the whole session, by whom nobody saw.
    contexts.setdefault("", Context()).modules.update(early & set(tree.files))
    tests = _merge(sessions)
    names = list(tests)
    for label, reasons in _missing_children(records).items():
        contexts.setdefault(builder.label(label), Context()).opaque.update(reasons)
    for name in names:
        context = contexts.setdefault(f"test:{name}", Context())
        if tests[name][0].outcome == "passed" and not context.blocks and not context.modules:
            context.opaque.add("nothing-recorded")
    owners = [_owner(tests[name], tree, contexts) for name in names]
    index = {name: number for number, name in enumerate(names)}
    shared = [
        SharedRun(
            order=tuple(index[test.id] for test in session.tests if test.isolation != "fork"),
            contexts=builder.contexts(session.use),
        )
        for session in sessions
        if any(test.isolation != "fork" for test in session.tests)
    ]
    found = credit(owners, contexts, graph, shared=_without_ranks(shared, sessions))
    opaque: dict[int, list[str]] = {}
    for reason, bits in sorted(found.things["opaque"].items()):
        for number in unpack(bits):
            opaque.setdefault(number, []).append(reason)
    records_of = tuple(
        TestRecord(
            id=name,
            path=tests[name][0].path,
            outcome=_outcome(tests[name]),
            duration=max(test.duration for test in tests[name]),
            opaque=tuple(sorted({*opaque.get(number, ()), *(word for test in tests[name] for word in test.opaque)})),
        )
        for number, name in enumerate(names)
    )
    executed: dict[str, dict[str, Bits]] = {}
    for number, bits in sorted(found.executed.items()):
        if bits:
            executed.setdefault(builder.path_of[number], {})[builder.block_of[number].name] = bits
    listings = listings_of(tree.files)
    first, last = sessions[0].start, sessions[0].end
    return Manifest(
        header=Header(
            tool=__version__,
            blocks_version=BLOCKS_VERSION,
            stage=stage,
            source=tree.commit,
            started=float(first.get("time", 0.0)),
            created=now,
            is_complete=is_complete,
            core=Core(first["core"]),
            isolation="shared" if shared else "fork",
            python=str(first.get("python", "")),
            environment={str(key): str(value) for key, value in last.get("environment", {}).items()},
            runner_profile=runner_profile,
            ranks=max(int(session.start.get("ranks", 0)) for session in sessions),
            simulated=simulated,
            pytest_config=str(last.get("pytest_config", "")),
        ),
        files=_files(builder),
        tests=records_of,
        executed=executed,
        imported={path: bits for path, bits in found.imported.items() if bits and path in tree.files},
        opened=found.things["opened"],
        listed={path: bits for path, bits in found.things["listed"].items() if bits},
        listings={folder: listings.get(folder, "") for folder in found.things["listed"]},
        probed=found.things["probed"],
        libraries={
            path: Library(
                path=path, sources=native.sources.get(path, frozenset()), is_known=path in native.sources, tests=bits
            )
            for path, bits in found.things["loaded"].items()
        },
        edges=_edges(graph, tree),
    )


def _without_ranks(shared: list[SharedRun], sessions: Sequence[Session]) -> list[SharedRun]:
    """Unite the ranks of one run: only runs in another order narrow each other."""
    if len({session.start.get("order", "forward") for session in sessions}) > 1:
        return shared
    if len(shared) < 2:
        return shared
    united: dict[str, Context] = {}
    for run in shared:
        for label, context in run.contexts.items():
            whole = united.setdefault(label, Context())
            for name in vars(whole):
                getattr(whole, name).update(getattr(context, name))
    return [SharedRun(order=shared[0].order, contexts=united)]


def _merge(sessions: Sequence[Session]) -> dict[str, list[Test]]:
    """Give the tests in collection order, each with its record of every rank; one never run is `not-run`."""
    found: dict[str, list[Test]] = {}
    for session in sessions:
        for name in session.collected:
            found.setdefault(name, [])
    for session in sessions:
        for test in session.tests:
            found.setdefault(test.id, []).append(test)
    for name, tests in found.items():
        if not tests:
            path = name.partition("::")[0]
            tests.append(
                Test(
                    id=name, path=path, outcome="not-run", reason="", duration=0.0, opaque=(), isolation="", fixtures=()
                )
            )
    return found


def _outcome(tests: Sequence[Test]) -> str:
    words = {test.outcome for test in tests}
    return (
        words.pop()
        if len(words) == 1
        else next((word for word in ("crashed", "error", "failed") if word in words), "failed")
    )


def _owner(tests: Sequence[Test], tree: Tree, contexts: Mapping[str, Context]) -> Owner:
    name, path = tests[0].id, tests[0].path
    labels = ["", f"test:{name}", *_collectors(name)]
    labels += sorted({label for test in tests for label in test.fixtures})
    roots = (path, *tree.conftests_above(path))
    return Owner(
        labels=tuple(dict.fromkeys(label for label in labels if label in contexts)),
        roots=tuple(root for root in roots if root in tree.files),
    )


def _collectors(name: str) -> list[str]:
    """Give the labels of the collectors above a test: the session, folders, the file, classes."""
    found = ["collect:"]
    plain = name.partition("[")[0]
    for place, letter in enumerate(plain):
        if letter == "/" or plain.startswith("::", place):
            found.append(f"collect:{plain[:place]}")
    return found


def _missing_children(records: Records) -> dict[str, set[str]]:
    """Compare the interpreters that were started with those that reported to the end."""
    reported: dict[str, int] = {}
    found: dict[str, set[str]] = {}
    for child in records.children:
        if child.has_ended:
            reported[child.label] = reported.get(child.label, 0) + 1
        else:
            words = " ".join(word for word in child.argv[1:3] if word.isprintable() and len(word) < 60)
            found.setdefault(child.label, set()).add(f"child-killed: python {words}".rstrip())
    for label, use in records.use.items():
        came = reported.get(label, 0)
        if use.spawned > came:
            found.setdefault(label, set()).add(f"child-missing: {came} of {use.spawned} reported")
    return found


def _files(builder: Builder) -> dict[str, SourceFile]:
    tree = builder.tree
    found = {}
    for path, entry in tree.files.items():
        is_python = path in builder.blocks
        kind = (
            Kind.PYTHON
            if path.endswith((".py", ".pyi"))
            else Kind.NATIVE
            if path.endswith(NATIVE_SUFFIXES)
            else Kind.DATA
        )
        found[path] = SourceFile(
            path=path,
            blob=entry.blob,
            mode=entry.mode,
            kind=kind,
            blocks=builder.blocks[path].digests if is_python else {},
        )
    for path in sorted(builder.used - set(found)):
        content = Path(tree.root, path).read_bytes()
        found[path] = SourceFile(path=path, blob=blob_id(content), is_tracked=False)
    return found


def _edges(graph: Graph, tree: Tree) -> dict[str, frozenset[str]]:
    found = {path: set(targets) for path, targets in graph.by_module.items()}
    for number, targets in graph.by_block.items():
        found.setdefault(graph.path_of[number], set()).update(targets)
    return {path: frozenset(targets & tree.files.keys()) for path, targets in found.items()}
