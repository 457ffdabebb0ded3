"""Stores that are down, slow, cut off, full or killed: every record is accounted for, nothing hangs."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ci.stages.guards import require_clickhouse
from monitoring import devserver
from monitoring.errors import IncompleteRun, StoreError
from monitoring.read import read
from monitoring.rows import CLOSED, RunRecord, encode_rows
from monitoring.store import embedded, open_store
from monitoring.store import folder as folders

native = pytest.importorskip("monitoring._native", reason="the native library is not built")

pytestmark = [pytest.mark.native_backend, pytest.mark.slow]
needs_server = (pytest.mark.clickhouse, require_clickhouse())

Push = Callable[..., Any]


def with_marks(marks: Any) -> Callable[[Any], Any]:
    def wrap(function: Any) -> Any:
        for mark in marks:
            function = mark(function)
        return function

    return wrap


on_server = with_marks(needs_server)


def make_ring(store: Any, **options: Any) -> Any:
    values = {"flush_seconds": 0.02, "retry_seconds": 20.0, **options}
    return native.Ring(store.sink(RunRecord(run_id="r")), run_id="r", model_id="m", **values)


def balance(stats: Any) -> None:
    """`accepted = written + dropped + failed + pending`, whatever happened."""
    assert stats["accepted"] == (
        stats["written"] + sum(stats["dropped"].values()) + sum(stats["failed"].values()) + stats["pending"]
    ), stats


def stored(url: str) -> list[int]:
    store = open_store(url)
    seqs = sorted(row.seq for row in store.read_rows("r"))
    store.close()
    return seqs


@on_server
@pytest.mark.parametrize("mode", ["cut", "mute", "refuse", "stall"])
def test_a_connection_that_fails_once_costs_nothing(
    opening: Any, proxied_server: tuple[Any, str], push_rows: Push, mode: str
) -> None:
    """Half-written batch, lost answer, refused or silent connection: sent again, read once."""
    proxy, url = proxied_server
    store = opening(url)
    store.prepare()
    ring = make_ring(store)
    push_rows(ring, 50)
    assert ring.flush(10.0)
    proxy.mode, proxy.after = mode, 700
    proxy.break_connections()
    push_rows(ring, 50, first=50)
    ring.flush(0.5)
    balance(ring.stats())
    proxy.mode = "pass"
    proxy.break_connections()
    push_rows(ring, 50, first=100)
    assert ring.close(30.0), ring.stats()
    stats = ring.stats()
    balance(stats)
    assert stats["written"] == 150
    assert stats["retries"] > 0
    store.close()
    assert stored(url) == list(range(150))


@on_server
def test_the_record_of_a_long_run_is_written_over_a_connection_that_went_stale(
    opening: Any, proxied_server: tuple[Any, str], make_rows: Push
) -> None:
    """Servers close idle connections after seconds; a run may take hours between its first and last statement."""
    proxy, url = proxied_server
    store = opening(url)
    store.prepare()
    store.write_run(RunRecord(run_id="r"))
    for use in (
        lambda: store.write_block(encode_rows(make_rows(4))),
        store.read_runs,
        lambda: list(store.read_rows("r")),
    ):
        proxy.break_connections()
        use()
    proxy.break_connections()
    store.write_run(RunRecord(run_id="r", state=CLOSED))
    assert [record.state for record in store.read_runs()] == [CLOSED]
    assert len(list(store.read_rows("r"))) == 4


@on_server
def test_a_server_that_restarts_in_mid_run(opening: Any, tmp_path: Path, push_rows: Push) -> None:
    info = devserver.start(tmp_path / "server", tied=True)
    try:
        store = opening(info.url)
        store.prepare()
        ring = make_ring(store)
        push_rows(ring, 100)
        assert ring.flush(10.0)
        devserver.stop(info)
        push_rows(ring, 100, first=100)
        assert not ring.flush(0.5)
        balance(ring.stats())
        assert ring.last_error
        info = devserver.start(tmp_path / "server", tied=True, ports=(info.http_port, info.tcp_port))
        assert ring.close(30.0), ring.stats()
        balance(ring.stats())
        assert ring.stats()["written"] == 200
        store.close()
        assert stored(info.url) == list(range(200))
    finally:
        devserver.stop(info)


@on_server
def test_a_server_that_stays_down_fails_the_records_and_never_hangs(
    opening: Any, tmp_path: Path, push_rows: Push
) -> None:
    info = devserver.start(tmp_path / "server", tied=True)
    store = opening(info.url)
    store.prepare()
    devserver.stop(info)
    ring = make_ring(store, retry_seconds=0.2)
    push_rows(ring, 64)
    began = time.monotonic()
    assert not ring.close(3.0)
    assert time.monotonic() - began < 8.0
    stats = ring.stats()
    balance(stats)
    assert stats["pending"] == 0
    assert sum(stats["failed"].values()) == 64
    with pytest.raises(StoreError, match="cannot be reached: connection refused"):
        opening(info.url).read_runs()


SPOOLING = """
import ctypes, sys
from monitoring import _native as native
url, spool, count, die = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
from monitoring.rows import RunRecord
from monitoring.store.sinks import http_sink
from monitoring.store.schema import Tables
from monitoring.store.url import parse_store_url
parsed = parse_store_url(url)
sink = http_sink(parsed, Tables.of(parsed), version=(18, 16), timeout=2.0, settings={})
ring = native.Ring(sink, run_id="r", model_id="m", flush_seconds=0.02, retry_seconds=0.1, spool_dir=spool)
slot, request = ring.declare("q", 0, 0, "float32"), ring.request("q0")
source = ctypes.create_string_buffer(16)
for token in range(count):
    ring.push(slot, request, token, 0, token, token + 1, (1, 4), ctypes.addressof(source), 16)
import time
end = time.monotonic() + 20
while ring.stats()["spooled"] < count and time.monotonic() < end:
    time.sleep(0.01)
assert ring.stats()["spooled"] == count, ring.stats()
if die == "kill":
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)
ring.close(1.0)
stats = ring.stats()
assert stats["accepted"] == stats["written"] + sum(stats["dropped"].values()) + sum(stats["failed"].values()), stats
print(stats["failed"]["left_in_spool"])
"""


@on_server
@pytest.mark.parametrize("end", ["kill", "close"])
def test_the_spool_of_a_dead_process_is_replayed_by_the_next(
    opening: Any, tmp_path: Path, push_rows: Push, end: str
) -> None:
    info = devserver.start(tmp_path / "server", tied=True)
    try:
        store = opening(info.url)
        store.prepare()
        devserver.stop(info)
        spool = tmp_path / "spool"
        done = subprocess.run(
            [sys.executable, "-c", SPOOLING, info.url, str(spool), "80", end],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == (-signal.SIGKILL if end == "kill" else 0), done.stderr
        assert done.stdout.strip() == ("" if end == "kill" else "80")
        info = devserver.start(tmp_path / "server", tied=True, ports=(info.http_port, info.tcp_port))
        ring = native.Ring(store.sink(RunRecord(run_id="r2")), run_id="r2", model_id="m", spool_dir=str(spool))
        push_rows(ring, 10)
        assert ring.flush(20.0), ring.stats()
        limit = time.monotonic() + 20
        while ring.stats()["replayed"] < 80 and time.monotonic() < limit:
            time.sleep(0.02)
        assert ring.close(20.0), ring.stats()
        stats = ring.stats()
        balance(stats)
        assert (stats["written"], stats["replayed"]) == (10, 80)
        store.close()
        assert stored(info.url) == list(range(80))
    finally:
        devserver.stop(info)


def test_an_engine_that_is_killed_comes_back_and_nothing_is_lost(opening: Any, tmp_path: Path, push_rows: Push) -> None:
    url = str(tmp_path / "store")
    store = opening(url)
    store.prepare()
    ring = make_ring(store)
    push_rows(ring, 100)
    assert ring.flush(20.0)
    embedded._CHILDREN[-1][1].kill()
    push_rows(ring, 100, first=100)
    assert ring.close(60.0), ring.stats()
    balance(ring.stats())
    assert ring.stats()["written"] == 200
    assert ring.stats()["retries"] >= 1
    store.close()
    assert stored(url) == list(range(200))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 112 MiB of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=112m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("needs mount: only root may mount a small file system")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_full_disk_is_named_and_counted(opening: Any, small_disk: Path, make_rows: Push) -> None:
    """chDB's own streaming insert reports success on a full disk and stores nothing: ours must not."""
    store = opening(str(small_disk / "store"))
    store.prepare()
    store.write_block(encode_rows(make_rows(5, run="before")))
    ring = make_ring(store, retry_seconds=0.3, flush_bytes=1 << 20)
    slot, request = ring.declare("q", 0, 0, "uint8"), ring.request("a")
    size, count = 1 << 19, 160
    draw = random.Random(7)
    for token in range(count):
        source = ctypes.create_string_buffer(draw.randbytes(size), size)
        ring.push(slot, request, token, 0, token, token + 1, (1, size), ctypes.addressof(source), size)
    assert not ring.close(4.0)
    stats = ring.stats()
    balance(stats)
    assert stats["accepted"] == count
    assert sum(stats["failed"].values()) > 0
    assert "full" in ring.last_error
    with pytest.raises(StoreError, match="is full") as caught:
        store.write_block(encode_rows(make_rows(40, size=1 << 20, run="late")))
    assert "free space" in caught.value.hint
    # What was reported as written is there, byte for byte, and still is when the engine has started afresh.
    store.close()
    again = opening(str(small_disk / "store"))
    draw.seed(7)
    expected = [draw.randbytes(size) for _ in range(count)]
    rows = {row.seq: row.data for row in again.read_rows("r")}
    assert len(rows) == stats["written"]
    assert all(data == expected[seq] for seq, data in rows.items())
    assert len(list(again.read_rows("before"))) == 5


def test_a_read_only_disk_is_named(opening: Any, small_disk: Path) -> None:
    store = opening(small_disk / "store")
    store.prepare()
    store.close()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StoreError, match=r"[Rr]ead-only file system") as caught:
        opening(small_disk / "store").read_runs()
    assert "copy the folder" in caught.value.hint
    with pytest.raises(StoreError, match="read-only file system") as caught:
        opening(small_disk / "new").prepare()
    assert "copy the folder" not in caught.value.hint


def test_no_space_left_is_named(tmp_path: Path) -> None:
    text = "Code: 243. DB::Exception: Cannot reserve 1.00 MiB, not enough space. (NOT_ENOUGH_SPACE) (version 26.9)"
    error = folders.engine_error(text, folder=tmp_path)
    assert "disk of" in error.message
    assert "free space" in error.hint
    assert "disk is full" in folders.hint_of(errno.ENOSPC)


DYING = """
import ctypes, os, signal, sys
from monitoring import _native as native
from monitoring.rows import RunRecord
from monitoring.store import open_store
store = open_store(sys.argv[1])
store.prepare()
store.write_run(RunRecord(run_id="r", expected=(("q", 0), ("k", 0)), started_at=1))
ring = native.Ring(store.sink(RunRecord(run_id="r")), run_id="r", model_id="m", flush_seconds=60.0)
slots, request = [ring.declare(site, 0, 0, "float32") for site in ("q", "k")], ring.request("q0")
source = ctypes.create_string_buffer(32)
def step(token, slots):
    for slot in slots:
        ring.push(slot, request, token, 0, token, token + 1, (1, 2, 4), ctypes.addressof(source), 32)
for token in range(10):
    step(token, slots)
step(10, slots[:1])
assert ring.flush(30.0)
for token in range(11, 50):
    step(token, slots)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("kind", ["embedded", pytest.param("server", marks=needs_server)])
def test_a_run_whose_process_was_killed_is_named_incomplete(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = str(tmp_path / "store")
    if kind == "server":
        url = f"{request.getfixturevalue('old_server').url}?table=killed"
    done = subprocess.run([sys.executable, "-c", DYING, url], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    with pytest.raises(IncompleteRun) as caught:
        read(url)
    assert list(caught.value.missing) == [
        "shard 0 was not closed: its process still runs, or died before it could flush",
        "shard 0: k layer 0 lacks request q0 steps 10",
    ]
    internals = read(url, allow_incomplete=True)
    assert len(internals.rows) == 21
    if kind == "embedded":
        wait_for_engines_to_end(tmp_path / "store")


def wait_for_engines_to_end(folder: Path) -> None:
    """No process is left behind: the engine of a killed program ends by itself."""
    end = time.monotonic() + 20.0
    while engines_of(folder):
        assert time.monotonic() < end, engines_of(folder)
        time.sleep(0.05)


def engines_of(folder: Path) -> list[str]:
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if os.fsencode(folder) in words:
            found.append(place.name)
    return found


def test_two_processes_write_to_one_folder(opening: Any, tmp_path: Path, make_rows: Push) -> None:
    url = str(tmp_path / "store")
    script = (
        "import sys; from monitoring.store import open_store; s = open_store(sys.argv[1]); s.prepare();"
        "s.write_block(sys.stdin.buffer.read()); s.close()"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", script, url], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    for number, child in enumerate(children):
        assert child.stdin is not None
        child.stdin.write(encode_rows(make_rows(25, first=25 * number)))
        child.stdin.close()
    for child in children:
        assert child.stderr is not None
        assert child.wait(timeout=60) == 0, child.stderr.read().decode()
        child.stderr.close()
    assert stored(url) == list(range(100))
    wait_for_engines_to_end(tmp_path / "store")


def test_stores_come_and_go_quickly(opening: Any, tmp_path: Path, make_rows: Push) -> None:
    """A store opened while the last engine is ending starts the next one."""
    url = str(tmp_path / "store")
    for number in range(6):
        store = opening(url)
        store.prepare()
        store.write_block(encode_rows(make_rows(2, first=2 * number)))
        store.close()
    assert stored(url) == list(range(12))
    wait_for_engines_to_end(tmp_path / "store")


def test_a_fork_gets_a_connection_of_its_own(opening: Any, tmp_path: Path, make_rows: Push) -> None:
    store = opening(str(tmp_path / "store"))
    store.prepare()
    store.write_block(encode_rows(make_rows(5)))
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            count = len(list(store.read_rows("r")))
            os.write(writes, json.dumps(count).encode())
        finally:
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as answer:
        assert json.loads(answer.read()) == 5
    os.waitpid(child, 0)
    assert len(list(store.read_rows("r"))) == 5
    store.close()


def test_a_long_path_and_odd_characters(opening: Any, tmp_path: Path, make_rows: Push) -> None:
    folder = tmp_path / ("long" * 30) / "with space ? & é #"
    store = opening(str(folder))
    store.prepare()
    store.write_block(encode_rows(make_rows(3)))
    store.close()
    assert len(stored(str(folder))) == 3


def test_folders_that_are_no_store(opening: Any, tmp_path: Path) -> None:
    for use in ("prepare", "read_runs"):
        (tmp_path / "file").write_text("x")
        with pytest.raises(StoreError, match=r"is a file|not a directory"):
            getattr(opening(tmp_path / "file"), use)()
        (tmp_path / "full").mkdir(exist_ok=True)
        (tmp_path / "full" / "thesis.txt").write_text("precious")
        with pytest.raises(StoreError, match="is no store"):
            getattr(opening(tmp_path / "full"), use)()
    with pytest.raises(StoreError, match="no store at"):
        opening(tmp_path / "absent").read_runs()
    assert not (tmp_path / "absent").exists()
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("content", "what"), [("{", "damaged"), ("[]", "damaged"), ('{"kind": "x", "schema_version": 1}', "says 'x'"),
                          ('{"kind": "lockgate captures", "schema_version": 99}', "schema version 99")]
)  # fmt: skip
def test_a_damaged_marker_is_named(opening: Any, tmp_path: Path, content: str, what: str) -> None:
    (tmp_path / folders.MARKER).write_text(content)
    for use in ("prepare", "read_runs"):
        with pytest.raises(StoreError, match=what):
            getattr(opening(tmp_path), use)()


def test_a_folder_that_cannot_be_written(opening: Any, tmp_path: Path) -> None:
    store = opening(tmp_path / "store")
    store.prepare()
    store.close()
    (tmp_path / "store" / "engine.lock").unlink()
    (tmp_path / "store" / "engine.lock").mkdir()  # nobody, root included, opens a folder for writing
    with pytest.raises(StoreError, match="lock file cannot be written: Is a directory"):
        opening(tmp_path / "store").read_runs()
    assert "copy the folder" in folders.hint_of(errno.EROFS)


def test_without_chdb_the_extra_is_named(opening: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from monitoring.errors import MissingDependency

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependency) as caught:
        opening(tmp_path)
    assert 'pip install "lockgate[embedded]"' in caught.value.hint


def test_an_engine_that_cannot_start_says_why(opening: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "engine.py"
    script.write_text("import sys; sys.exit(3)")
    folders.create_store(tmp_path / "store")
    monkeypatch.setattr(embedded.engine, "__file__", str(script))
    with pytest.raises(StoreError, match="ended with code 3"):
        opening(tmp_path / "store").read_runs()


def test_credentials_appear_nowhere(opening: Any, proxied_server: tuple[Any, str], push_rows: Push) -> None:
    _, url = proxied_server
    secret = "s3cret-w0rd"
    bad = opening(url.replace("://", f"://nobody:{secret}@"))
    with pytest.raises(StoreError) as caught:
        bad.prepare()
    good = opening(url)
    good.prepare()
    ring = make_ring(good, retry_seconds=0.1)
    sink = bad._carrier.sink(bad.tables, into="", version=(18, 16))  # type: ignore[attr-defined]
    bad_ring = native.Ring(sink, run_id="r", model_id="m", retry_seconds=0.1, flush_seconds=0.01)
    push_rows(bad_ring, 4)
    bad_ring.close(3.0)
    ring.close(1.0)
    balance(bad_ring.stats())
    shown = (
        f"{caught.value}{caught.value!r}{bad!r}{bad.url}{bad_ring.last_error}{bad_ring.stats()}{sink.target}{sink!r}"
    )
    assert secret not in shown
    assert "user" in bad_ring.last_error.lower() or "192" in bad_ring.last_error


def test_a_closed_run_reads_complete(opening: Any, tmp_path: Path, push_rows: Push) -> None:
    url = str(tmp_path / "store")
    store = opening(url)
    store.prepare()
    ring = make_ring(store)
    push_rows(ring, 40)
    assert ring.close(20.0)
    stats = ring.stats()
    store.write_run(
        RunRecord(
            run_id="r", state=CLOSED, expected=(("resid_pre", 0), ("resid_pre", 1)), seq_end=stats["seq_end"],
            accepted=stats["accepted"], written=stats["written"],
        )
    )  # fmt: skip
    store.close()
    assert read(url).missing == ()
