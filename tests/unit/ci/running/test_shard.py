"""Shards lose no test, share none, and are alike in load."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.errors import UsageError
from ci.running.pool import Task
from ci.running.shard import Shard, fingerprint_split, select_shard, split_tasks

pytestmark = pytest.mark.cpu

SUITES = st.dictionaries(st.text(min_size=1, max_size=4), st.floats(0, 100), max_size=40)


@given(SUITES, st.integers(1, 9), st.randoms(use_true_random=False))
def test_every_test_is_in_exactly_one_shard_on_whatever_runner(
    estimates: dict[str, float], count: int, chance: random.Random
) -> None:
    tests = list(estimates)
    parts = []
    for index in range(1, count + 1):
        chance.shuffle(tests)
        shard = Shard(index=index, count=count)
        parts += select_shard(tests, widths={}, estimates=estimates, shard=shard)
    assert sorted(parts) == sorted(estimates)


def test_a_shard_keeps_the_order_in_which_tests_came() -> None:
    tests = [f"t{index}" for index in range(20)]
    chosen = select_shard(tests, widths={}, estimates=dict.fromkeys(tests, 1.0), shard=Shard(index=2, count=3))
    assert list(chosen) == sorted(chosen, key=tests.index)
    assert 6 <= len(chosen) <= 7


@pytest.mark.parametrize("count", [2, 3, 8])
def test_loads_are_alike(count: int) -> None:
    chance = random.Random(count)
    suite = [Task(id=f"t{i}", width=chance.choice((1, 2, 4)), duration=chance.lognormvariate(1, 1)) for i in range(200)]
    loads = [sum(one.area for one in part) for part in split_tasks(suite, count)]
    assert max(loads) <= 1.05 * sum(loads) / count


def test_tests_without_a_duration_are_spread_evenly() -> None:
    suite = [Task(id=f"t{index}", width=1, duration=0.0) for index in range(10)]
    assert [len(part) for part in split_tasks(suite, 5)] == [2, 2, 2, 2, 2]


@pytest.mark.parametrize("text", ["", "1", "0/3", "4/3", "a/b", "1/0", "1/2/3", "-1/2", "1 / 2", "1/99999"])
def test_a_wrong_shard_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="expected I/N"):
        Shard.parse(text)


def test_a_shard_reads_as_it_is_written() -> None:
    assert str(Shard.parse(" 2/4 ")) == "2/4"


def test_a_split_from_other_estimates_has_another_mark() -> None:
    mark = fingerprint_split(["a", "b"], {"a": 1.0, "b": 2.0}, 2)
    assert mark == fingerprint_split(["b", "a"], {"b": 2.0, "a": 1.0}, 2)
    assert mark != fingerprint_split(["a", "b"], {"a": 1.0, "b": 2.5}, 2)
    assert mark != fingerprint_split(["a", "b"], {"a": 1.0, "b": 2.0}, 3)
