"""Recorded durations are a cache: they help, and never stand in the way."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.report.model import DeviceRecord, Outcome, RunReport, TestResult
from ci.running.durations import (
    LIMIT,
    Durations,
    measure_report,
    name_kind,
    parse_durations,
    read_durations,
    record_report,
    render_durations,
)

pytestmark = pytest.mark.cpu


def test_an_unknown_test_gets_the_median_of_the_known() -> None:
    durations = Durations(kinds={"cpu": {"a": 1.0, "b": 3.0, "c": 100.0}})
    assert durations.estimates(["a", "b", "c", "new"], kind="cpu")["new"] == 3.0


def test_the_median_is_of_the_tests_of_this_run() -> None:
    durations = Durations(kinds={"cpu": {"a": 1.0, "gone": 900.0, "gone too": 900.0}})
    assert durations.estimates(["a", "new"], kind="cpu") == {"a": 1.0, "new": 1.0}


def test_another_kind_of_device_is_better_than_nothing() -> None:
    durations = Durations(kinds={"Fake H200": {"a": 2.0}, "simulated": {"a": 50.0, "b": 7.0}})
    assert durations.estimates(["a", "b"], kind="Fake H200") == {"a": 2.0, "b": 7.0}


def test_nothing_recorded_is_one_second_each() -> None:
    assert Durations().estimates(["a", "b"], kind="cpu") == {"a": 1.0, "b": 1.0}


def test_one_odd_run_moves_an_estimate_half_the_way() -> None:
    durations = Durations(kinds={"cpu": {"a": 1.0}}).updated({"a": 9.0, "b": 2.0}, kind="cpu")
    assert durations.kinds["cpu"] == {"a": 5.0, "b": 2.0}


def test_the_store_keeps_the_longest_when_it_is_full() -> None:
    durations = Durations().updated({f"t{index}": float(index) for index in range(LIMIT + 10)}, kind="cpu")
    kept = durations.kinds["cpu"]
    assert len(kept) == LIMIT
    assert "t0" not in kept
    assert f"t{LIMIT + 9}" in kept


@given(st.dictionaries(st.text(max_size=5), st.dictionaries(st.text(max_size=8), st.floats(0, 1e6)), max_size=3))
def test_records_survive_the_file(kinds: dict[str, dict[str, float]]) -> None:
    again = parse_durations(render_durations(Durations(kinds=kinds)))
    assert {kind: dict(row) for kind, row in again.kinds.items()} == {
        kind: {test: round(seconds, 4) for test, seconds in row.items()} for kind, row in kinds.items()
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"schema": "lockgate-durations/9", "kinds": {}}',
        '{"schema": "lockgate-durations/1"}',
        '{"schema": "lockgate-durations/1", "kinds": {"cpu": []}}',
        '{"schema": "lockgate-durations/1", "kinds": {"cpu": {"a": "1"}}}',
        '{"schema": "lockgate-durations/1", "kinds": {"cpu": {"a": -1}}}',
        '{"schema": "lockgate-durations/1", "kinds": {"cpu": {"a": NaN}}}',
        '{"schema": "lockgate-durations/1", "kinds": {"cpu": {"a": true}}}',
    ],
)
def test_a_damaged_file_is_a_warning_and_no_records(text: str, tmp_path: Path) -> None:
    path = tmp_path / "durations.json"
    path.write_text(text)
    durations, warning = read_durations(path)
    assert durations == Durations()
    assert "is damaged and is not used" in warning


def test_bytes_that_are_no_text_are_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "durations.json"
    path.write_bytes(b"\xff\xfe\x00")
    assert "damaged" in read_durations(path)[1]


def test_no_file_is_no_warning(tmp_path: Path) -> None:
    assert read_durations(tmp_path / "durations.json") == (Durations(), "")


def report(*results: TestResult, simulated: bool = False) -> RunReport:
    """Make a report of these results."""
    return RunReport(stage="cpu_gate", simulated=simulated, results=results)


def test_only_tests_that_ended_by_themselves_teach() -> None:
    rows = [TestResult(id=outcome.value, outcome=outcome, duration=2.0) for outcome in Outcome]
    assert set(measure_report(report(*rows))) == {"passed", "failed", "xfailed"}


def test_a_run_is_worked_into_the_file_and_a_damaged_one_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "durations.json"
    run = report(TestResult(id="a", outcome=Outcome.PASSED, duration=4.0))
    assert record_report(path, run) == ""
    path.write_text("{")
    assert "damaged" in record_report(path, run)
    assert read_durations(path)[0].kinds == {"cpu": {"a": 4.0}}


def test_a_shard_records_nothing_so_that_the_next_one_is_split_alike(tmp_path: Path) -> None:
    path = tmp_path / "durations.json"
    row = TestResult(id="a", outcome=Outcome.PASSED, duration=4.0)
    assert record_report(path, RunReport(stage="x", shard="1/2", results=(row,))) == ""
    assert not path.exists()


def test_records_that_cannot_be_written_are_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    warning = record_report(tmp_path / "file" / "durations.json", report())
    assert warning.startswith("durations are not recorded")


def test_simulated_durations_are_kept_apart() -> None:
    gpu = DeviceRecord(uuid="GPU-1", index=0, name="Fake H200")
    assert name_kind(report()) == "cpu"
    assert name_kind(report(simulated=True)) == "simulated"
    assert name_kind(RunReport(stage="x", devices=(gpu,))) == "Fake H200"
