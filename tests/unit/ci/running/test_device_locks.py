"""A device stays locked as long as any process that inherited its lock lives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ci.errors import InfrastructureError
from ci.running.locks import FOLDER_VARIABLE, HELD_VARIABLE, hold_free, name_held, read_held, try_lock

pytestmark = pytest.mark.cpu


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Lock in a folder of this test's own."""
    return {FOLDER_VARIABLE: str(tmp_path / "locks")}


def until(holds: Callable[[], bool], limit: float = 5.0) -> bool:
    """Wait until something holds."""
    end = time.monotonic() + limit
    while not holds() and time.monotonic() < end:
        time.sleep(0.01)
    return holds()


def test_a_held_device_is_refused_and_names_its_holder(environ: dict[str, str]) -> None:
    with try_lock(["GPU-a"], environ=environ) as held:
        assert held.uuids == ("GPU-a",)
        assert try_lock(["GPU-a"], environ=environ) is None
        (holder,) = read_held(["GPU-a", "GPU-b"], environ=environ).values()
        assert f"(pid {os.getpid()})" in holder
    assert read_held(["GPU-a"], environ=environ) == {}


def test_all_devices_are_locked_or_none(environ: dict[str, str]) -> None:
    with try_lock(["GPU-b"], environ=environ):
        assert try_lock(["GPU-a", "GPU-b", "GPU-c"], environ=environ) is None
        assert set(read_held(["GPU-a", "GPU-b", "GPU-c"], environ=environ)) == {"GPU-b"}
    with try_lock(["GPU-a", "GPU-b"], environ=environ) as both:
        assert len(both.descriptors) == 2


def test_a_rank_that_outlives_the_tool_keeps_the_device(environ: dict[str, str]) -> None:
    """An ordinary lock file is free once its holder is killed, while the child is still on the GPU."""
    code = (
        "import os, subprocess, sys, time\n"
        "from ci.running.locks import try_lock\n"
        "held = try_lock(['GPU-a'], environ=os.environ)\n"
        "rank = subprocess.Popen(['sleep', '60'], pass_fds=held.descriptors)\n"
        "print(rank.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    tool = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, **environ}, stdout=subprocess.PIPE, text=True
    )
    assert tool.stdout is not None
    rank = int(tool.stdout.readline())
    try:
        tool.kill()
        tool.wait()
        assert try_lock(["GPU-a"], environ=environ) is None
        (holder,) = read_held(["GPU-a"], environ=environ).values()
        assert "the ranks of a run that is gone" in holder
    finally:
        os.kill(rank, signal.SIGKILL)
        tool.stdout.close()
    assert until(lambda: read_held(["GPU-a"], environ=environ) == {})
    again = try_lock(["GPU-a"], environ=environ)
    assert again is not None
    again.release()


def test_a_child_that_inherits_nothing_keeps_nothing(environ: dict[str, str]) -> None:
    held = try_lock(["GPU-a"], environ=environ)
    assert held is not None
    child = subprocess.Popen(["sleep", "60"])
    try:
        held.release()
        assert read_held(["GPU-a"], environ=environ) == {}
    finally:
        child.kill()
        child.wait()


def test_a_run_within_a_run_does_not_wait_for_the_one_around_it(environ: dict[str, str]) -> None:
    with try_lock(["GPU-a"], environ=environ) as held:
        inner = environ | {HELD_VARIABLE: name_held(environ, held.uuids)}
        assert inner[HELD_VARIABLE] == "GPU-a"
        assert read_held(["GPU-a"], environ=inner) == {}
        with try_lock(["GPU-a", "GPU-b"], environ=inner) as within:
            assert within.uuids == ("GPU-b",)
            assert name_held(inner, within.uuids) == "GPU-a,GPU-b"


def test_a_folder_that_cannot_be_made_is_an_infrastructure_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InfrastructureError, match="cannot be opened") as caught:
        try_lock(["GPU-a"], environ={FOLDER_VARIABLE: str(tmp_path / "file")})
    assert FOLDER_VARIABLE in caught.value.hint


def test_a_link_in_the_shared_folder_is_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    folder.mkdir()
    (folder / "GPU-a.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(InfrastructureError):
        try_lock(["GPU-a"], environ={FOLDER_VARIABLE: str(folder)})
    assert not (tmp_path / "victim").exists()


def test_a_uuid_cannot_name_a_file_elsewhere(environ: dict[str, str], tmp_path: Path) -> None:
    with try_lock(["../../evil", "MIG-GPU-a/7/0"], environ=environ) as held:
        assert len(held.uuids) == 2
    assert sorted(path.parent.name for path in tmp_path.rglob("*.lock")) == ["locks", "locks"]


def test_the_folder_is_for_every_user(environ: dict[str, str]) -> None:
    with try_lock(["GPU-a"], environ=environ):
        folder = Path(environ[FOLDER_VARIABLE])
        assert folder.stat().st_mode & 0o7777 == 0o1777
        assert (folder / "GPU-a.lock").stat().st_mode & 0o444 == 0o444


def test_a_look_at_the_devices_keeps_others_off_and_names_those_that_others_hold(environ: dict[str, str]) -> None:
    with try_lock(["GPU-b"], environ=environ), hold_free(["GPU-a", "GPU-b"], environ=environ) as holders:
        assert set(holders) == {"GPU-b"}
        assert f"(pid {os.getpid()})" in holders["GPU-b"]
        assert try_lock(["GPU-a"], environ=environ) is None
    assert read_held(["GPU-a", "GPU-b"], environ=environ) == {}
