"""What one process knows about its contexts: which one is current, and what each was seen to use."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .journal import Journal
from .recorder import Recorder

CONTEXT_VARIABLE = "LOCKGATE_RECORD_CONTEXT"
"""Carries the current context to children."""

SETS = ("opened", "written", "listed", "probed", "loaded", "imported")
"""What is noted of a context, each a set of absolute paths."""


class Notes:
    """What one context used, beside the code that it ran."""

    __slots__ = (*SETS, "spawned", "opaque")

    def __init__(self) -> None:
        """Know nothing yet."""
        self.opened: set[str] = set()
        self.written: set[str] = set()
        self.listed: set[str] = set()
        self.probed: set[str] = set()
        self.loaded: set[str] = set()
        self.imported: set[str] = set()
        self.spawned = 0
        self.opaque: set[str] = set()

    def dump(self) -> dict[str, Any]:
        """Give what is not empty, ready for JSON."""
        found: dict[str, Any] = {name: sorted(getattr(self, name)) for name in (*SETS, "opaque") if getattr(self, name)}
        if self.spawned:
            found["spawned"] = self.spawned
        return found

    def load(self, value: dict[str, Any]) -> None:
        """Add what a fork's child noted."""
        for name in (*SETS, "opaque"):
            getattr(self, name).update(value.get(name, ()))
        self.spawned += value.get("spawned", 0)


class State:
    """The one recording of a process.

    A label names a context: `test:<id>`, `fixture:<base>::<name>`,
    `module:<path>`, `collect:<id>`; "" is what belongs to no context.
    """

    def __init__(self, *, root: str, folder: str, recorder: Recorder, label: str = "") -> None:
        """Hold what belongs together; `root` is the repository, resolved."""
        self.root = root
        self.inside = root + os.sep
        self.folder = folder
        self.recorder = recorder
        self.journal = Journal(folder)
        self.active = False
        self.merge = False
        self.closing = False
        self.stack: list[str] = [label]
        self.notes: dict[str, Notes] = {label: Notes()}
        self.current: Notes = self.notes[label]
        self.edges: dict[tuple[str, int, str], set[str]] = {}
        self.handlers: dict[str, Callable[[tuple[Any, ...]], None]] = {}
        self.on_load: dict[str, Callable[[Any], None]] = {}
        self.leave = os._exit
        self.running: set[str] = set()

    @property
    def label(self) -> str:
        """The current context."""
        return self.stack[-1]

    def listen(self) -> None:
        """Add the one audit hook, which cannot be taken away: while not active it does nothing."""
        handlers = self.handlers
        handlers |= self.recorder.handlers()

        def hook(event: str, args: tuple[Any, ...]) -> None:
            handler = handlers.get(event)
            if handler is not None and self.active:
                handler(args)

        sys.addaudithook(hook)

    def _enter(self, label: str) -> None:
        self.current = self.notes.setdefault(label, Notes())
        os.environ[CONTEXT_VARIABLE] = label
        self.recorder.switch(label)
        self.recorder.watch_calls(wanted=label in self.running)

    @contextmanager
    def context(self, label: str) -> Iterator[None]:
        """Count everything inside for a context; with `merge` all counts for the outermost."""
        if self.merge or not self.active:
            yield
            return
        self.stack.append(label)
        self._enter(label)
        try:
            yield
        finally:
            self.stack.pop()
            self._enter(self.stack[-1])

    @contextmanager
    def module_code(self) -> Iterator[None]:
        """Watch calls while the code of a module runs in its own context."""
        label = self.label
        if self.merge or not self.active or not label.startswith("module:"):
            yield
            return
        self.running.add(label)
        self.recorder.watch_calls(wanted=True)
        try:
            yield
        finally:
            self.running.discard(label)
            self.recorder.watch_calls(wanted=False)

    def forget(self) -> None:
        """Start from nothing in the current context: what a fork's child does first."""
        self.recorder.forget()
        self.notes = {self.label: Notes()}
        self.current = self.notes[self.label]
        self.edges = {}

    def edge(self, importer: tuple[str, int, str], targets: list[str]) -> None:
        """Note that a block of a file of the repository imports other files of it."""
        self.edges.setdefault(importer, set()).update(targets)

    def dump(self) -> dict[str, Any]:
        """Give everything noted by this process, lines excepted, ready for JSON."""
        codes, executed = self.recorder.executed()
        labels = {*self.notes, *executed}
        contexts = {}
        for label in labels:
            notes = self.notes[label].dump() if label in self.notes else {}
            if executed.get(label):
                notes["ran"] = executed[label]
            if notes:
                contexts[label] = notes
        edges = [[*importer, sorted(targets)] for importer, targets in self.edges.items()]
        return {"codes": codes, "contexts": contexts, "edges": edges}

    def absorb(self, value: dict[str, Any]) -> None:
        """Keep what a fork's child noted: its edges here, its contexts in the journal at once."""
        for path, line, name, targets in value.pop("edges"):
            self.edge((path, line, name), targets)
        self.recorder.absorb(value.pop("lines"))
        self._write_contexts(value)

    def _write_contexts(self, found: dict[str, Any]) -> None:
        if found["codes"]:
            self.journal.write("codes", found["codes"])
        for label, notes in found["contexts"].items():
            self.journal.write("context", {"label": label, **notes})

    def finish(self, kind: str, extra: dict[str, Any]) -> None:
        """Write everything and the closing entry; nothing is noted any more."""
        self.active = False
        self.closing = True
        found = self.dump()
        self._write_contexts(found)
        self.journal.write("edges", found["edges"])
        self.recorder.stop(os.path.join(self.folder, f"coverage-{self.journal.uid}.data"))
        self.journal.write("end", {"how": kind, **extra})
        self.closing = False
