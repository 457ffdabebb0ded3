"""What a command is given of the world: clock, environment, folder, output."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ci.output import Output


@dataclass(frozen=True, kw_only=True)
class Context:
    """The surroundings of one command; tests pass their own.

    `root` is the repository (the folder of `pyproject.toml`), absolute; `cwd`
    is where the person stands and what relative paths on the command line
    mean; `clock` gives seconds since the epoch.
    """

    root: Path
    cwd: Path
    environ: Mapping[str, str]
    out: Output
    clock: Callable[[], float] = field(default=time.time)

    def path(self, text: str) -> Path:
        """Resolve a path from the command line against `cwd`."""
        return (self.cwd / text).resolve()


def find_root(start: Path) -> Path:
    """Find the nearest folder at or above `start` that holds `pyproject.toml` or `.git`.

    Falls back to `start`: a first look must work in a folder that has neither.
    """
    for folder in (start, *start.parents):
        if (folder / "pyproject.toml").is_file() or (folder / ".git").exists():
            return folder
    return start


def read_context(*, root: str | None = None) -> Context:
    """Take the context of this process; `root` overrides the search."""
    cwd = Path.cwd()
    base = (cwd / root).resolve() if root else find_root(cwd)
    return Context(root=base, cwd=cwd, environ=dict(os.environ), out=Output.for_process())
