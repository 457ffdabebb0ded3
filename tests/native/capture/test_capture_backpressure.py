"""A store that stands still: each policy keeps what it says it keeps, and every record is accounted for."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

pytestmark = pytest.mark.native_backend

torch = pytest.importorskip("torch")

RECORDS = 200
CAPACITY = 16


class GatedStore:
    """Keeps what its sink is given, but the sink waits at a gate."""

    url = "gated:"

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.blocks: list[bytes] = []
        self.runs: list[Any] = []
        self.failures = 0

    def prepare(self) -> None:
        pass

    def sink(self, run: Any, options: Any = None) -> Any:
        from monitoring.native import load_native

        return load_native().CallbackSink(self.take, name="gated")

    def take(self, block: bytes, rows: int, token: str) -> None:
        if not self.gate.wait(20):
            raise TimeoutError("nobody opened the gate")
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the store is away")
        self.blocks.append(block)

    def write_run(self, record: Any) -> None:
        self.runs.append(record)

    def close(self) -> None:
        pass

    def kept(self) -> list[int]:
        from monitoring.rows import decode_rows

        return sorted(row.seq for block in self.blocks for row in decode_rows(block))


@pytest.fixture
def gated(monkeypatch):
    store = GatedStore()
    monkeypatch.setattr("monitoring.store.open_store", lambda _url: store)
    return store


def run(gated: GatedStore, mode: str, **more: Any) -> tuple[Any, Any, float]:
    """Push at a closed gate, then open it: the ledger before, the ledger at the end, the seconds of pushing."""
    import monitoring

    model = torch.nn.Identity()
    policy = monitoring.Policy(
        backpressure=monitoring.Backpressure(mode=mode, **({"deadline": 0.002, "sample_every": 4} | more)),
        limits=monitoring.Limits(ring_records=CAPACITY, batch_records=4, flush_interval=0.01),
    )
    watch = monitoring.watch(model, select="modules:*", store="gated:", policy=policy)
    watch.open()
    started = time.monotonic()
    for number in range(RECORDS):
        model(torch.tensor([float(number)]))
    spent = time.monotonic() - started
    held = watch.stats()
    gated.gate.set()
    with pytest.warns(monitoring.CaptureWarning, match="lost"):
        watch.close(20)
    return held, watch.stats(), spent


@pytest.mark.parametrize(
    ("mode", "reasons"),
    [
        ("drop_newest", {"dropped:newest"}),
        ("drop_oldest", {"dropped:oldest"}),
        ("block", {"dropped:deadline"}),
        ("sample", {"dropped:sample", "dropped:newest"}),
    ],
)
def test_every_record_is_accounted_for_with_its_reason(mode, reasons, gated):
    held, final, _ = run(gated, mode)
    assert held.balanced
    assert final.balanced
    assert final.accepted == RECORDS
    assert final.pending == 0
    assert set(final.losses) <= reasons
    assert final.dropped == RECORDS - final.written
    assert len(gated.kept()) == final.written
    assert gated.runs[-1].state == "closed"
    assert gated.runs[-1].dropped == final.dropped


def test_the_newest_are_refused_and_the_oldest_kept(gated):
    run(gated, "drop_newest")
    kept = gated.kept()
    assert kept[:CAPACITY] == list(range(CAPACITY))
    assert RECORDS - 1 not in kept


def test_the_oldest_are_given_up_and_the_newest_kept(gated):
    run(gated, "drop_oldest")
    assert RECORDS - 1 in gated.kept()
    assert len(gated.kept()) <= 3 * CAPACITY


def test_blocking_waits_no_longer_than_its_deadline(gated):
    _, final, spent = run(gated, "block", deadline=0.005)
    assert final.losses["dropped:deadline"] > RECORDS / 2
    assert spent >= final.losses["dropped:deadline"] * 0.004
    assert spent < 15


def test_blocking_loses_nothing_when_the_store_catches_up(gated):
    import monitoring

    gated.gate.set()
    model = torch.nn.Identity()
    policy = monitoring.Policy(limits=monitoring.Limits(ring_records=8, batch_records=2, flush_interval=0.01))
    with monitoring.watch(model, select="modules:*", store="gated:", policy=policy, raise_on_loss=True) as watch:
        for number in range(RECORDS):
            model(torch.tensor([float(number)]))
    assert watch.stats().written == RECORDS
    assert gated.kept() == list(range(RECORDS))


def test_a_sampled_run_keeps_some_of_what_comes_late(gated):
    _, final, _ = run(gated, "sample")
    assert final.losses.get("dropped:sample", 0) > 0
    assert max(gated.kept()) > CAPACITY / 2


def test_one_failed_insert_does_not_end_the_capture(gated):
    import monitoring

    gated.gate.set()
    gated.failures = 3
    model = torch.nn.Identity()
    with monitoring.watch(model, select="modules:*", store="gated:", raise_on_loss=True) as watch:
        for number in range(20):
            model(torch.tensor([float(number)]))
    assert watch.stats().written == 20
    assert gated.kept() == list(range(20))


def test_a_store_that_stays_away_is_counted_as_failed_not_forgotten(gated):
    import monitoring

    gated.gate.set()
    gated.failures = 10**6
    model = torch.nn.Identity()
    policy = monitoring.Policy(delivery=monitoring.Delivery(retry_seconds=0.1))
    watch = monitoring.watch(model, select="modules:*", store="gated:", policy=policy)
    watch.open()
    for number in range(20):
        model(torch.tensor([float(number)]))
    with pytest.warns(monitoring.CaptureWarning, match="away"):
        watch.close()
    stats = watch.stats()
    assert stats.failed == 20
    assert stats.balanced
    assert "the store is away" in stats.last_error


def test_a_flush_that_cannot_finish_in_time_says_so(gated):
    import monitoring

    model = torch.nn.Identity()
    watch = monitoring.watch(model, select="modules:*", store="gated:")
    watch.open()
    model(torch.ones(1))
    started = time.monotonic()
    with pytest.raises(monitoring.DrainTimeout, match="1 of 1 records"):
        watch.flush(0.1)
    assert time.monotonic() - started < 30
    gated.gate.set()
    watch.close(20)
    assert watch.stats().written == 1
