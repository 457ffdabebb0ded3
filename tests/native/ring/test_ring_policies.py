"""What a full ring does: each policy as its word says, and every loss in the ledger."""

from __future__ import annotations

import threading
import time

import pytest

pytestmark = [pytest.mark.native_backend, pytest.mark.ring_native]

SMALL = {"capacity_bytes": 4096, "capacity_records": 64, "flush_bytes": 512, "flush_seconds": 0.0}


@pytest.fixture
def stuck(collector):
    """A sink that takes a block and does not come back until the test opens the gate."""
    collector.gate.clear()
    return collector


def test_block_waits_for_room_and_loses_nothing(make_ring, feeder, collector):
    ring = make_ring(collector, policy="block", deadline=10.0, **SMALL)
    feed = feeder(ring)
    assert feed.push(1000) == 1000
    assert ring.flush(10.0)
    assert [row.seq for row in collector.rows()] == list(range(1000))
    assert ring.stats()["written"] == 1000


def test_block_gives_up_at_its_deadline(make_ring, feeder, stuck, ledger):
    ring = make_ring(stuck, policy="block", deadline=0.1, **SMALL)
    feed = feeder(ring, nbytes=1024)
    start = time.monotonic()
    inside = feed.push(8)
    assert inside == 4
    assert 0.35 <= time.monotonic() - start < 3.0
    stats = ring.stats()
    ledger(stats)
    assert stats["dropped"]["deadline"] == 4


def test_drop_newest_never_waits_and_keeps_the_oldest(make_ring, feeder, stuck):
    ring = make_ring(stuck, policy="drop_newest", **SMALL)
    feed = feeder(ring, nbytes=1024)
    start = time.monotonic()
    assert feed.push(50) == 4
    assert time.monotonic() - start < 1.0
    assert ring.stats()["dropped"]["newest"] == 46
    stuck.gate.set()
    assert ring.flush(5.0)
    assert [row.seq for row in stuck.rows()] == [0, 1, 2, 3]


def test_drop_oldest_keeps_the_newest(make_ring, feeder, stuck, eventually):
    ring = make_ring(stuck, policy="drop_oldest", **SMALL)
    feed = feeder(ring, nbytes=1024)
    feed.push(1)
    assert eventually(lambda: stuck.calls == 1)  # it is on its way, and hangs
    assert feed.push(50) == 50
    assert ring.stats()["dropped"]["oldest"] == 46
    stuck.gate.set()
    assert ring.flush(5.0)
    assert [row.seq for row in stuck.rows()] == [0, 47, 48, 49, 50]


def test_sample_keeps_one_in_n_from_half_full_on(make_ring, feeder, stuck, eventually):
    limits = {"capacity_bytes": 1 << 16, "capacity_records": 1000, "flush_bytes": 64, "flush_seconds": 0.0}
    ring = make_ring(stuck, policy="sample", sample_every=4, **limits)
    feed = feeder(ring, nbytes=1024)
    feed.push(1)
    assert eventually(lambda: stuck.calls == 1)
    assert feed.push(31) == 31
    assert feed.push(40) == 10
    assert ring.stats()["dropped"]["sample"] == 30
    assert feed.push(400) == 22
    stats = ring.stats()
    assert stats["dropped"]["newest"] == 78
    assert stats["peak_bytes"] <= stats["capacity_bytes"]


def test_the_record_limit_holds_like_the_byte_limit(make_ring, feeder, stuck):
    ring = make_ring(stuck, policy="drop_newest", capacity_bytes=1 << 20, capacity_records=10, flush_seconds=0.0)
    assert feeder(ring, nbytes=8).push(30) == 10
    assert ring.stats()["peak_records"] == 10


@pytest.mark.parametrize("policy", ["block", "drop_newest", "drop_oldest", "sample"])
def test_a_tensor_larger_than_the_ring_is_counted_and_named(make_ring, feeder, collector, policy):
    ring = make_ring(collector, policy=policy, deadline=0.1, **SMALL)
    assert feeder(ring, nbytes=8192).push() == 0
    stats = ring.stats()
    assert stats["dropped"]["oversize"] == 1
    assert "8192 bytes is larger than the ring of 4096 bytes" in ring.last_error
    assert "raise capacity_bytes" in ring.last_error
    assert feeder(ring, nbytes=4096).push() == 1
    assert ring.flush(5.0)


@pytest.mark.parametrize("policy", ["block", "drop_newest", "drop_oldest", "sample"])
def test_gaps_in_sequence_numbers_are_exactly_the_losses(make_ring, feeder, collector, policy):
    ring = make_ring(
        collector, policy=policy, deadline=0.0, capacity_bytes=8192, capacity_records=64, flush_seconds=0.0
    )
    feed = feeder(ring, nbytes=512)
    feed.push(3000)
    assert ring.flush(10.0)
    stats = ring.stats()
    seqs = [row.seq for row in collector.rows()]
    assert seqs == sorted(set(seqs))
    assert 3000 - len(seqs) == sum(stats["dropped"].values())
    assert stats["seq_end"] == stats["accepted"] == 3000
    assert all(int.from_bytes(row.data[:8], "little") == row.seq for row in collector.rows())


@pytest.mark.parametrize("policy", ["block", "drop_newest", "drop_oldest", "sample"])
def test_the_ledger_balances_at_every_moment_under_eight_threads(make_ring, feeder, collector, ledger, policy):
    ring = make_ring(
        collector, policy=policy, deadline=0.01, capacity_bytes=1 << 16, capacity_records=256, flush_seconds=0.0
    )
    done = threading.Event()
    feeds = [feeder(ring, nbytes=size) for size in (8, 64, 100, 1000, 4096, 30000, 65536, 70000)]
    problems = []

    def push(feed):
        try:
            feed.push(150)
        except BaseException as error:  # noqa: BLE001 - a thread's border: the test fails with it
            problems.append(error)

    def watch():
        while not done.is_set():
            ledger(ring.stats())

    threads = [threading.Thread(target=push, args=(feed,)) for feed in feeds]
    watcher = threading.Thread(target=watch)
    for thread in (watcher, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    watcher.join()
    assert problems == []
    assert ring.close(10.0)
    stats = ring.stats()
    ledger(stats)
    assert stats["accepted"] == 8 * 150
    assert stats["written"] == len(collector.rows())
    assert stats["dropped"]["oversize"] == 150


def test_a_slow_sink_holds_the_bound(make_ring, feeder, stuck):
    ring = make_ring(stuck, policy="drop_oldest", capacity_bytes=1 << 20)
    feeder(ring, nbytes=10_000).push(2000)
    stats = ring.stats()
    assert stats["peak_bytes"] <= stats["capacity_bytes"] == 1 << 20


def test_lost_records_enter_the_ledger(make_ring, collector):
    ring = make_ring(collector)
    ring.lost("hook")
    ring.lost("policy", 3)
    stats = ring.stats()
    assert (stats["accepted"], stats["failed"]["hook"], stats["dropped"]["policy"]) == (4, 1, 3)
    with pytest.raises(ValueError, match="reason is 'mood', expected one of: hook, policy"):
        ring.lost("mood")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"policy": "drop"}, "policy is 'drop', expected one of: block, drop_newest, drop_oldest, sample"),
        ({"capacity_bytes": 10}, "capacity_bytes is 10, expected at least 4096"),
        ({"capacity_records": 0}, "capacity_records is 0, expected 1 to"),
        ({"deadline": -1.0}, "deadline is -1"),
        ({"deadline": float("nan")}, "deadline is nan|deadline is -nan"),
        ({"sample_every": 0}, "sample_every is 0"),
        ({"flush_fill": 0.0}, "flush_fill is 0"),
        ({"flush_seconds": -0.5}, "flush_seconds is -0.5"),
        ({"retry_seconds": -1.0}, "retry_seconds is -1"),
    ],
)
def test_limits_that_cannot_work_are_refused(native, options, problem):
    with pytest.raises(ValueError, match=problem):
        native.Ring(native.NullSink(), run_id="run", model_id="model", **options)


def test_one_sink_serves_one_ring(native, make_ring):
    sink = native.NullSink()
    make_ring(sink)
    with pytest.raises(ValueError, match="the sink to null already belongs to a ring"):
        make_ring(sink)


def test_sparse_records_are_sent_by_time(make_ring, feeder, collector, eventually):
    """Regression: sparse captures stayed invisible until shutdown, because flushing had no time limit."""
    ring = make_ring(collector, flush_seconds=0.2)
    feeder(ring).push()
    assert eventually(lambda: ring.stats()["written"] == 1, 5.0)


def test_the_null_sink_counts_as_written(native, make_ring, feeder):
    ring = make_ring(native.NullSink())
    feeder(ring).push(10)
    assert ring.close(5.0)
    assert ring.stats()["written"] == 10
