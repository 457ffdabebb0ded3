"""Recording of a child interpreter: everything counts for the context that started it."""

from __future__ import annotations

import os
import sys

from . import children, files, imports
from .recorder import make_recorder
from .state import CONTEXT_VARIABLE, State

ACTIVE: list[State] = []
"""The recording of this process, if it is a child."""


def start() -> None:
    """Begin as the environment says; what cannot begin leaves no closing entry, so its test is opaque."""
    environ = os.environ
    folder, root = environ["LOCKGATE_RECORD_DIR"], environ["LOCKGATE_RECORD_ROOT"]
    if not os.path.isdir(folder) or children.is_helper(sys.orig_argv):
        return
    recorder = make_recorder(roots=(root + os.sep,), wanted=environ.get("LOCKGATE_RECORD_CORE", ""))
    state = State(root=root, folder=folder, recorder=recorder, label=environ.get(CONTEXT_VARIABLE, ""))
    state.merge = True
    children.begin(state, parent="")
    recorder.start()
    imports.install(state)
    files.install(state)
    children.install(state, is_session=False)
    state.listen()
    recorder.switch(state.label)
    recorder.watch_calls(wanted=state.label.startswith("module:"))
    state.active = True
    ACTIVE.append(state)


def hand_over() -> None:
    """End the recording of a child that turns out to be a session itself: a rank, forked from a server."""
    for name in (__name__, "_lockgate_trace.child"):
        for state in getattr(sys.modules.get(name), "ACTIVE", ()):
            if state.active:
                state.finish("handed-over", {})
