"""Every way in which a run can lack something is named; what is complete is not blamed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitoring.errors import IncompleteRun, RunNotFound, SelectionError
from monitoring.read import find_run, parse_sites, read
from monitoring.reading.completeness import find_missing, holes_of, ranges
from monitoring.rows import CLOSED, CaptureRow, RunRecord, encode_rows
from monitoring.store.memory import MemoryStore

pytestmark = pytest.mark.cpu

EXPECTED = (("resid_pre", 0), ("resid_pre", 1), ("final_logits", -1))


def run_rows(*, requests: int = 2, steps: int = 4, prompt: int = 3, shard: int = 0, run: str = "r") -> list[CaptureRow]:
    """A prefill of `prompt` tokens, then one token a step, at the places of EXPECTED."""
    rows = []
    for step in range(steps):
        start, end = (0, prompt) if step == 0 else (prompt + step - 1, prompt + step)
        for site, layer in EXPECTED:
            for request in range(requests):
                first = end - 1 if site == "final_logits" else start
                rows.append(
                    CaptureRow(
                        run_id=run, request_id=f"q{request}", site=site, layer=layer, shard_rank=shard, step=step,
                        seq=len(rows), token_start=first, token_end=end, dtype="uint8", shape=(end - first, 1),
                        data=bytes(end - first),
                    )
                )  # fmt: skip
    return rows


def record(rows: Iterable[CaptureRow], **values: object) -> RunRecord:
    count = len(list(rows))
    base = RunRecord(
        run_id="r", state=CLOSED, expected=EXPECTED, seq_end=count, accepted=count, written=count, updated_at=1
    )
    return replace(base, **values)


def test_a_complete_run_lacks_nothing() -> None:
    rows = run_rows()
    assert find_missing([record(rows)], rows) == []


def test_an_empty_closed_run_that_expected_rows_is_incomplete() -> None:
    assert find_missing([record([])], []) == [
        "shard 0: no rows at all: no forward pass was captured",
    ]


def test_a_killed_process_is_named() -> None:
    rows = run_rows()
    lines = find_missing([record(rows, state="open", seq_end=0)], rows[:-1])
    assert "shard 0 was not closed: its process still runs, or died before it could flush" in lines
    assert "shard 0: final_logits lacks request q1 steps 3" in lines


@given(st.data())
def test_any_lost_row_is_noticed(data: st.DataObject) -> None:
    rows = run_rows()
    lost = data.draw(st.sets(st.integers(0, len(rows) - 1), min_size=1))
    kept = [row for row in rows if row.seq not in lost]
    lines = find_missing([record(rows, losses={"oldest": len(lost)})], kept)
    assert any(f"{len(lost)} of {len(rows)} records are missing" in line and "oldest" in line for line in lines)


def test_gaps_close_silently() -> None:
    """A decode step lost at one site, and its number never known: still a hole in the tokens."""
    rows = [row for row in run_rows() if not (row.step == 2 and row.site == "resid_pre")]
    renumbered = [replace(row, seq=seq) for seq, row in enumerate(rows)]
    lines = find_missing([record(renumbered)], renumbered)
    assert "shard 0: resid_pre layer 0 lacks request q0 steps 2; request q1 steps 2" in lines
    assert "request q0: tokens 4 are missing at resid_pre layer 0, resid_pre layer 1" in lines


def test_holes_that_a_schedule_made_are_no_loss() -> None:
    rows = [replace(row, seq=seq) for seq, row in enumerate(row for row in run_rows() if row.step != 2)]
    assert find_missing([record(rows)], rows)
    assert find_missing([record(rows, details={"schedule": "every 2 steps"})], rows) == []


def test_a_shard_without_record_and_a_stranger() -> None:
    rows = run_rows()
    lines = find_missing([record(rows, shard_count=2)], rows)
    assert lines == ["shard 1 of 2 left no record: its process never started to capture"]
    strange = [*rows, replace(rows[0], shard_rank=5)]
    assert "rows of shard 5 have no run record" in find_missing([record(rows)], strange)


def test_a_site_that_never_came_is_named_once() -> None:
    rows = run_rows()
    lines = find_missing([record(rows, expected=(*EXPECTED, ("pattern", 0), ("module:a.b", -1)))], rows)
    assert lines == ["shard 0: pattern layer 0 has no rows at all", "shard 0: module:a.b has no rows at all"]
    assert find_missing([record(rows, expected=(*EXPECTED, ("pattern", 0)))], rows, sites={"resid_pre"}) == []


def test_a_module_that_lacks_a_step_is_named() -> None:
    rows = run_rows()
    module = [replace(rows[0], site="module:m", layer=-1, step=step, seq=len(rows) + step) for step in (0, 1, 3)]
    both = [*rows, *module]
    lines = find_missing([record(both, expected=(*EXPECTED, ("module:m", -1)), seq_end=len(rows) + 4)], both)
    assert "shard 0: module:m lacks steps 2" in lines


def test_long_lists_are_cut() -> None:
    rows = [row for row in run_rows(steps=40) if row.seq % 4]
    lines = find_missing([record(run_rows(steps=40))], rows)
    assert all(len(line) < 700 for line in lines)
    assert any("more" in line for line in lines)


@given(st.lists(st.integers(0, 60), unique=True).map(sorted))
def test_ranges_say_all_numbers(numbers: list[int]) -> None:
    back: list[int] = []
    for text in ranges(numbers):
        first, _, last = text.partition("-")
        back += range(int(first), int(last or first) + 1)
    assert back == numbers


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 6)), min_size=1))
def test_holes_are_the_uncovered_tokens(pairs: list[tuple[int, int]]) -> None:
    spans = [(start, start + size) for start, size in pairs]
    covered = {token for start, end in spans for token in range(start, end)}
    expected = set(range(min(covered), max(covered) + 1)) - covered
    assert {token for start, end in holes_of(spans) for token in range(start, end)} == expected


def filled(*runs: str, lose: int = 0) -> MemoryStore:
    store = MemoryStore("test")
    for age, run in enumerate(runs):
        rows = run_rows(run=run)
        store.write_block(encode_rows(rows[lose:]))
        store.write_run(record(rows, run_id=run, started_at=age))
    return store


def test_two_runs_merge() -> None:
    store = filled("first", "second")
    for run in ("first", "second"):
        assert {row.run_id for row in read(store, run).rows} == {run}
    assert read(store).run_id == "second"


def test_duplicates_double_the_sequence() -> None:
    store = filled("r")
    store.write_block(encode_rows(run_rows()))
    assert read(store).rows == tuple(run_rows())


def test_an_incomplete_run_is_refused_and_can_be_allowed() -> None:
    store = filled("r", lose=2)
    with pytest.raises(IncompleteRun, match="seq 0-1") as caught:
        read(store)
    assert "allow_incomplete" in caught.value.hint
    internals = read(store, allow_incomplete=True)
    assert internals.missing == caught.value.missing
    assert len(internals.rows) == len(run_rows()) - 2


def test_selections_narrow_rows() -> None:
    store = filled("r")
    assert read(store, sites=["pre"], layers=[1]).sites == {"resid_pre": (1,)}
    assert read(store, layers=[0]).sites == {"resid_pre": (0,), "final_logits": (-1,)}
    assert read(store, requests=["q1"]).requests == ("q1",)
    with pytest.raises(SelectionError, match="hidden") as caught:
        read(store, sites=["hidden"])
    assert "resid_pre" in caught.value.hint


def test_a_run_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(RunNotFound, match="holds no run") as caught:
        find_run(filled("first", "second"), "third")
    assert caught.value.hint == "the newest: first, second"
    with pytest.raises(RunNotFound, match="holds no run"):
        read(MemoryStore("empty"))


def test_modules_are_selected_by_their_site() -> None:
    row = replace(run_rows()[0], site="module:a.b")
    assert parse_sites(["module:a.b", "q"], [row]) == {"module:a.b", "q"}
    with pytest.raises(SelectionError):
        parse_sites(["module:a.c"], [row])
