"""faulthandler's stacks, without the frames that are the same in every test. Pure."""

from __future__ import annotations

import re

HARNESS = re.compile(
    r'^  File ".*[\\/]_pytest[\\/]python\.py", line \d+ in (pytest_pyfunc_call|runtest|setup|importtestmodule)$'
)
IDLE = re.compile(r'^  File ".*[\\/]ci[\\/]running[\\/]channel\.py", line \d+ in _fill$')
THREAD = re.compile(r"^(Current thread|Thread) 0x")


def trim_stacks(text: str) -> str:
    """Leave the frames of pytest and of this harness out of faulthandler's stacks: the test is above them."""
    kept: list[str] = []
    hides = False
    for line in text.splitlines(keepends=True):
        if THREAD.match(line) or not line.startswith("  File "):
            hides = False
        place = line.rstrip("\n")
        if not hides and (HARNESS.match(place) or IDLE.match(place)):
            kept.append("  (below: pytest)\n" if HARNESS.match(place) else "  (it has answered and waits)\n")
            hides = True
        if not hides:
            kept.append(line)
    return "".join(kept)
