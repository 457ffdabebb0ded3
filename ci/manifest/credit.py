"""Who depends on what: contexts, import edges and run order -> relations between things and tests.

Pure. A test has contexts of its own (its protocol, its fixtures, the collectors
above it) and an import closure; what a module's execution used counts for
every test whose closure holds the module.

Files and tests are numbered, and sets of both are integers, so that ten
thousand closures are unions of bit sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ci.manifest.model import Bits, pack, unpack

THINGS = ("opened", "listed", "probed", "loaded", "opaque")
"""Relations that are credited like blocks: what is used in a context counts for its tests."""


@dataclass(kw_only=True)
class Context:
    """What one context used: numbers of blocks, paths relative to the repository, reasons of opacity.

    `modules` are files whose module code ran in it or that it imported itself.
    """

    blocks: set[int] = field(default_factory=set)
    modules: set[str] = field(default_factory=set)
    opened: set[str] = field(default_factory=set)
    listed: set[str] = field(default_factory=set)
    probed: set[str] = field(default_factory=set)
    loaded: set[str] = field(default_factory=set)
    opaque: set[str] = field(default_factory=set)


@dataclass(frozen=True, kw_only=True)
class Owner:
    """One test to be credited: its contexts, and the files that its closure starts from."""

    labels: tuple[str, ...]
    roots: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SharedRun:
    """Tests that ran one after another in one process: their numbers in order, and what that process saw.

    `forked` are those of them that ran in a fork: they leave nothing behind,
    but they begin with what the tests before them have left.
    """

    order: tuple[int, ...]
    contexts: Mapping[str, Context]
    forked: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Graph:
    """Blocks and import edges of the tree.

    `path_of` gives the file of each block; `by_module` the files that executing
    a module imports, `by_block` those that calling a function imports. `early`
    are files imported before the recording began: all their blocks count as
    executed at import.
    """

    path_of: Sequence[str]
    by_module: Mapping[str, frozenset[str]]
    by_block: Mapping[int, frozenset[str]]
    early: frozenset[str] = frozenset()


@dataclass(kw_only=True)
class Credited:
    """The relations of a manifest, blocks by number."""

    executed: dict[int, Bits] = field(default_factory=dict)
    imported: dict[str, Bits] = field(default_factory=dict)
    things: dict[str, dict[str, Bits]] = field(default_factory=lambda: {name: {} for name in THINGS})


def credit(
    owners: Sequence[Owner], contexts: Mapping[str, Context], graph: Graph, *, shared: Sequence[SharedRun] = ()
) -> Credited:
    """Compute all relations; tests are numbered as in `owners`."""
    closures = Closures(contexts, graph)
    found = Credited(imported=_imported(owners, closures))
    _credit_contexts(found, contexts, _label_tests(owners, contexts, found.imported))
    for block, path in enumerate(graph.path_of):
        if path in graph.early and path in found.imported:
            found.executed[block] = found.executed.get(block, 0) | found.imported[path]
    if shared:
        _credit_shared(found, owners, shared, closures)
    return found


def _credit_contexts(found: Credited, contexts: Mapping[str, Context], label_tests: Mapping[str, Bits]) -> None:
    singles: dict[int, list[int]] = {}
    for label, bits in label_tests.items():
        context = contexts[label]
        if bits & (bits - 1):
            for block in context.blocks:
                found.executed[block] = found.executed.get(block, 0) | bits
        elif bits:
            # Most contexts are one test's: their numbers are packed at the end, not united one by one.
            for block in context.blocks:
                singles.setdefault(block, []).append(bits.bit_length() - 1)
        for name in THINGS:
            relation = found.things[name]
            for thing in getattr(context, name):
                relation[thing] = relation.get(thing, 0) | bits
    for block, numbers in singles.items():
        found.executed[block] = found.executed.get(block, 0) | pack(numbers)


class Closures:
    """Import closures of files, contexts and tests, as bit sets over numbered files."""

    def __init__(self, contexts: Mapping[str, Context], graph: Graph) -> None:
        """Give every file a number, and follow all edges to their end."""
        self.contexts = contexts
        self.graph = graph
        self.numbers: dict[str, int] = {}
        self.paths: list[str] = []
        direct: dict[int, set[int]] = {}
        for path, targets in graph.by_module.items():
            direct.setdefault(self.number(path), set()).update(map(self.number, targets))
        for label, context in contexts.items():
            kind, _, path = label.partition(":")
            if kind == "module":
                direct.setdefault(self.number(path), set()).update(map(self.number, self.starts(context)))
        for targets in graph.by_block.values():
            for path in targets:
                self.number(path)
        self.of_file = [1 << number for number in range(len(self.paths))]
        self._follow(direct)

    def number(self, path: str) -> int:
        """Give a file its number."""
        if path not in self.numbers:
            self.numbers[path] = len(self.paths)
            self.paths.append(path)
        return self.numbers[path]

    def starts(self, context: Context) -> set[str]:
        """Give the files from which a context's closure starts."""
        found = set(context.modules)
        for block in context.blocks:
            found.add(self.graph.path_of[block])
            found.update(self.graph.by_block.get(block, ()))
        return found

    def of_paths(self, paths: Iterable[str]) -> int:
        """Unite the closures of files."""
        found = 0
        for path in paths:
            number = self.numbers.get(path)
            if number is None:
                number = self.number(path)
                self.of_file.append(1 << number)
            found |= self.of_file[number]
        return found

    def _follow(self, direct: Mapping[int, set[int]]) -> None:
        # Later files first settles most chains in one pass; cycles need a few more.
        order = sorted(direct, reverse=True)
        changed = True
        while changed:
            changed = False
            for number in order:
                before = after = self.of_file[number]
                for target in direct[number]:
                    after |= self.of_file[target]
                if after != before:
                    self.of_file[number] = after
                    changed = True


def _imported(owners: Sequence[Owner], closures: Closures) -> dict[str, Bits]:
    of_label: dict[str, int] = {}
    of_roots: dict[tuple[str, ...], int] = {}
    groups: dict[int, list[int]] = {}
    for number, owner in enumerate(owners):
        if owner.roots not in of_roots:
            of_roots[owner.roots] = closures.of_paths(owner.roots)
        closure = of_roots[owner.roots]
        for label in owner.labels:
            if label not in of_label:
                context = closures.contexts.get(label)
                of_label[label] = closures.of_paths(closures.starts(context)) if context else 0
            closure |= of_label[label]
        groups.setdefault(closure, []).append(number)
    found: dict[str, Bits] = {}
    for closure, numbers in groups.items():
        bits = pack(numbers)
        for place in unpack(closure):
            path = closures.paths[place]
            found[path] = found.get(path, 0) | bits
    return found


def _label_tests(
    owners: Sequence[Owner], contexts: Mapping[str, Context], imported: Mapping[str, Bits]
) -> dict[str, Bits]:
    numbers: dict[str, list[int]] = {}
    for number, owner in enumerate(owners):
        for label in owner.labels:
            if label in contexts:
                numbers.setdefault(label, []).append(number)
    found = {label: pack(members) for label, members in numbers.items()}
    for label in contexts:
        kind, _, path = label.partition(":")
        if kind == "module" and path in imported:
            found[label] = imported[path]
    return found


def _credit_shared(found: Credited, owners: Sequence[Owner], shared: Sequence[SharedRun], closures: Closures) -> None:
    """Credit tests of a shared process with what earlier tests of it used and may have kept.

    With one run: everything that ran earlier. With several orders: what a test
    used in any of them, and what ran before it, or in it, in all of them.
    """
    merged: dict[tuple[str, int | str], list[Bits]] = {}
    everyone = [pack(run.order) for run in shared]
    for place, run in enumerate(shared):
        for key, bits in _before(run, owners).items():
            merged.setdefault(key, [0] * len(shared))[place] = bits
    for (name, thing), views in merged.items():
        # A test that did not take part in a run is not held back by it.
        after = -1
        for bits, members in zip(views, everyone, strict=True):
            after &= bits | ~members
        taking_part = 0
        for members in everyone:
            taking_part |= members
        after &= taking_part
        if name == "executed":
            block = int(thing)
            found.executed[block] = found.executed.get(block, 0) | after
            path = closures.graph.path_of[block]
            found.imported[path] = found.imported.get(path, 0) | after
        else:
            relation = found.things[name]
            relation[str(thing)] = relation.get(str(thing), 0) | after


def _before(run: SharedRun, owners: Sequence[Owner]) -> dict[tuple[str, int | str], Bits]:
    """Give, for each thing that ran in this process, the tests that used it or came after its first use."""
    later = [0] * (len(run.order) + 1)
    for place in range(len(run.order) - 1, -1, -1):
        later[place] = later[place + 1] | (1 << run.order[place])
    found: dict[tuple[str, int | str], Bits] = {}
    # When a fixture ran is not known: it may have been before all tests.
    for label, context in run.contexts.items():
        if label.startswith("fixture:"):
            _use(found, context, later[0])
    for place, number in enumerate(run.order):
        if number in run.forked:
            continue
        own = next((label for label in owners[number].labels if label.startswith("test:")), "")
        if own in run.contexts:
            _use(found, run.contexts[own], later[place])
    return found


def _use(found: dict[tuple[str, int | str], Bits], context: Context, bits: Bits) -> None:
    for block in context.blocks:
        found.setdefault(("executed", block), bits)
    for name in ("opened", "listed", "probed", "loaded"):
        for thing in getattr(context, name):
            found.setdefault((name, thing), bits)
