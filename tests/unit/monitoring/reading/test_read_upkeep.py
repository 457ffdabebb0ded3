"""Which runs are removed, and how sizes, ages and summaries are told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitoring.errors import RunNotFound
from monitoring.reading.summary import summarize_run
from monitoring.reading.upkeep import UsageError, choose_runs, format_bytes, format_time, parse_age
from monitoring.rows import CLOSED, CaptureRow, RunRecord

pytestmark = pytest.mark.cpu

HOUR = 3600.0


def records(*ages_in_hours: float) -> list[RunRecord]:
    return [
        RunRecord(run_id=f"r{number}", started_at=int((100 * HOUR - age * HOUR) * 1e9), shard_rank=rank, shard_count=2)
        for number, age in enumerate(ages_in_hours)
        for rank in (0, 1)
    ]


def choose(found: list[RunRecord], **values: object) -> list[str]:
    chosen = {"named": (), "keep": None, "older_than": None, "now": 100 * HOUR, "where": "here", **values}
    return choose_runs(found, **chosen)  # type: ignore[arg-type]


def test_runs_are_chosen_by_name_number_and_age() -> None:
    found = records(30, 20, 10)
    assert choose(found, named=["r2", "r0"]) == ["r0", "r2"]
    assert choose(found, keep=1) == ["r0", "r1"]
    assert choose(found, keep=5) == []
    assert choose(found, keep=0) == ["r0", "r1", "r2"]
    assert choose(found, older_than=15 * HOUR) == ["r0", "r1"]
    assert choose(found, older_than=25 * HOUR, named=["r2"]) == ["r0", "r2"]
    with pytest.raises(RunNotFound, match="here holds no run r7"):
        choose(found, named=["r7", "r0"])


@given(st.integers(0, 12), st.integers(0, 12))
def test_keep_leaves_the_newest(count: int, keep: int) -> None:
    found = records(*range(count, 0, -1))
    left = [f"r{number}" for number in range(count)][len(choose(found, keep=keep)) :]
    assert left == [f"r{number}" for number in range(max(0, count - keep), count)]


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("1.5h", 5400), ("30d", 2592000), ("2m", 120)])
def test_ages(text: str, seconds: float) -> None:
    assert parse_age(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1w", "1e9d", "30 d"])
def test_no_age(text: str) -> None:
    with pytest.raises(UsageError):
        parse_age(text)


def test_sizes_and_times() -> None:
    assert [format_bytes(size) for size in (0, 1023, 1024, 1536, 5 << 20, 3 << 30, 2 << 40, 9 << 50)] == [
        "0 B", "1023 B", "1.0 KiB", "1.5 KiB", "5.0 MiB", "3.0 GiB", "2.0 TiB", "9216.0 TiB",
    ]  # fmt: skip
    assert format_time(0) == "-"
    assert len(format_time(10**18)) == len("2001-09-09 01:46:40")


def test_a_summary() -> None:
    rows = [
        CaptureRow(
            run_id="r", request_id=request, site="resid_pre", layer=layer, seq=seq, token_end=tokens, dtype="bfloat16",
            shape=(tokens, 4), data=b"",
        )
        for seq, (request, layer, tokens) in enumerate([("a", 0, 3), ("a", 1, 3), ("b", 0, 5), ("b", 1, 5)])
    ]  # fmt: skip
    run = RunRecord(run_id="r", model_id="M", state=CLOSED, seq_end=4, expected=(("resid_pre", 0), ("resid_pre", 1)))
    summary = summarize_run([run], rows)
    assert (summary.state, summary.requests, summary.tokens, summary.rows, summary.bytes) == ("complete", 2, 8, 4, 128)
    (site,) = summary.sites
    assert (site.site, site.layers, site.dtypes, site.shapes) == ("resid_pre", "0-1", "bfloat16", "[3, 4] [5, 4]")
    assert summarize_run([run], rows[:3]).state == "incomplete"
    assert summarize_run([RunRecord(run_id="r")], rows).state == "open"
