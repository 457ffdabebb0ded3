"""A small world for the rules: trees of texts, and a manifest that knows who used what."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from ci.impact.blocks import parse_blocks
from ci.impact.changes import Entry, compare_trees, through_links
from ci.impact.facts import Facts, Policy, Span
from ci.impact.gather import gained, is_new_module
from ci.impact.names import looks_up_dynamically
from ci.impact.rules.python import new_module_words
from ci.manifest.model import Core, Header, Kind, Library, Manifest, SourceFile, TestRecord, blob_id, pack
from ci.stages.model import Stage

Files = Mapping[str, str]
Users = Mapping[str, Iterable[str]]


def entries(files: Files, modes: Mapping[str, str]) -> dict[str, Entry]:
    return {path: Entry(mode=modes.get(path, "100644"), blob=blob_id(text.encode())) for path, text in files.items()}


def make_manifest(
    files: Files,
    tests: Mapping[str, Mapping[str, Any]],
    *,
    relations: Mapping[str, Users],
    executed: Mapping[str, Users],
    libraries: Mapping[str, tuple[Iterable[str], Iterable[str]]],
    edges: Users,
    modes: Mapping[str, str],
    environment: Mapping[str, str],
) -> Manifest:
    index = {test: number for number, test in enumerate(tests)}

    def bits(names: Iterable[str]) -> int:
        return pack(index[name] for name in names)

    return Manifest(
        header=Header(
            tool="test",
            blocks_version=1,
            stage="unit",
            source="0" * 40,
            started=0.0,
            created=0.0,
            is_complete=True,
            core=Core.CTRACE,
            environment=environment,
        ),
        files={
            path: SourceFile(
                path=path,
                blob=blob_id(text.encode()),
                mode=modes.get(path, "100644"),
                kind=Kind.PYTHON if path.endswith(".py") else Kind.DATA,
                blocks=parse_blocks(text.encode()).digests if path.endswith(".py") else {},
            )
            for path, text in files.items()
        },
        tests=tuple(
            TestRecord(id=test, path=test.partition("::")[0], **{"outcome": "passed", "duration": 1.0, **facts})
            for test, facts in tests.items()
        ),
        executed={path: {name: bits(users) for name, users in blocks.items()} for path, blocks in executed.items()},
        libraries={
            path: Library(path=path, sources=frozenset(sources), tests=bits(users))
            for path, (sources, users) in libraries.items()
        },
        edges={path: frozenset(targets) for path, targets in edges.items()},
        **{
            relation: {path: bits(users) for path, users in relations.get(relation, {}).items()}
            for relation in ("imported", "opened", "listed", "probed")
        },
    )


def make_facts(
    before: Files,
    after: Files,
    *,
    tests: Iterable[str] | Mapping[str, Mapping[str, Any]] = (),
    recorded: Files | None = None,
    executed: Mapping[str, Users] | None = None,
    libraries: Mapping[str, tuple[Iterable[str], Iterable[str]]] | None = None,
    edges: Users | None = None,
    modes: Mapping[str, str] | None = None,
    modes_after: Mapping[str, str] | None = None,
    links: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    row: Mapping[str, Any] | None = None,
    stage: Stage | None = None,
    **relations: Users,
) -> Facts:
    """Make the facts of a change from texts; `recorded` is the manifest's tree, by default the one before."""
    recorded = before if recorded is None else recorded
    facts = tests if isinstance(tests, Mapping) else {test: {} for test in tests}
    manifest = make_manifest(
        recorded,
        facts,
        relations=relations,
        executed=executed or {},
        libraries=libraries or {},
        edges=edges or {},
        modes=modes or {},
        environment=environment or {},
    )
    trees = [entries(recorded, modes or {}), entries(before, modes or {})]
    trees.append(entries(after, {**(modes or {}), **(modes_after or {})}))
    texts = {blob_id(text.encode()): text.encode() for files in (recorded, before, after) for text in files.values()}
    own = compare_trees(trees[1], trees[2])
    drift = compare_trees(trees[0], trees[1])
    words = {name for change in (*own, *drift) for name in gained(change, texts)}
    words |= {word for change in (*own, *drift) if is_new_module(change) for word in new_module_words(change.path)}
    mentions = {
        word: frozenset(path for path, text in before.items() if word in re.findall(r"\w+", text)) for word in words
    }
    dynamic = frozenset(
        path for path, text in before.items() if path.endswith(".py") and looks_up_dynamically(text.encode())
    )

    def span(changes: Any, one: Any, two: Any) -> Span:
        return Span(
            changes=through_links(changes, links or {}),
            before=one,
            after=two,
            sources=texts,
            mentions=mentions,
            dynamic=dynamic,
            texts={path: text.encode() for path, text in before.items() if path.endswith(".py")},
        )

    stage = stage or Stage(name="unit", documentation=("*.md", "docs/**", "LICENSE*"), **(row or {}))
    return Facts(
        manifest=manifest,
        policy=Policy(stage=stage),
        own=span(own, trees[1], trees[2]),
        drift=span(drift, trees[0], trees[1]),
        base="b" * 40,
        head="c" * 40,
    )


@pytest.fixture
def facts_of() -> Callable[..., Facts]:
    """Give the function that makes facts from texts."""
    return make_facts
