from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.errors import ReportError
from ci.report.model import Outcome
from ci.running.events import Event, EventLog, Kind, Tail, parse_event, parse_events, read_events

pytestmark = pytest.mark.cpu

EVENTS = st.builds(
    Event,
    t=st.floats(0, 1e10).map(lambda value: round(value, 6)),
    event=st.sampled_from(list(Kind)),
    test=st.text(max_size=20),
    rank=st.none() | st.integers(0, 63),
    device=st.text(max_size=8),
    outcome=st.none() | st.sampled_from(list(Outcome)),
    duration=st.none() | st.floats(0, 1e6).map(lambda value: round(value, 6)),
    data=st.dictionaries(st.sampled_from(["reason", "set", "width"]), st.text(max_size=5) | st.integers()),
)


@given(EVENTS)
def test_an_event_survives_its_line(event):
    line = event.line()
    assert "\n" not in line
    assert parse_event(line) == event


@given(st.lists(EVENTS, min_size=1, max_size=5), st.data())
def test_a_log_cut_anywhere_loses_at_most_its_last_line(events, data):
    text = "".join(event.line() + "\n" for event in events)
    cut = data.draw(st.integers(0, len(text)))
    found, damaged = parse_events(text[:cut].split("\n"))
    whole = text[:cut].count("\n")
    assert found[:whole] == events[:whole]
    assert len(found) + damaged <= whole + 1


@pytest.mark.parametrize(
    "line", ["[]", "{}", '{"t": 1}', '{"t": 1, "event": "nonsense"}', "null", '{"t": "x", "event": "end"}']
)
def test_what_is_no_event_is_counted_as_damaged(line):
    assert parse_events([line]) == ([], 1)


def test_every_line_is_with_the_kernel_before_write_returns(tmp_path):
    log = EventLog(tmp_path / "events-main.jsonl", clock=lambda: 7.0)
    log.write(Kind.START, test="t", width=2)
    assert read_events(tmp_path)[0] == [Event(t=7.0, event=Kind.START, test="t", data={"width": 2})]
    log.close()


def test_logs_of_all_workers_are_merged_in_the_order_of_time(tmp_path):
    for worker, times in (("main", (1.0, 3.0)), ("s1-r0", (2.0, 4.0))):
        clock = iter(times)
        with EventLog(tmp_path / f"events-{worker}.jsonl", clock=lambda clock=clock: next(clock)) as log:
            log.write(Kind.NOTE, message=worker)
            log.write(Kind.NOTE, message=worker)
    events, damaged = read_events(tmp_path)
    assert [event.t for event in events] == [1.0, 2.0, 3.0, 4.0]
    assert damaged == 0


def test_the_follower_gives_each_whole_line_once_and_waits_for_the_rest_of_a_cut_one(tmp_path):
    path = tmp_path / "events-main.jsonl"
    line = Event(t=1.0, event=Kind.NOTE, data={"message": "ä"}).line()
    tail = Tail(tmp_path)
    assert list(tail.read_new()) == []
    path.write_text(line + "\n" + line[:10], encoding="utf-8")
    assert len(list(tail.read_new())) == 1
    assert list(tail.read_new()) == []
    path.write_text(line + "\n" + line + "\n", encoding="utf-8")
    assert len(list(tail.read_new())) == 1


def test_a_log_that_cannot_be_written_is_an_error_with_a_remedy():
    with pytest.raises(ReportError) as error:
        EventLog(Path("/dev/null/events.jsonl"), clock=lambda: 0.0)
    assert "cannot write the event log" in str(error.value)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_told_when_the_line_is_written(tmp_path):
    path = tmp_path / "events-main.jsonl"
    path.symlink_to("/dev/full")
    log = EventLog(path, clock=lambda: 0.0)
    with log, pytest.raises(ReportError, match="No space left"):
        log.write(Kind.NOTE, message="x")
