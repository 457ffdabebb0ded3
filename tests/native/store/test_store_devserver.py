"""A private server comes up, serves, and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ci.stages.guards import require_clickhouse
from monitoring import devserver
from monitoring.errors import StoreError
from monitoring.store import open_store

pytestmark = [pytest.mark.native_backend, pytest.mark.clickhouse, require_clickhouse(), pytest.mark.slow]


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped by whoever adopted it does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_a_lent_server_is_gone_with_its_files() -> None:
    with devserver.running_server() as info:
        store = open_store(info.url)
        store.prepare()
        store.close()
        assert info.folder.is_dir()
    assert not alive(info.pid)
    assert not info.folder.exists()


def test_two_servers_side_by_side() -> None:
    with devserver.running_server() as first, devserver.running_server() as second:
        assert first.http_port != second.http_port
        assert first.url != second.url


def test_up_twice_is_one_server_and_down_removes_it(tmp_path: Path) -> None:
    place = tmp_path / "server"
    try:
        first = devserver.up(place)
        assert devserver.up(place) == first
        assert devserver.read_info(place) == first
    finally:
        assert devserver.down(place)
    os.waitpid(first.pid, 0)  # it was this process's child; ended, it is still to be reaped
    assert not place.exists()
    assert not devserver.down(place)


def test_a_killed_server_is_started_afresh(tmp_path: Path) -> None:
    place = tmp_path / "server"
    first = devserver.up(place)
    os.kill(first.pid, signal.SIGKILL)
    end = time.monotonic() + 10
    while devserver.read_info(place) is not None and time.monotonic() < end:
        time.sleep(0.02)
    try:
        assert devserver.up(place).pid != first.pid
    finally:
        devserver.down(place)
        os.waitpid(first.pid, 0)


def test_a_server_ends_with_the_process_that_borrowed_it() -> None:
    script = (
        "import os, signal\nfrom monitoring import devserver\n"
        "with devserver.running_server() as info:\n"
        "    print(info.pid, info.folder, flush=True)\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    pid, folder = done.stdout.split()
    end = time.monotonic() + 20
    while alive(int(pid)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not alive(int(pid)), done.stderr
    shutil.rmtree(folder)


def test_a_program_that_is_no_server_shows_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "clickhouse-server"
    program.write_text("#!/bin/sh\necho cannot open shared object >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("LOCKGATE_CLICKHOUSE", str(program))
    with pytest.raises(StoreError, match="cannot open shared object"), devserver.running_server():
        pass


def test_the_modern_programs_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The single `clickhouse` binary needs `server` as its first word."""
    program = tmp_path / "clickhouse"
    program.write_text('#!/bin/sh\necho "words: $@" >&2\nexit 3\n')
    program.chmod(0o755)
    monkeypatch.setenv("LOCKGATE_CLICKHOUSE", str(program))
    with pytest.raises(StoreError, match=r"words: server --config-file=.*/config.xml"), devserver.running_server():
        pass
