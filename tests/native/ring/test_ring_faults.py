"""Every fault of a sink: nothing hangs, nothing is lost without a count, credentials show nowhere."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from monitoring.rows import decode_rows

pytestmark = [pytest.mark.native_backend, pytest.mark.ring_native]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def http(native, port, **options):
    options = {"database": "default", "table": "captures", "timeout": 1.0, **options}
    return native.HttpSink("127.0.0.1", port, **options)


def read_head(stream):
    """Read a request's head; nothing when the peer has gone."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = stream.readline()
        if not line:
            return b""
        head += line
    return head


@pytest.fixture
def answering():
    """A server that answers each request with the given bytes, or hangs up; it counts requests."""
    sockets = []
    seen = []

    def serve(answer, *, read_body=True):
        listener = socket.create_server(("127.0.0.1", 0))
        sockets.append(listener)

        def loop():
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                sockets.append(peer)
                threading.Thread(target=talk, args=(peer,), daemon=True).start()

        def talk(peer):
            stream = peer.makefile("rb")
            try:
                while head := read_head(stream):
                    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                    seen.append((head, stream.read(length) if read_body else b""))
                    chosen = answer(len(seen)) if callable(answer) else answer
                    if chosen is None:
                        peer.close()
                        stream.close()
                        return
                    peer.sendall(chosen)
            except OSError:
                return

        threading.Thread(target=loop, daemon=True).start()
        return listener.getsockname()[1]

    serve.seen = seen
    yield serve
    for one in sockets:
        one.close()


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: Keep-Alive\r\n\r\n"


def refusing(body, status=500, header=b""):
    return b"HTTP/1.1 %d Error\r\nContent-Length: %d\r\n%s\r\n%s" % (status, len(body), header, body)


def test_retry_until_the_sink_recovers_keeps_order_and_token(make_ring, feeder, collector, eventually):
    ring = make_ring(collector, retry_seconds=30.0)
    collector.error = ConnectionError("away")
    feeder(ring).push(5)
    assert eventually(lambda: collector.calls >= 3)
    assert ring.stats()["retries"] >= 2
    assert "ConnectionError: away" in ring.last_error
    collector.error = None
    assert ring.flush(10.0)
    assert [row.seq for row in collector.rows()] == [0, 1, 2, 3, 4]
    assert len(set(collector.tokens)) == 1


def test_what_is_never_accepted_fails_at_once_and_the_drain_lives(make_ring, feeder, collector, refusal):
    ring = make_ring(collector, retry_seconds=30.0)
    collector.error = refusal("no such column")
    feed = feeder(ring)
    feed.push(3)
    assert ring.flush(5.0)
    assert ring.stats()["failed"]["fatal"] == 3
    assert "Refusal: no such column" in ring.last_error
    collector.error = None
    feed.push(2)
    assert ring.flush(5.0)
    assert ring.stats()["written"] == 2
    assert not ring.close(1.0)


def test_a_sink_that_stays_away_makes_records_fail_never_hang(make_ring, feeder, collector):
    ring = make_ring(collector, retry_seconds=0.1, flush_seconds=0.0)
    collector.error = ConnectionError("away")
    feed = feeder(ring)
    feed.push(3)
    assert ring.flush(10.0)
    assert ring.stats()["failed"]["retry"] == 3
    assert not ring.close(1.0)
    assert feed.push() == 0
    assert ring.stats()["dropped"]["closed"] == 1


def test_a_hanging_sink_does_not_hold_up_close(make_ring, feeder, collector, eventually):
    ring = make_ring(collector, flush_seconds=0.0)
    collector.gate.clear()
    feeder(ring).push(2)
    assert eventually(lambda: collector.calls == 1)
    assert not ring.flush(0.05)
    start = time.monotonic()
    assert not ring.close(0.3)
    assert time.monotonic() - start < 3.0
    assert ring.stats()["failed"]["closed"] == 2
    collector.gate.set()  # the late success changes nothing
    time.sleep(0.1)
    assert ring.stats()["failed"]["closed"] == 2
    assert ring.close(0.1) is False


def test_port_closed(native, make_ring, feeder, tmp_path):
    ring = make_ring(http(native, free_port()), retry_seconds=0.2, spool_dir=str(tmp_path))
    feeder(ring).push(10)
    assert not ring.flush(1.0)
    stats = ring.stats()
    assert (stats["spooled"], stats["pending"]) == (10, 10)
    assert "cannot connect: Connection refused" in stats["last_error"]
    assert not ring.close(1.0)
    assert ring.stats()["failed"]["left_in_spool"] == 10


def test_an_unknown_host_is_named(native, make_ring, feeder):
    sink = native.HttpSink("no-such-host.invalid", 1, database="d", table="t", timeout=1.0)
    ring = make_ring(sink, retry_seconds=0.0)
    feeder(ring).push()
    ring.flush(10.0)
    assert "the host name cannot be resolved" in ring.last_error


def test_another_protocol_on_the_port_is_named(native, make_ring, feeder, answering):
    ring = make_ring(http(native, answering(b"SSH-2.0-OpenSSH_9.2\r\n")), retry_seconds=0.0)
    feeder(ring).push()
    ring.flush(10.0)
    assert "is this the port of another protocol?" in ring.last_error


def test_a_kept_connection_that_was_closed_is_opened_again_without_a_retry(native, make_ring, feeder, answering):
    port = answering(lambda number: None if number == 2 else OK)
    ring = make_ring(http(native, port), retry_seconds=5.0)
    feed = feeder(ring)
    for _ in range(3):
        feed.push()
        assert ring.flush(5.0)
    stats = ring.stats()
    assert (stats["written"], stats["retries"], stats["reconnects"]) == (3, 0, 1)
    assert len(answering.seen) == 4


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (refusing(b"Code: 60. DB::Exception: Table default.captures doesn't exist."), "fatal"),
        (refusing(b"oops", 404, b"X-ClickHouse-Exception-Code: 60\r\n"), "fatal"),
        (refusing(b"Code: 115, e.displayText() = DB::Exception: Unknown setting x", 500), "fatal"),
        (refusing(b"no such page", 404), "fatal"),
        (refusing(b"Code: 252. DB::Exception: Too many parts"), "retry"),
        (refusing(b"Code: 243. DB::Exception: Cannot reserve 1.00 MiB, not enough space"), "retry"),
        (refusing(b"Code: 243. DB::Exception: Cannot reserve", 200), "retry"),
        (refusing(b"", 503), "retry"),
        (refusing(b"slow down", 429), "retry"),
    ],
)
def test_a_servers_answer_tells_never_from_later(native, make_ring, feeder, answering, answer, kind):
    ring = make_ring(http(native, answering(answer)), retry_seconds=0.0)
    feeder(ring).push(2)
    assert ring.flush(10.0)
    assert ring.stats()["failed"] == {**dict.fromkeys(ring.stats()["failed"], 0), kind: 2}
    assert "status" in ring.last_error


def test_an_early_refusal_of_a_large_block_is_read_not_lost_in_a_broken_pipe(native, make_ring, feeder, answering):
    answer = refusing(b"Code: 516. DB::Exception: Authentication failed", 403)
    ring = make_ring(
        http(native, answering(answer, read_body=False), timeout=5.0), retry_seconds=0.0, capacity_bytes=64 << 20
    )
    feeder(ring, nbytes=32 << 20).push()
    assert ring.flush(20.0)
    assert ring.stats()["failed"]["fatal"] == 1
    assert "Authentication failed" in ring.last_error


def test_credentials_appear_nowhere(native, make_ring, feeder, answering):
    secret = "hunter2-hunter2"
    answer = refusing(f"Code: 516. DB::Exception: bad password {secret} for user".encode(), 403)
    sink = http(native, answering(answer), user="ada", password=secret, settings={"max_threads": "1"})
    ring = make_ring(sink, retry_seconds=0.0)
    feeder(ring).push()
    assert ring.flush(5.0)
    assert b"X-ClickHouse-Key: hunter2-hunter2" in answering.seen[0][0]
    assert secret.encode() not in answering.seen[0][0].split(b"\r\n")[0]
    for text in (repr(sink), sink.target, ring.last_error, repr(ring.stats()), repr(ring)):
        assert secret not in text
    assert "***" in ring.last_error
    with pytest.raises(ValueError, match="password holds a control character") as caught:
        http(native, 1, password=f"{secret}\n")
    assert secret not in str(caught.value)


def test_the_request_is_what_a_clickhouse_server_expects(native, make_ring, feeder, answering):
    sink = http(
        native, answering(OK), database="my db", table="ta`ble", deduplicate=True, settings={"a b": "c&d"}, path="/x"
    )
    ring = make_ring(sink)
    feeder(ring).push(2)
    assert ring.flush(5.0)
    head, body = answering.seen[0]
    line = head.split(b"\r\n")[0].decode()
    assert line.startswith("POST /x?query=INSERT%20INTO%20%60my%20db%60.%60ta%5C%60ble%60%20%28run_id%2C%20model_id%2C")
    assert "FORMAT%20Native&a%20b=c%26d&insert_deduplication_token=" in line
    assert line.endswith("-0-2 HTTP/1.1")
    assert [row.seq for row in decode_rows(body)] == [0, 1]


def test_a_silent_server_runs_into_the_time_limit(native, make_ring, feeder, answering):
    ring = make_ring(http(native, answering(b""), timeout=0.3), retry_seconds=0.0)
    feeder(ring).push()
    start = time.monotonic()
    assert ring.flush(10.0)
    assert time.monotonic() - start < 5.0
    assert "no answer in time" in ring.last_error


def test_close_cuts_a_silent_server_off(native, make_ring, feeder, answering, eventually):
    ring = make_ring(http(native, answering(b""), timeout=60.0))
    feeder(ring).push()
    assert eventually(lambda: len(answering.seen) == 1)
    start = time.monotonic()
    assert not ring.close(0.3)
    assert time.monotonic() - start < 2.0
    assert ring.stats()["failed"]["closed"] == 1


def test_the_spool_is_replayed_in_order_when_the_sink_recovers(make_ring, feeder, collector, tmp_path, eventually):
    ring = make_ring(collector, retry_seconds=0.0, spool_dir=str(tmp_path), flush_seconds=0.0, flush_bytes=1024)
    collector.error = ConnectionError("away")
    feed = feeder(ring, nbytes=1024)
    feed.push(20)
    assert eventually(lambda: ring.stats()["spooled"] == 20)
    assert list(tmp_path.rglob("*.block"))
    collector.error = None
    feed.push(5)
    assert ring.flush(20.0)
    assert [row.seq for row in collector.rows()] == list(range(25))
    assert not list(tmp_path.rglob("*.block"))
    assert ring.close(5.0)
    assert list(tmp_path.iterdir()) == []


def test_a_full_spool_counts_as_failed(make_ring, feeder, collector, tmp_path, eventually):
    ring = make_ring(
        collector, retry_seconds=0.0, spool_dir=str(tmp_path), spool_bytes=3000, flush_seconds=0.0, flush_bytes=64
    )
    collector.error = ConnectionError("away")
    feed = feeder(ring, nbytes=1024)
    feed.push(4)
    assert eventually(lambda: ring.stats()["failed"]["spool"] == 2)
    assert ring.stats()["spooled"] == 2
    assert "is full" in ring.last_error or "away" in ring.last_error
    collector.error = None
    assert ring.flush(10.0)
    assert [row.seq for row in collector.rows()] == [0, 1]


def test_a_disk_that_is_full_counts_as_failed_and_says_so(native, tmp_path):
    """A file system of 256 KiB, mounted in a namespace of its own, takes some blocks and then no more."""
    script = textwrap.dedent(
        """
        import ctypes, json, sys
        from monitoring.native import load_native
        native = load_native()
        def away(*_): raise ConnectionError("away")
        sink = native.CallbackSink(away, name="away")
        ring = native.Ring(sink, run_id="r", model_id="m", retry_seconds=0.0, spool_dir=sys.argv[1], flush_seconds=0.0,
                           flush_bytes=65536, capacity_bytes=1 << 20)
        slot, request = ring.declare("s", 0, 0, "uint8"), ring.request("a")
        memory = (ctypes.c_ubyte * 65536)()
        for step in range(8):
            ring.push(slot, request, step, 0, 0, 1, (65536,), ctypes.addressof(memory), 65536)
        ring.flush(4.0)
        before = ring.stats()
        ring.close(0.2)
        print(json.dumps([before, ring.stats()]))
        """
    )
    command = f'mount -t tmpfs -o size=256k tmpfs {tmp_path} && exec {sys.executable} -c "$SCRIPT" {tmp_path}'
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", command], env={**os.environ, "SCRIPT": script},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"this system lets nobody mount a file system of his own: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    import json

    before, after = json.loads(done.stdout)
    assert before["failed"]["spool"] >= 1
    assert before["spooled"] >= 1
    assert "No space left on device" in before["last_error"] or "away" in before["last_error"]
    assert (
        after["accepted"]
        == 8
        == after["failed"]["spool"] + after["failed"]["left_in_spool"] + after["failed"]["closed"]
    )


def test_a_damaged_spool_file_is_kept_aside_and_counted(make_ring, feeder, collector, tmp_path, eventually):
    ring = make_ring(collector, retry_seconds=0.0, spool_dir=str(tmp_path), flush_seconds=0.0, flush_bytes=64)
    collector.error = ConnectionError("away")
    feed = feeder(ring, nbytes=1024)
    feed.push(3)
    assert eventually(lambda: ring.stats()["spooled"] == 3)
    first, second, _ = sorted(tmp_path.rglob("*.block"))
    content = bytearray(first.read_bytes())
    content[-5] ^= 1
    first.write_bytes(content)
    second.write_bytes(second.read_bytes()[:-1])
    collector.error = None
    assert ring.flush(10.0)
    assert [row.seq for row in collector.rows()] == [2]
    assert ring.stats()["failed"]["spool"] == 2
    assert len(list(tmp_path.rglob("*.damaged"))) == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_spool_folder_without_permission_is_an_error_at_once(native, tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(RuntimeError, match="cannot be made"):
        native.Ring(native.NullSink(), run_id="r", model_id="m", spool_dir=str(tmp_path / "spool"))


def test_a_spool_folder_that_is_a_file_is_an_error_at_once(native, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RuntimeError, match="cannot be made"):
        native.Ring(native.NullSink(), run_id="r", model_id="m", spool_dir=str(tmp_path / "file"))


def test_a_later_process_replays_what_a_killed_one_left(make_ring, collector, tmp_path, eventually):
    script = textwrap.dedent(
        """
        import ctypes, os, signal, sys, time
        from monitoring.native import load_native
        native = load_native()
        def away(*_): raise ConnectionError("away")
        ring = native.Ring(native.CallbackSink(away, name="test"), run_id="killed", model_id="m", retry_seconds=0.0,
                           spool_dir=sys.argv[1], flush_seconds=0.0, flush_bytes=64)
        slot, request = ring.declare("s", 0, 0, "uint8"), ring.request("a")
        memory = (ctypes.c_ubyte * 64)()
        for step in range(5):
            ring.push(slot, request, step, 0, 0, 1, (64,), ctypes.addressof(memory), 64)
        while ring.stats()["spooled"] < 5: time.sleep(0.01)
        print("spooled", flush=True)
        time.sleep(60)
        """
    )
    child = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline().strip() == "spooled"
        # The process lives: its spool is its own.
        make_ring(collector, spool_dir=str(tmp_path)).close(2.0)
        assert collector.blocks == []
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    ring = make_ring(collector, spool_dir=str(tmp_path))
    assert eventually(lambda: ring.stats()["replayed"] == 5)
    assert [(row.run_id, row.step) for row in collector.rows()] == [("killed", step) for step in range(5)]
    assert ring.stats()["accepted"] == 0
    assert ring.close(5.0)
    assert list(tmp_path.iterdir()) == []


def test_a_spool_for_another_target_is_left_alone(native, make_ring, feeder, collector, tmp_path, eventually):
    away = make_ring(http(native, free_port()), retry_seconds=0.0, spool_dir=str(tmp_path))
    feeder(away).push()
    assert eventually(lambda: away.stats()["spooled"] == 1)
    away.close(0.5)
    make_ring(collector, spool_dir=str(tmp_path)).close(2.0)
    assert collector.blocks == []
    assert len(list(tmp_path.rglob("*.block"))) == 1
