"""A process that forks, ends, is told to end or is killed: nothing hangs, nothing is counted wrong."""

from __future__ import annotations

import gc
import json
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from pathlib import Path

import pytest

pytestmark = [pytest.mark.native_backend, pytest.mark.ring_native]

START = """
import ctypes, json, os, signal, sys, threading, time
# A shell starts its background jobs, and so all that they start, with SIGINT ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
from monitoring.native import load_native
native = load_native()
path = sys.argv[1]
def store(block, rows, token):
    with open(path, "ab") as out:
        out.write(b"x" * rows)
sink = native.CallbackSink(store, name="file")
ring = native.Ring(sink, run_id="r", model_id="m", flush_seconds=60.0)
slot, request = ring.declare("s", 0, 0, "uint8"), ring.request("a")
memory = (ctypes.c_ubyte * 64)()
def push(count):
    return sum(ring.push(slot, request, n, 0, 0, 1, (64,), ctypes.addressof(memory), 64) for n in range(count))
"""


@pytest.fixture
def run(tmp_path):
    """Run a script after START; give its exit code, output and how many rows it stored."""

    def start(script, *, send=None, limit=30.0):
        stored = tmp_path / "stored"
        child = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-c", START + textwrap.dedent(script), str(stored)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            if send is not None:
                assert child.stdout.readline().strip() == "ready"
                child.send_signal(send)
            output, errors = child.communicate(timeout=limit)
        finally:
            child.kill()
            child.wait()
        return child.returncode, output, errors, stored.stat().st_size if stored.exists() else 0

    return start


def test_the_end_of_the_program_drains_open_rings(run):
    assert run("push(100)") == (0, "", "", 100)


def test_an_exception_that_ends_the_program_drains_too(run):
    code, _, errors, stored = run("push(100); raise RuntimeError('over')")
    assert (code, stored) == (1, 100)
    assert "RuntimeError: over" in errors


def test_sigterm_with_a_handler_that_exits_drains(run):
    code, _, _, stored = run(
        """
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
        push(50); print("ready", flush=True); time.sleep(30)
        """,
        send=signal.SIGTERM,
    )
    assert (code, stored) == (7, 50)


def test_sigterm_without_a_handler_ends_at_once_and_keeps_what_was_flushed(run):
    code, _, _, stored = run(
        'push(50); ring.flush(5.0); push(5); print("ready", flush=True); time.sleep(30)', send=signal.SIGTERM
    )
    assert (code, stored) == (-signal.SIGTERM, 50)


def test_sigint_drains(run):
    code, _, errors, stored = run('push(50); print("ready", flush=True); time.sleep(30)', send=signal.SIGINT)
    assert code in (1, -signal.SIGINT)
    assert "KeyboardInterrupt" in errors
    assert stored == 50


def test_a_forked_childs_ring_is_closed_and_empty_and_the_parents_goes_on(run):
    code, output, errors, stored = run(
        """
        push(10)
        child = os.fork()
        if child == 0:
            answer = [push(3), ring.closed, ring.flush(1.0), ring.close(1.0), ring.stats()]
            print(json.dumps(answer), flush=True)
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        push(5)
        assert ring.close(10.0)
        assert ring.stats()["written"] == 15
        """
    )
    assert (code, errors, stored) == (0, "", 15)
    inside, closed, flushed, clean, stats = json.loads(output)
    assert (inside, closed, flushed, clean) == (0, True, True, True)
    assert (stats["accepted"], stats["dropped"]["closed"], stats["pending"], stats["written"]) == (3, 3, 0, 0)


def test_forking_while_threads_push_never_deadlocks(run):
    code, _, errors, _ = run(
        """
        stop = threading.Event()
        def pusher():
            while not stop.is_set():
                push(20)
        threads = [threading.Thread(target=pusher) for _ in range(3)]
        for thread in threads: thread.start()
        for _ in range(30):
            child = os.fork()
            if child == 0:
                push(2); ring.stats(); ring.flush(1.0); ring.close(1.0)
                os._exit(0 if ring.stats()["accepted"] == 2 else 3)
            assert os.waitpid(child, 0)[1] == 0
        stop.set()
        for thread in threads: thread.join()
        assert ring.close(10.0)
        stats = ring.stats()
        assert stats["accepted"] == stats["written"] + sum(stats["dropped"].values())
        """
    )
    assert (code, errors) == (0, "")


def test_a_grandchild_and_a_new_ring_in_a_child_work(run):
    code, _, errors, _ = run(
        """
        child = os.fork()
        if child == 0:
            fresh = native.Ring(native.NullSink(), run_id="r", model_id="m")
            slot2, request2 = fresh.declare("s", 0, 0, "uint8"), fresh.request("a")
            assert fresh.push(slot2, request2, 0, 0, 0, 1, (64,), ctypes.addressof(memory), 64)
            grandchild = os.fork()
            if grandchild == 0:
                os._exit(0 if fresh.closed and ring.closed else 3)
            assert os.waitpid(grandchild, 0)[1] == 0
            assert fresh.close(5.0) and fresh.stats()["written"] == 1
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        """
    )
    assert (code, errors) == (0, "")


@pytest.mark.slow
def test_a_callback_that_hangs_for_ever_does_not_keep_the_program(run):
    code, _, errors, _ = run(
        """
        def hang(*_): time.sleep(1000)
        stuck = native.Ring(native.CallbackSink(hang, name="hang"), run_id="r", model_id="m", flush_seconds=0.0)
        slot3, request3 = stuck.declare("s", 0, 0, "uint8"), stuck.request("a")
        stuck.push(slot3, request3, 0, 0, 0, 1, (64,), ctypes.addressof(memory), 64)
        time.sleep(0.1)
        stuck.close(0.1)
        """,
        limit=25.0,
    )
    assert code == 0, errors


@pytest.mark.slow
def test_a_callback_that_never_stops_computing_does_not_keep_the_program(run):
    code, _, errors, _ = run(
        """
        def spin(*_):
            while True: pass
        stuck = native.Ring(native.CallbackSink(spin, name="spin"), run_id="r", model_id="m", flush_seconds=0.0)
        slot3, request3 = stuck.declare("s", 0, 0, "uint8"), stuck.request("a")
        stuck.push(slot3, request3, 0, 0, 0, 1, (64,), ctypes.addressof(memory), 64)
        time.sleep(0.1)
        stuck.close(0.1)
        """,
        limit=25.0,
    )
    assert code == 0, errors


def test_a_killed_process_loses_at_most_what_was_not_flushed(run):
    code, _, _, stored = run(
        'push(50); ring.flush(5.0); push(5); print("ready", flush=True); time.sleep(30)', send=signal.SIGKILL
    )
    assert (code, stored) == (-signal.SIGKILL, 50)


def test_a_ring_that_is_let_go_drains_and_releases_its_callback(native, feeder, collector):
    class Store:
        def __call__(self, *arguments):
            collector(*arguments)

    store = Store()
    alive = weakref.ref(store)
    ring = native.Ring(native.CallbackSink(store, name="store"), run_id="r", model_id="m")
    feed = feeder(ring)
    feed.push(10)
    del store, ring, feed
    gc.collect()
    assert len(collector.rows()) == 10
    assert alive() is None


def test_no_thread_and_no_descriptor_is_left_behind(native, feeder):
    def count():
        return len(list(Path("/proc/self/task").iterdir())), len(list(Path("/proc/self/fd").iterdir()))

    native.Ring(native.NullSink(), run_id="r", model_id="m").close(5.0)
    time.sleep(0.05)
    before = count()
    for _ in range(20):
        ring = native.Ring(native.NullSink(), run_id="r", model_id="m", capacity_bytes=4096)
        feeder(ring).push(3)
        assert ring.close(5.0)
        del ring
    gc.collect()
    end = time.monotonic() + 5.0
    while count() != before and time.monotonic() < end:
        time.sleep(0.01)
    assert count() == before


def test_two_threads_may_close_at_the_same_time(native, feeder):
    ring = native.Ring(native.NullSink(), run_id="r", model_id="m")
    feeder(ring).push(100)
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(ring.close(5.0))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [True] * 4


def test_the_drain_thread_takes_no_signal(run):
    """A signal that it took ran no handler, and the main thread slept on."""
    script = """
    blocked = {}
    for name in os.listdir("/proc/self/task"):
        status = open(f"/proc/self/task/{name}/status").read()
        blocked[int(name)] = int(status.partition("SigBlk:")[2].split()[0], 16)
    others = [mask for thread, mask in blocked.items() if thread != threading.get_native_id()]
    wanted = 1 << (signal.SIGTERM - 1) | 1 << (signal.SIGINT - 1)
    assert others and all(mask & wanted == wanted for mask in others), blocked
    assert not blocked[threading.get_native_id()] & wanted
    push(1)
    """
    code, _, errors, stored = run(script)
    assert (code, stored) == (0, 1), errors
