"""A ring in a test's hands: records to push, blocks to look at, a ledger to check."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from monitoring.native import load_native
from monitoring.rows import CaptureRow, decode_rows


class Feeder:
    """Pushes records whose bytes tell their number, and knows how many it pushed."""

    def __init__(self, ring: Any, *, nbytes: int = 64, site: str = "resid_pre") -> None:
        self.ring = ring
        self.nbytes = nbytes
        self.slot = ring.declare(site, 0, 0, "uint8")
        self.request = ring.request("r0")
        self.pushed = 0
        self._memory = (ctypes.c_ubyte * nbytes)()

    def push(self, count: int = 1) -> int:
        """Push records of `nbytes`; how many are in."""
        inside = 0
        for _ in range(count):
            number = self.pushed.to_bytes(8, "little")
            self._memory[:8] = number
            arguments = (self.slot, self.request, self.pushed, 0, 0, 1, (self.nbytes,), ctypes.addressof(self._memory))
            inside += self.ring.push(*arguments, self.nbytes)
            self.pushed += 1
        return inside


class Collector:
    """A sink that keeps its rows, and fails, refuses or hangs when told to."""

    def __init__(self) -> None:
        self.blocks: list[bytes] = []
        self.tokens: list[str] = []
        self.calls = 0
        self.error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, block: bytes, rows: int, token: str) -> None:
        self.calls += 1
        self.tokens.append(token)
        self.gate.wait()
        if self.error is not None:
            raise self.error
        self.blocks.append(block)
        assert rows > 0

    def rows(self) -> list[CaptureRow]:
        return [row for block in self.blocks for row in decode_rows(block)]


class Refusal(Exception):  # noqa: N818 - its text is checked as "Refusal: ..."
    """What the tests' sinks raise for "never"."""


def check_ledger(stats: dict[str, Any]) -> None:
    """The equation, at any moment."""
    parts = stats["written"] + sum(stats["dropped"].values()) + sum(stats["failed"].values()) + stats["pending"]
    assert stats["accepted"] == parts, stats
    assert 0 <= stats["spooled"] <= stats["pending"], stats
    if stats["closed"]:
        assert stats["pending"] == 0, stats


def wait_for(condition: Callable[[], bool], limit: float = 10.0) -> bool:
    """Whether it holds within `limit` seconds."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.005)
    return condition()


@pytest.fixture
def native() -> Any:
    return load_native()


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.gate.set()


@pytest.fixture
def make_ring(native: Any) -> Iterator[Callable[..., Any]]:
    """Make rings that are closed, with a balanced ledger, when the test ends."""
    rings: list[Any] = []

    def make(sink: Any, **options: Any) -> Any:
        if callable(sink):
            sink = native.CallbackSink(sink, name="test", fatal=(Refusal,))
        options = {"flush_seconds": 0.02, "retry_seconds": 0.2, "capacity_bytes": 1 << 20, **options}
        rings.append(native.Ring(sink, run_id="run", model_id="model", **options))
        return rings[-1]

    yield make
    for ring in rings:
        check_ledger(ring.stats())
        ring.close(2.0)
        check_ledger(ring.stats())


@pytest.fixture
def feeder() -> type[Feeder]:
    return Feeder


@pytest.fixture
def refusal() -> type[Refusal]:
    return Refusal


@pytest.fixture
def ledger() -> Callable[[dict[str, Any]], None]:
    return check_ledger


@pytest.fixture
def eventually() -> Callable[..., bool]:
    return wait_for
