"""Policies: what a schedule keeps, and which values are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitoring.errors import PolicyError
from monitoring.policy import Backpressure, Delivery, Limits, Mode, Phase, Policy, Schedule

pytestmark = pytest.mark.cpu


@given(every=st.integers(1, 9), warmup=st.integers(0, 9))
def test_every_nth_step_after_the_warm_up(every, warmup):
    schedule = Schedule(every_steps=every, warmup_steps=warmup)
    kept = [step for step in range(60) if schedule.wants_step(step, prefill=False)]
    assert kept == list(range(warmup, 60, every))


@pytest.mark.parametrize(
    ("phase", "prefill", "decode"), [("all", True, True), ("prefill", True, False), ("decode", False, True)]
)
def test_phases(phase, prefill, decode):
    schedule = Schedule(phase=phase)
    assert schedule.wants_step(0, prefill=True) is prefill
    assert schedule.wants_step(1, prefill=False) is decode
    assert isinstance(schedule.phase, Phase)


def test_every_nth_request():
    schedule = Schedule(every_requests=3)
    assert [number for number in range(10) if schedule.wants_request(number)] == [0, 3, 6, 9]


def test_only_the_default_keeps_everything():
    assert Schedule().keeps_everything
    assert not Schedule(every_steps=2).keeps_everything
    assert not Schedule(phase="decode").keeps_everything


@pytest.mark.parametrize(
    ("kind", "values", "named"),
    [
        (Schedule, {"every_steps": 0}, "every_steps"),
        (Schedule, {"every_steps": 1.5}, "every_steps"),
        (Schedule, {"every_requests": True}, "every_requests"),
        (Schedule, {"warmup_steps": -1}, "warmup_steps"),
        (Schedule, {"phase": "middle"}, "prefill"),
        (Backpressure, {"mode": "wait"}, "drop_oldest"),
        (Backpressure, {"deadline": -0.1}, "deadline"),
        (Backpressure, {"deadline": float("nan")}, "deadline"),
        (Backpressure, {"sample_every": 0}, "sample_every"),
        (Limits, {"ring_bytes": 10}, "ring_bytes"),
        (Limits, {"ring_records": 1}, "ring_records"),
        (Limits, {"flush_interval": 0}, "flush_interval"),
        (Delivery, {"retry_seconds": -1}, "retry_seconds"),
        (Delivery, {"spool_bytes": -1}, "spool_bytes"),
    ],
)
def test_a_value_that_means_nothing_is_refused_by_name(kind, values, named):
    with pytest.raises(PolicyError, match=named):
        kind(**values)


def test_the_words_are_read_into_members():
    assert Backpressure(mode="sample").mode is Mode.SAMPLE
    assert Policy().backpressure.mode is Mode.BLOCK
