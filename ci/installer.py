"""Give uv the settings that pip has: uv reads none of pip's configuration.

pip config list -> `parse_pip_config` -> `uv_environment` -> variables for uv
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

from ci.errors import ProcessError
from ci.process import run

UV_NAMES = {"find-links": "UV_FIND_LINKS", "constraint": "UV_CONSTRAINT"}
"""pip's option -> uv's variable; both take several values, separated as their tool wants."""


def parse_pip_config(text: str) -> dict[str, str]:
    """Read the lines of `pip config list`: `global.find-links='DIR'`.

    A later line of the same option wins, as in pip itself (file, then
    `:env:`); lines that are no assignment are passed over.
    """
    values: dict[str, str] = {}
    environment: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, raw = line.partition("=")
        if not equals:
            continue
        section, _, option = name.strip().rpartition(".")
        try:
            value = str(ast.literal_eval(raw.strip()))
        except (SyntaxError, ValueError):
            value = raw.strip()
        (environment if section == ":env:" else values)[option] = value
    return {**values, **environment}


def uv_environment(config: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Compute the variables to add for uv; what the person has set already stays.

    uv separates find-links by commas and constraint files by spaces; pip
    separates both by white space.
    """
    added = {}
    for option, name in UV_NAMES.items():
        words = config.get(option, "").split()
        if words and name not in environ:
            added[name] = ("," if name == "UV_FIND_LINKS" else " ").join(words)
    return added


def read_uv_environment(*, python: str, cwd: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Ask this Python's pip for its settings; a Python without pip has none to give."""
    try:
        listed = run([python, "-m", "pip", "config", "list"], cwd=cwd, environ=environ, limit=60, capture=True)
    except ProcessError:
        return uv_environment({}, environ)
    return uv_environment(parse_pip_config(listed.stdout), environ)
