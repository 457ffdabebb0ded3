"""`--coverage`: every Python process of a run measures itself, and a killed one loses at most its last seconds.

The supervisor hands the configuration to all processes through the environment;
coverage's own start-up file begins there. Ranks save on a timer besides, since
no signal handler runs in a process that a collective holds.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ci.errors import ConfigError

SAVE_EVERY = 3.0
"""Seconds between two saves; with the time of one save still under the five that a killed rank may lose."""
PATCHES = ("_exit", "execv", "fork", "subprocess")
VARIABLE = "COVERAGE_PROCESS_CONFIG"


def coverage_environment(root: Path, folder: Path) -> Mapping[str, str]:
    """Give the environment in which every Python process of a run measures itself.

    The repository's own coverage settings hold, but for what survival needs:
    one data file per process, saved on SIGTERM, `os._exit`, exec and fork.
    """
    import coverage
    from coverage import patch

    folder.mkdir(parents=True, exist_ok=True)
    found = [name for name in (".coveragerc", "setup.cfg", "tox.ini", "pyproject.toml") if (root / name).is_file()]
    try:
        measured = coverage.Coverage(config_file=str(root / found[0]) if found else False)
    except coverage.CoverageException as error:
        raise ConfigError(f"the coverage settings of {root} cannot be used: {error}") from error
    patches = [name for name in PATCHES if hasattr(patch, f"_patch_{name}")]  # older releases know fewer
    wanted: dict[str, Any] = {
        "run:parallel": True, "run:sigterm": True, "run:patch": patches,
        "run:data_file": str(folder / ".coverage"),
    }  # fmt: skip
    for name, value in wanted.items():
        measured.set_option(name, value)
    if not measured.get_option("run:source") and not measured.get_option("run:include"):
        measured.set_option("run:source", [str(root)])
    return {VARIABLE: measured.config.serialize()}


def combine_coverage(folder: Path) -> Path | None:
    """Combine the data of all processes into `<folder>/.coverage`; None when there is none. The parts stay."""
    import coverage

    parts = [str(path) for path in folder.glob(".coverage.*")]
    if not parts:
        return None
    whole = coverage.Coverage(data_file=str(folder / ".coverage"), config_file=False)
    whole.combine(parts, strict=False, keep=True)
    whole.save()
    return folder / ".coverage"


def save_on_a_timer() -> None:
    """Save this process's coverage every few seconds from a thread of its own, if it is measured at all."""
    module = sys.modules.get("coverage")
    current = module.Coverage.current() if module is not None else None
    if current is None:
        return

    def save() -> None:
        while not stop.wait(SAVE_EVERY):
            current.save()

    stop = threading.Event()
    threading.Thread(target=save, name="lockgate-coverage", daemon=True).start()
