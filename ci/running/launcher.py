"""Starts the processes of a set: forked from one server that has imported what all ranks need.

The server (multiprocessing's forkserver) imports torch once, touches no CUDA and
starts no thread, so a rank is there in milliseconds. Its children inherit the
locks of their devices, which the kernel frees when the last of them is gone.
"""

from __future__ import annotations

import contextlib
import importlib.util
import multiprocessing
import os
import signal
from collections.abc import Sequence
from multiprocessing import forkserver, reduction
from multiprocessing.process import BaseProcess
from typing import Any

from ci.running.rank import run_rank
from ci.running.spec import RankSpec

ALWAYS = ("pytest", "ci.running.rank")


class Inherited:
    """Descriptors that a forked process gets copies of; they stay open as long as it lives."""

    def __init__(self, descriptors: Sequence[int]) -> None:
        """Name descriptors of this process."""
        self.descriptors = tuple(descriptors)

    def __reduce__(self) -> tuple[Any, ...]:
        """Hand copies over while a process is being started."""
        return _rebuild, ([reduction.DupFd(number) for number in self.descriptors],)


def _rebuild(copies: Sequence[Any]) -> Inherited:
    return Inherited([copy.detach() for copy in copies])


class Launcher:
    """Forks ranks."""

    def __init__(self, preload: Sequence[str]) -> None:
        """Start the server and let it import; returns at once."""
        self._context = multiprocessing.get_context("forkserver")
        wanted = [name for name in preload if importlib.util.find_spec(name.partition(".")[0]) is not None]
        self._context.set_forkserver_preload([*ALWAYS, *wanted])
        forkserver.ensure_running()

    def start(self, spec: RankSpec, *, inherit: Sequence[int] = ()) -> BaseProcess:
        """Fork one rank."""
        child = self._context.Process(target=run_rank, args=(spec, Inherited(inherit)), name=f"{spec.set}-r{spec.rank}")
        child.start()
        return child


def kill_rank(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to a rank's whole group (it leads one) and, before it has one, to itself."""
    for target in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            target(pid, number)
