"""Records of a run + the tree that was checked out -> `Manifest`; what speaks against it is for `checks`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ci import __version__
from ci.impact.blocks import BLOCKS_VERSION
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
from ci.manifest.records import Records, Session, Test
from ci.manifest.translate import Translator
from ci.manifest.tree import Tree

NATIVE_SUFFIXES = (".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hh", ".hpp", ".inl", ".pyx", ".pxd")


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
    builder = Translator(records=records, tree=tree, generated=generated)
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
            order=tuple(index[test.id] for test in session.tests),
            contexts=builder.contexts(session.use),
            forked=frozenset(index[test.id] for test in session.tests if test.isolation == "fork"),
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
    return [SharedRun(order=shared[0].order, contexts=united, forked=shared[0].forked)]


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


def _files(builder: Translator) -> dict[str, SourceFile]:
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
