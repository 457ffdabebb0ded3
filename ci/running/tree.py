"""Find and end every process of a run, also those that left its process group.

A `setsid` child and a double fork leave the group; both keep the environment
that they were started with, and there each run has a mark of its own.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
PAUSE = 0.02


def run_mark(run_id: str) -> str:
    """Name the environment variable that marks the processes of a run.

    The id is part of the name, so that a run inside a run carries both marks.
    """
    return f"LOCKGATE_RUN_{run_id}"


def find_marked(mark: str) -> set[int]:
    """Find the processes whose starting environment holds the variable `mark`."""
    needle = f"{mark}=".encode()
    found = set()
    for folder in PROC.glob("[0-9]*"):
        try:
            entries = (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # it ended, or belongs to somebody else
            continue
        if any(entry.startswith(needle) for entry in entries):
            found.add(int(folder.name))
    return found


def find_descendants(root: int) -> set[int]:
    """Find the living children, grandchildren and so on of a process."""
    children: dict[int, list[int]] = {}
    for folder in PROC.glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        state, parent = text.rpartition(")")[2].split()[:2]
        if state != "Z":
            children.setdefault(int(parent), []).append(int(folder.name))
    found: set[int] = set()
    todo = [root]
    while todo:
        new = [pid for pid in children.get(todo.pop(), []) if pid not in found]
        found.update(new)
        todo += new
    return found


def kill_all(pids: Collection[int], number: int = signal.SIGKILL) -> None:
    """Send a signal to each; one that has ended meanwhile is fine."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def sweep(mark: str, *, limit: float, keep: Collection[int] = (), of: int | None = None) -> set[int]:
    """Kill what carries the mark (and the descendants of `of`) until nothing is left.

    `limit` is in seconds; gives the processes that are left then. `keep` and
    this process are spared. Repeats, since a process may fork while it is read.
    """
    spared = {os.getpid(), *keep}
    end = time.monotonic() + limit
    while True:
        left = find_marked(mark) - spared
        if of is not None:
            left |= find_descendants(of) - spared
        if not left:
            return left
        kill_all(left)
        reap(left)
        if time.monotonic() > end:
            return left
        time.sleep(PAUSE)


def reap(pids: Collection[int]) -> None:
    """Collect the exit codes of adopted children, so that no zombie stays."""
    for pid in pids:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
