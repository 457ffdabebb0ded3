"""The rules, one file per kind of path; each takes a Change and a View and gives Effects.

`configuration` -> policy, pytest's settings, environment, workflows, links, submodules
`python`        -> conftest, packages, test files, modules by block, new modules
`native`        -> sources, headers and build files of native libraries
`data`          -> everything else: read, listed, probed, inert, unknown

`effects_of` asks them in this order; the first that knows a path decides.
"""

from __future__ import annotations

from collections.abc import Callable

from ci.impact.changes import Change
from ci.impact.facts import Effect, View
from ci.impact.rules import configuration, data, native, python

Rule = Callable[[Change, View], "list[Effect] | None"]

RULES: tuple[Rule, ...] = (configuration.judge, python.judge, native.judge, data.judge)


def effects_of(change: Change, view: View) -> list[Effect]:
    """Say what one change leads to; never empty, so that every path has its explanation."""
    for rule in RULES:
        found = rule(change, view)
        if found:
            return found
    raise AssertionError(f"no rule knows {change.path}")  # data.judge knows every path
