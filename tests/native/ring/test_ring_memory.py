"""The bound on memory holds for the process, not only in the ring's own books."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

pytestmark = [pytest.mark.native_backend, pytest.mark.ring_native, pytest.mark.slow]

BOUND = 64 << 20

SCRIPT = """
import ctypes, sys, time
from monitoring.native import load_native
native = load_native()
def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) * 1024
nbytes, policy, sink_kind = int(sys.argv[1]), sys.argv[2], sys.argv[3]
memory = (ctypes.c_ubyte * nbytes)()
def slow(*_): time.sleep(0.05)
def away(*_): raise ConnectionError("away")
sink = native.CallbackSink({"slow": slow, "away": away}[sink_kind], name="x")
before = peak()
ring = native.Ring(sink, run_id="r", model_id="m", capacity_bytes=%d, policy=policy, deadline=0.5, retry_seconds=0.0)
slot, request = ring.declare("s", 0, 0, "uint8"), ring.request("a")
end = time.monotonic() + 4.0
step = 0
while time.monotonic() < end:
    ring.push(slot, request, step, 0, 0, 1, (nbytes,), ctypes.addressof(memory), nbytes)
    step += 1
ring.close(1.0)
stats = ring.stats()
assert stats["accepted"] == stats["written"] + sum(stats["dropped"].values()) + sum(stats["failed"].values())
print(peak() - before)
"""


@pytest.mark.parametrize("sink", ["slow", "away"])
@pytest.mark.parametrize("policy", ["block", "drop_oldest"])
@pytest.mark.parametrize("nbytes", [1024, 1 << 20])
def test_a_slow_or_absent_store_does_not_grow_the_process(nbytes, policy, sink):
    script = textwrap.dedent(SCRIPT % BOUND)
    command = [sys.executable, "-c", script, str(nbytes), policy, sink]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= 1.1 * BOUND, f"{int(done.stdout) / BOUND:.3f}x of the bound"
