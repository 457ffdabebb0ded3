"""What a push into the native ring costs, beside the copy that torch makes.

    python benchmarks/ring_push.py [--rounds 7]

One run measures all, interleaved; medians over the rounds of CPU time, since machines are shared.

- 64 bytes, CPU of the pushing thread: `ring.push` of a raw pointer, `ring.push_rows` of one row, `Taps.take` of
  a tensor, against `tensor.clone()`. The drain runs behind it into a null sink.
- large: bytes per CPU second of `push` into a ring of 512 MiB, from end to end, against
  the same into a plain buffer, and against `tensor.clone()` (whose target stays in the cache).

Bar: a push of 64 bytes takes at most 0.3x of `tensor.clone()`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import torch

from monitoring.native import load_native

BAR = 0.3
SMALL_CALLS = 20_000
LARGE_BYTES = 512 << 20


def main() -> int:
    """Measure and print; 1 when the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each measurement (default 7)")
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    ratio = measure_small(rounds)
    for size in (64 << 10, 1 << 20, 8 << 20):
        measure_large(size, rounds)
    sys.stdout.write(
        f"bar: push of 64 bytes at most {BAR}x of clone: {'met' if ratio <= BAR else 'MISSED'} ({ratio:.2f}x)\n"
    )
    return 0 if ratio <= BAR else 1


def measure_small(rounds: int) -> float:
    """Time calls of 64 bytes; the ratio of push to clone."""
    native = load_native()
    ring = native.Ring(native.NullSink(), run_id="bench", model_id="none")
    slot, request = ring.declare("resid_pre", 0, 0, "float32"), ring.request("r")
    tensor = torch.zeros(1, 1, 16)
    plan = ring.plan(0, [(request, 0, 0, 1, 0)])
    taps = native.Taps(ring, torch.Tensor.__dlpack_c_exchange_api__, torch.Tensor, 1)
    taps.bind(0, slot, 1, 2, 32)
    pointer, shape = tensor.data_ptr(), tuple(tensor.shape)
    push, rows, take, clone = ring.push, ring.push_rows, taps.take, tensor.clone

    def run_push() -> None:
        for _ in range(SMALL_CALLS):
            push(slot, request, 0, 0, 0, 1, shape, pointer, 64)

    def run_rows() -> None:
        for _ in range(SMALL_CALLS):
            rows(slot, plan, 0, 1, shape, pointer, 64)

    def run_take() -> None:
        taps.enter(plan, 1)
        for _ in range(SMALL_CALLS):
            take(0, tensor)

    def run_clone() -> None:
        for _ in range(SMALL_CALLS):
            clone()

    costs = interleave(
        {"ring.push": run_push, "ring.push_rows": run_rows, "Taps.take": run_take, "tensor.clone": run_clone}, rounds
    )
    base = costs["tensor.clone"]
    for name, seconds in costs.items():
        sys.stdout.write(
            f"64 bytes  {name:16} {seconds / SMALL_CALLS * 1e6:7.3f} us  {seconds / base:5.2f}x of clone\n"
        )
    ring.close(10.0)
    stats = ring.stats()
    assert stats["written"] == stats["accepted"] == 3 * SMALL_CALLS * rounds, stats
    return costs["ring.push"] / base


def measure_large(size: int, rounds: int) -> None:
    """Time copies of `size` bytes that fill a large ring from end to end, and the same into a plain buffer."""
    native = load_native()
    tensor = torch.ones(size, dtype=torch.uint8)
    buffer = torch.zeros(LARGE_BYTES, dtype=torch.uint8)
    count = LARGE_BYTES // size // 2
    limits = {"capacity_bytes": LARGE_BYTES, "flush_bytes": LARGE_BYTES, "flush_fill": 1.0}
    ring = native.Ring(native.NullSink(), run_id="bench", model_id="none", **limits)
    slot, request = ring.declare("resid_pre", 0, 0, "uint8"), ring.request("r")
    pointer = tensor.data_ptr()

    def run_push() -> None:
        for _ in range(count):
            ring.push(slot, request, 0, 0, 0, 1, (size,), pointer, size)

    def run_copy() -> None:
        for number in range(count):
            buffer[number * size : (number + 1) * size].copy_(tensor)

    def run_clone() -> None:
        for _ in range(count):
            tensor.clone()

    actions = {"ring.push": run_push, "copy into a buffer": run_copy, "tensor.clone": run_clone}
    costs = interleave(actions, rounds, before=lambda: ring.flush(30.0))
    rates = [f"{name} {count * size / seconds / 1e9:5.1f} GB/s" for name, seconds in costs.items()]
    sys.stdout.write(f"{size >> 10:6} KiB  {', '.join(rates)}\n")
    ring.close(30.0)
    assert ring.stats()["written"] == ring.stats()["accepted"]


def interleave(
    actions: dict[str, Callable[[], None]], rounds: int, *, before: Callable[[], object] = lambda: None
) -> dict[str, float]:
    """Run each action once per round, in turning order; medians of this thread's CPU seconds."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    names = list(actions)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            before()
            start = time.thread_time()
            actions[name]()
            times[name].append(time.thread_time() - start)
    return {name: statistics.median(values) for name, values in times.items()}


if __name__ == "__main__":
    sys.exit(main())
