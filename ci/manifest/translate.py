"""What processes saw -> the tree's own names: absolute paths, lines and code objects -> files and numbered blocks."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from ci.impact.blocks import MODULE, Block, Blocks, parse_blocks
from ci.manifest.checks import is_safe
from ci.manifest.credit import Context, Graph
from ci.manifest.records import Records, Use
from ci.manifest.sources import parse_imports, resolve_import
from ci.manifest.tree import Tree

LIBRARY_SUFFIXES = (".so", ".pyd", ".dylib", ".dll")
SELF_MADE = ("*.egg-info/*", "*.dist-info/*", ".coverage*", ".hypothesis/*", "*.pyc")
"""Untracked files that the environment's own tools make: not evidence, not a reason to distrust."""


@dataclass(kw_only=True)
class Translator:
    """Translates what processes saw (absolute paths, lines, code objects) into the tree's own names."""

    records: Records
    tree: Tree
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
