"""Attribution as arithmetic: contexts, closures, shared processes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.manifest.credit import Closures, Context, Graph, Owner, SharedRun, credit

pytestmark = pytest.mark.cpu


def graph(*paths: str, modules: dict[str, set[str]] | None = None, blocks: dict[int, set[str]] | None = None) -> Graph:
    """Make a graph whose block i lies in the i-th path."""
    return Graph(
        path_of=paths,
        by_module={path: frozenset(targets) for path, targets in (modules or {}).items()},
        by_block={number: frozenset(targets) for number, targets in (blocks or {}).items()},
    )


def test_a_context_counts_for_its_tests_and_no_others() -> None:
    contexts = {"test:a": Context(blocks={0}), "test:b": Context(blocks={1}, opened={"x"}), "": Context(listed={"d"})}
    owners = [Owner(labels=("", "test:a"), roots=("t.py",)), Owner(labels=("", "test:b"), roots=("t.py",))]
    found = credit(owners, contexts, graph("a.py", "b.py"))
    assert found.executed == {0: 0b01, 1: 0b10}
    assert found.imported == {"t.py": 0b11, "a.py": 0b01, "b.py": 0b10}
    assert found.things["opened"] == {"x": 0b10}
    assert found.things["listed"] == {"d": 0b11}


def test_what_a_module_ran_counts_for_its_importers_transitively() -> None:
    contexts = {"module:b.py": Context(blocks={1}, opened={"b.txt"}), "test:a": Context()}
    owners = [Owner(labels=("test:a",), roots=("t.py",)), Owner(labels=(), roots=("u.py",))]
    edges = {"t.py": {"a.py"}, "a.py": {"b.py"}, "b.py": {"a.py"}, "u.py": {"v.py"}}
    found = credit(owners, contexts, graph("x.py", "c.py", modules=edges))
    assert found.executed == {1: 0b01}
    assert found.imported["c.py"] == 0b01, "its executed block lies in a module that is then part of the closure"
    assert found.imported["v.py"] == 0b10
    assert found.things["opened"] == {"b.txt": 0b01}


def test_an_import_inside_a_function_counts_for_those_who_ran_it() -> None:
    contexts = {"test:a": Context(blocks={0}), "test:b": Context()}
    owners = [Owner(labels=("test:a",), roots=("m.py",)), Owner(labels=("test:b",), roots=("m.py",))]
    found = credit(owners, contexts, graph("m.py", blocks={0: {"lazy.py"}}))
    assert found.imported["lazy.py"] == 0b01


def test_files_imported_before_the_recording_count_whole() -> None:
    base = graph("early.py", "late.py")
    early = Graph(path_of=base.path_of, by_module={}, by_block={}, early=frozenset({"early.py"}))
    found = credit([Owner(labels=(), roots=("early.py",)), Owner(labels=(), roots=())], {}, early)
    assert found.executed == {0: 0b01}


@given(st.dictionaries(st.integers(0, 12), st.sets(st.integers(0, 12)), max_size=13))
def test_closures_are_transitive_and_minimal(edges: dict[int, set[int]]) -> None:
    names = {str(number): {str(target) for target in targets} for number, targets in edges.items()}
    closures = Closures({}, graph(modules=names))
    for start in names:
        seen, todo = set(), [start]
        while todo:
            path = todo.pop()
            if path not in seen:
                seen.add(path)
                todo.extend(names.get(path, ()))
        found = closures.of_paths([start])
        assert {path for path, number in closures.numbers.items() if found >> number & 1} == seen


def shared(order: tuple[int, ...], **contexts: set[int]) -> SharedRun:
    """Make a run of tests t0, t1, ... with the blocks that each executed in it."""
    return SharedRun(
        order=order, contexts={f"test:{name}": Context(blocks=blocks) for name, blocks in contexts.items()}
    )


def test_in_a_shared_process_earlier_code_counts_for_later_tests() -> None:
    run = shared((0, 1, 2), t0={0}, t1=set(), t2={1})
    owners = [Owner(labels=(f"test:t{number}",), roots=()) for number in range(3)]
    found = credit(owners, run.contexts, graph("a.py", "b.py"), shared=[run])
    assert found.executed == {0: 0b111, 1: 0b100}


def test_two_orders_keep_what_both_allow() -> None:
    forward = shared((0, 1, 2), t0={0}, t1={2}, t2={1})
    backward = shared((2, 1, 0), t0=set(), t1={0, 2}, t2={1})
    merged = {
        label: Context(blocks=forward.contexts[label].blocks | backward.contexts[label].blocks)
        for label in forward.contexts
    }
    owners = [Owner(labels=(f"test:t{number}",), roots=()) for number in range(3)]
    found = credit(owners, merged, graph("a.py", "b.py", "c.py"), shared=[forward, backward])
    assert found.executed[0] == 0b011, "t0 ran it first, t1 in the other order; nothing ran before t2 there"
    assert found.executed[1] == 0b100, "in the first order nothing ran it before t0 and t1"
    assert found.executed[2] == 0b010, "only t1 itself in both"


def test_a_wide_fixture_of_a_shared_process_counts_for_all() -> None:
    run = SharedRun(order=(0, 1), contexts={"fixture:x::f": Context(blocks={0})})
    owners = [Owner(labels=(), roots=()), Owner(labels=("fixture:x::f",), roots=())]
    found = credit(owners, run.contexts, graph("a.py"), shared=[run])
    assert found.executed == {0: 0b11}


def test_a_library_that_an_earlier_test_loaded_counts_for_later_tests_of_the_process() -> None:
    contexts = {"test:t0": Context(), "test:t1": Context(loaded={"lib.so"}), "test:t2": Context()}
    owners = [Owner(labels=(f"test:t{number}",), roots=()) for number in range(3)]
    found = credit(owners, contexts, graph("a.py"), shared=[SharedRun(order=(0, 1, 2), contexts=contexts)])
    assert found.things["loaded"] == {"lib.so": 0b110}


def test_a_forked_test_begins_with_what_earlier_tests_left_and_leaves_nothing() -> None:
    run = shared((0, 1, 2, 3), t0={0}, t1={1}, t2={2}, t3=set())
    run = SharedRun(order=run.order, contexts=run.contexts, forked=frozenset({1}))
    owners = [Owner(labels=(f"test:t{number}",), roots=()) for number in range(4)]
    found = credit(owners, run.contexts, graph("a.py", "b.py", "c.py"), shared=[run])
    assert found.executed == {0: 0b1111, 1: 0b0010, 2: 0b1100}
