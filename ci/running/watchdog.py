"""Outlives the tool: when it is killed, ends every process of its run and writes the report.

Started by the supervisor with a pipe on stdin. A word on the pipe means that
the supervisor ended by itself; the end of the file without it means that it
died. `python -m ci.running.watchdog MARK FOLDER`
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from ci.report.write import build_report, write_report
from ci.running.tree import sweep

SWEEP_LIMIT = 5.0
DONE = b"done\n"


def main(arguments: list[str]) -> int:
    """Wait for the supervisor; gives 0 when there was nothing to do or nothing is left."""
    mark, folder = arguments
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if sys.stdin.buffer.read() == DONE:
        return 0
    left = sweep(mark, limit=SWEEP_LIMIT)
    write_report(Path(folder), build_report(Path(folder)))
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
