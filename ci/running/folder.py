"""The report folder of a run: one run at a time, nothing stale in it."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ci.errors import InfrastructureError, ReportError

STALE = (
    "events-*.jsonl",
    "report.json",
    "junit.xml",
    "timeline.html",
    "job.json",
    "tests.txt",
    "stacks-*.txt",
    "rank-*.log",
)
LOCK = ".lock"


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Take the folder for one run and clear what an earlier run left.

    Raises `InfrastructureError` when another run holds it (two runs that write
    one report would make it lie), `ReportError` when it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("w", encoding="utf-8")
    except OSError as error:
        raise ReportError(f"the report folder {folder} cannot be written: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InfrastructureError(
                f"another run writes its report to {folder} now",
                hint="wait for it, or give this run a folder of its own with --report DIR",
            ) from None
        for pattern in STALE:
            for path in folder.glob(pattern):
                path.unlink()
        yield
