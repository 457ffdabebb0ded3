"""What the view says of a run is what the events say."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from ci.report.model import DeviceRecord, Outcome
from ci.running.events import Event, Kind
from ci.running.progress import Progress, format_counts, format_seconds

pytestmark = pytest.mark.cpu

DEVICES = [DeviceRecord(uuid=f"SIM-{one}", index=one, name="simulated", simulated=True) for one in range(2)]


def event(t: float, kind: Kind, **fields: Any) -> Event:
    """Make an event; what `Event` has no field for becomes its data."""
    own = {"test", "rank", "device", "outcome", "duration"}
    data = {key: value for key, value in fields.items() if key not in own}
    return Event(t=t, event=kind, data=data, **{key: value for key, value in fields.items() if key in own})


@pytest.fixture
def progress() -> Progress:
    """Give a run of four tests on two devices of which nothing was started."""
    made = Progress(estimates={"a": 4.0, "b": 2.0, "c": 2.0})
    rows = [asdict(device) for device in DEVICES]
    made.apply(event(0.0, Kind.SESSION, stage="multi_gpu", simulated=True, devices=rows))
    made.apply(event(1.0, Kind.COLLECTED, tests=["a", "b", "c", "d"]))
    return made


def test_a_test_goes_from_waiting_to_running_to_done(progress: Progress) -> None:
    assert (len(progress.waiting), len(progress.running), progress.total) == (4, 0, 4)
    progress.apply(event(2.0, Kind.START, test="a", width=2, devices=["SIM-0", "SIM-1"]))
    assert (len(progress.waiting), len(progress.running), progress.total) == (3, 1, 4)
    progress.apply(event(3.0, Kind.FINISH, test="a", outcome=Outcome.PASSED, duration=1.0))
    assert (len(progress.waiting), len(progress.running), progress.total) == (3, 0, 4)
    assert progress.counts() == {Outcome.PASSED: 1}


def test_a_wide_test_is_on_each_of_its_lanes(progress: Progress) -> None:
    progress.apply(event(2.0, Kind.START, test="a", width=2, devices=["SIM-0", "SIM-1"]))
    assert [(name, running.test if running else None) for name, running in progress.lanes()] == [
        ("sim 0", "a"),
        ("sim 1", "a"),
    ]


def test_a_test_without_devices_has_a_lane_of_its_own(progress: Progress) -> None:
    progress.apply(event(2.0, Kind.START, test="b"))
    assert [name for name, _ in progress.lanes()] == ["sim 0", "sim 1", "cpu"]


def test_the_time_left_counts_what_runs_and_what_waits(progress: Progress) -> None:
    assert progress.time_left(1.0) == pytest.approx((4 + 2 + 2 + 1) / 2)
    progress.apply(event(2.0, Kind.START, test="a", width=2, devices=["SIM-0", "SIM-1"]))
    assert progress.time_left(4.0) == pytest.approx((2 * 2 + 2 + 2 + 1) / 2)


def test_a_test_that_overruns_its_estimate_counts_nothing_and_never_less(progress: Progress) -> None:
    progress.apply(event(2.0, Kind.START, test="a", width=1, devices=["SIM-0"]))
    assert progress.time_left(1000.0) == pytest.approx(2.5)


def test_the_pace_of_this_run_corrects_the_estimates(progress: Progress) -> None:
    for name in ("a", "b", "c"):
        progress.apply(
            event(2.0, Kind.FINISH, test=name, outcome=Outcome.PASSED, duration=3 * progress.estimates[name])
        )
    assert progress.time_left(10.0) == pytest.approx(3.0)


def test_nothing_is_known_before_the_collection() -> None:
    assert Progress().time_left(1.0) is None


def test_a_second_session_keeps_what_the_first_one_did(progress: Progress) -> None:
    progress.apply(event(3.0, Kind.FINISH, test="a", outcome=Outcome.CRASHED, duration=1.0))
    progress.apply(event(4.0, Kind.COLLECTED, tests=["a", "b", "c", "d"]))
    assert (len(progress.waiting), progress.total) == (3, 4)


def test_what_ranks_say_is_not_counted_twice(progress: Progress) -> None:
    progress.apply(event(2.0, Kind.START, test="a", rank=1))
    progress.apply(event(2.1, Kind.RANK, test="a", rank=1, outcome=Outcome.PASSED))
    assert not progress.running
    assert not progress.outcomes


def test_a_test_of_many_ranks_on_the_cpu_does_not_exceed_the_pool() -> None:
    made = Progress()
    made.apply(event(1.0, Kind.COLLECTED, tests=["a"]))
    made.apply(event(1.0, Kind.START, test="a", width=8))
    assert made.time_left(1.0) == pytest.approx(1.0)


def test_counts_name_what_is_bad_first_and_skipped_always() -> None:
    assert format_counts({Outcome.PASSED: 3, Outcome.FAILED: 1}) == "1 failed, 3 passed, 0 skipped, 0 not-run"


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (12.4, "12 s"), (59.7, "1 min 00 s"), (185, "3 min 05 s"), (4321, "1 h 12 min")],
)
def test_times_are_written_as_people_read_them(seconds: float, expected: str) -> None:
    assert format_seconds(seconds) == expected
