"""Time of `lockgate audit`, beside the bare YAML parse of the same files: `python benchmarks/audit.py DIR...`.

Prints CPU seconds: reading (YAML, expressions), simulating and judging, and
as the peer the bare YAML events of the same text. Without arguments it
audits this repository's workflows and a synthetic folder of 60 files.
"""

from __future__ import annotations

import datetime as dt
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ruamel.yaml import YAML

from ci.trust.audit import run_audit
from ci.trust.payloads import Repo
from ci.trust.policy import Policy
from ci.trust.read import find_place, read_folder

T = TypeVar("T")
ROOT = Path(__file__).parents[1]
ROUNDS = 5
REPO = Repo(full_name="owner/name", default_branch="main")


def best(action: Callable[[], T]) -> tuple[float, T]:
    """Give the least CPU time of some rounds, in seconds, and the result."""
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        result = action()
        times.append(time.process_time() - start)
    return min(times), result


def measure(folder: Path) -> None:
    """Print one line about a folder."""
    place = find_place(folder)
    reading, found = best(lambda: read_folder(place))
    judging, result = best(lambda: run_audit(found, REPO, Policy(), today=dt.date(2026, 1, 1)))
    texts = [path.read_text(encoding="utf-8") for path in sorted((place.root / place.folder).glob("*.y*ml"))]
    parsing, _ = best(lambda: [list(YAML(typ="safe", pure=True).parse(text)) for text in texts])
    lines = sum(text.count("\n") for text in texts)
    total = reading + judging
    print(
        f"{folder.name[:32]:32} {len(texts):4} files {lines:6} lines {len(result.audit.cells):6} cells  "
        f"read {reading:5.2f} s  judge {judging:5.2f} s  total {total:5.2f} s = {total / parsing:4.1f} x parsing"
    )


def main() -> None:
    """Measure the folders that were named, or our own and a large synthetic one."""
    folders = [Path(word) for word in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as scratch:
        if not folders:
            text = (ROOT / ".github" / "workflows" / "gpu.yml").read_text(encoding="utf-8")
            for number in range(60):
                (Path(scratch) / f"{number}.yml").write_text(text, encoding="utf-8")
            folders = [ROOT, Path(scratch)]
        for folder in folders:
            measure(folder)


if __name__ == "__main__":
    main()
