"""One rank: a process that becomes a pytest session without a voice and does what the controller says.

forked (or started by torchrun) -> session of its own, log, environment -> connect -> pytest ->
collect, send ids -> begin (process group) -> run a test, answer, ... -> end
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import json
import multiprocessing
import os
import signal
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from ci import process
from ci.report.document import decode
from ci.running.channel import connect
from ci.running.measure import save_on_a_timer
from ci.running.rank_plugin import RankPlugin
from ci.running.spec import RankSpec

CONNECT_LIMIT = 30.0
RAN = frozenset({0, 1, 5})
"""pytest's answers that are no trouble of their own: the controller has judged every test."""


def run_rank(spec: RankSpec, *_inherited: object) -> NoReturn:
    """Be a rank until the controller says end, or is gone; never returns."""
    process.die_with_parent()
    with suppress(PermissionError):  # torchrun's workers lead a session of their own already
        os.setsid()
    # What the server imported lives for ever: the collector need not walk it, nor unshare its pages, in every rank.
    gc.freeze()
    # multiprocessing makes its own way of starting the default of its children; tests expect the usual one.
    multiprocessing.set_start_method(None, force=True)
    redirect(Path(spec.log))
    os.environ.update(spec.environ)
    faulthandler.enable(file=sys.__stderr__ or 2, all_threads=True)
    faulthandler.register(signal.SIGUSR1, file=sys.__stderr__ or 2, all_threads=True, chain=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the controller's to answer
    save_on_a_timer()
    channel = connect(spec.address, limit=CONNECT_LIMIT)
    channel.send({"say": "hello", "set": spec.set, "rank": spec.rank, "token": spec.token, "pid": os.getpid()})
    code = int(pytest.main([*spec.arguments], plugins=[RankPlugin(spec, channel)]))
    channel.send({"say": "gone", "code": code})
    # A forked process leaves without its exit handlers; tests and coverage count on them.
    atexit._run_exitfuncs()  # noqa: SLF001 - there is no public name for it
    sys.exit(0 if code in RAN else code)


def redirect(log: Path) -> None:
    """Send both output streams, on every level, to the end of the log; stdin is empty."""
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    empty = os.open(os.devnull, os.O_RDONLY)
    for number, source in ((0, empty), (1, target), (2, target)):
        os.dup2(source, number)
    os.close(target)
    os.close(empty)
    # The streams of the process that was forked may be closed or captured ones.
    streams = {
        "stdin": open(0, encoding="utf-8", closefd=False),  # noqa: SIM115 - they stay open
        "stdout": open(1, "w", encoding="utf-8", errors="replace", buffering=1, closefd=False),  # noqa: SIM115
        "stderr": open(2, "w", encoding="utf-8", errors="replace", buffering=1, closefd=False),  # noqa: SIM115
    }
    for name, stream in streams.items():
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def main() -> NoReturn:
    """Be a rank that torchrun started: the spec of its set is in a file, its number comes from torchrun."""
    spec = decode(RankSpec, json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), place="rank")
    number = int(os.environ["RANK"])
    own = {key: os.environ[key] for key in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    temp = tempfile.mkdtemp(prefix="lockgate-rank-")
    arguments = (*spec.arguments, f"--basetemp={temp}")
    environ = {**spec.environ, **own, "LOCKGATE_RANK": str(number)}
    run_rank(replace(spec, rank=number, environ=environ, log=f"{spec.log}{number}.log", arguments=arguments))


if __name__ == "__main__":
    main()
