"""Which code ran in which context: `sys.monitoring` from Python 3.12 on, coverage's C tracer before.

Both notice every function that a context enters, also one that an earlier
context entered before. coverage's own sysmon core does not (it loses
contexts without a word), so it is refused by name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any, Protocol

MONITORING = "lockgate-monitoring"
CTRACE = "coverage-ctrace"

Code = list[Any]
"""A code object as [file, first line, name]."""

Executed = tuple[list[Code], dict[str, list[int]]]
"""A table of code objects, and what ran in each context as places in it."""


Lines = dict[str, dict[str, list[Any]]]
"""Context -> file -> lines, or arcs as pairs of lines."""


class RecorderError(Exception):
    """The code that runs cannot be recorded here; the text says why and what to do."""


class Recorder(Protocol):
    """What a core must do."""

    core: str

    def start(self) -> None:
        """Begin to notice code."""

    def handlers(self) -> dict[str, Callable[[tuple[Any, ...]], None]]:
        """Give what the recorder wants to hear of audit events."""

    def switch(self, label: str) -> None:
        """Count what runs from now on for another context."""

    def watch_calls(self, *, wanted: bool) -> None:
        """Notice calls as such, where lines cannot tell a one-line function's call from its definition."""

    def note(self, code: CodeType) -> None:
        """Count a code object as executed now."""

    def forget(self) -> None:
        """Drop what was noticed: a fork's child keeps only its own."""

    def problem(self) -> str:
        """Say why what was noticed since the last switch is not all that ran, or ""."""

    def executed(self) -> Executed:
        """Give what ran, by context, as far as the core knows code objects."""

    def lines(self) -> Lines:
        """Give the lines (or arcs) that ran, by context and file, where a core knows lines only."""

    def absorb(self, lines: Lines) -> None:
        """Add lines that a fork's child noticed."""

    def stop(self, path: str) -> None:
        """End, and leave data for the ordinary coverage report at `path`, where the core has any."""


def make_recorder(*, roots: tuple[str, ...], wanted: str = "", branch: bool = False) -> Recorder:
    """Choose the core of this interpreter; raises `RecorderError` for one that is not known to be good."""
    best = MONITORING if sys.version_info >= (3, 12) else CTRACE
    core = wanted or best
    if core == MONITORING and sys.version_info >= (3, 12):
        return MonitoringRecorder(roots)
    if core == CTRACE:
        return CoverageRecorder(roots, branch=branch)
    if core == MONITORING:
        raise RecorderError(f"the core {core} needs Python 3.12, this is {sys.version.split()[0]}; use {CTRACE}")
    lost = " (coverage's sysmon core silently loses contexts)" if "sysmon" in core else ""
    raise RecorderError(f"the core {core!r} is refused{lost}; known to be good: {MONITORING}, {CTRACE}")


class MonitoringRecorder:
    """A `sys.monitoring` tool: one callback per code object and context, then silence until the next.

    The callback disables itself for the place it fired at; `restart_events` at
    each switch arms all places again. Only code of the repository is armed, found
    when it is executed as a module or made into a function, so that the rest runs
    at full speed. A program that makes code objects itself (`code.replace`) is
    watched as a whole from then on.
    """

    core = MONITORING

    def __init__(self, roots: tuple[str, ...]) -> None:
        """Measure files below `roots` only."""
        self.roots = roots
        self.label = ""
        self.seen: dict[int, CodeType] = {}
        self.contexts: dict[str, dict[int, CodeType]] = {"": self.seen}
        self.tool = -1

    def start(self) -> None:
        """Claim a free tool number and begin."""
        monitoring = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        for number in (4, 3, 5, 0, 2, 1):
            if monitoring.get_tool(number) is None:
                self.tool = number
                break
        else:
            raise RecorderError("all tool numbers of sys.monitoring are taken; run without debuggers and profilers")
        monitoring.use_tool_id(self.tool, "lockgate")
        events = monitoring.events
        disable = monitoring.DISABLE

        roots = self.roots

        # Keyed by identity: hashing a code object compares its constants.
        def entered(code: CodeType, _offset: int) -> object:
            if code.co_filename.startswith(roots):
                self.seen[id(code)] = code
            return disable

        def thrown(code: CodeType, _offset: int, _error: BaseException) -> None:
            if code.co_filename.startswith(roots):
                self.seen[id(code)] = code

        monitoring.register_callback(self.tool, events.PY_START, entered)
        monitoring.register_callback(self.tool, events.PY_RESUME, entered)
        monitoring.register_callback(self.tool, events.PY_THROW, thrown)
        # Not an event of one code object: it can only be watched everywhere, and is rare.
        monitoring.set_events(self.tool, events.PY_THROW)
        self.events = events.PY_START | events.PY_RESUME | events.PY_THROW

    def handlers(self) -> dict[str, Callable[[tuple[Any, ...]], None]]:
        """Find code by the audit events of its execution and making."""
        monitoring = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        roots = self.roots

        def arm(code: CodeType) -> None:
            monitoring.set_local_events(self.tool, code, self.events & ~monitoring.events.PY_THROW)
            for constant in code.co_consts:
                if isinstance(constant, CodeType):
                    arm(constant)

        def executed(args: tuple[Any, ...]) -> None:
            code = args[0]
            if isinstance(code, CodeType) and code.co_filename.startswith(roots):
                arm(code)

        def made(args: tuple[Any, ...]) -> None:
            if len(args) > 1 and str(args[1]).startswith(roots):
                monitoring.set_events(self.tool, self.events)

        return {"exec": executed, "function.__new__": executed, "code.__new__": made}

    def switch(self, label: str) -> None:
        """Arm all places again, for another context."""
        self.label = label
        self.seen = self.contexts.setdefault(label, {})
        sys.monitoring.restart_events()  # type: ignore[attr-defined,unused-ignore]

    def watch_calls(self, *, wanted: bool) -> None:
        """Notice calls always."""

    def note(self, code: CodeType) -> None:
        """Count a code object as executed now."""
        self.seen[id(code)] = code

    def forget(self) -> None:
        """Start from nothing, in the same context."""
        self.contexts = {}
        self.switch(self.label)

    def problem(self) -> str:
        """Say when the tool was taken away, or the context saw nothing."""
        monitoring = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        if monitoring.get_tool(self.tool) != "lockgate":
            return "recorder-removed"
        return "" if self.seen else "nothing-recorded"

    def executed(self) -> Executed:
        """Give files below the roots alone."""
        return _number(self.contexts)

    def lines(self) -> Lines:
        """Know no lines."""
        return {}

    def absorb(self, lines: Lines) -> None:
        """Have nothing to add lines to."""

    def stop(self, path: str) -> None:  # noqa: ARG002 - other cores leave data there
        """Free the tool number; there is nothing for an ordinary coverage report."""
        monitoring = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        if self.tool >= 0 and monitoring.get_tool(self.tool) == "lockgate":
            monitoring.set_events(self.tool, 0)
            monitoring.free_tool_id(self.tool)


class CoverageRecorder:
    """coverage's C tracer with dynamic contexts; the same data make the ordinary coverage report."""

    core = CTRACE

    def __init__(self, roots: tuple[str, ...], *, branch: bool = False) -> None:
        """Measure files below `roots`; nothing of the user's coverage settings may narrow that."""
        try:
            import coverage
        except ImportError:
            raise RecorderError("coverage is not installed here; Python before 3.12 needs its C tracer") from None
        include = [os.path.join(root, "*") if root.endswith(os.sep) else root for root in roots]
        omit = ["*/site-packages/*", "*/dist-packages/*"]
        self.coverage = coverage.Coverage(data_file=None, config_file=False, branch=branch, include=include, omit=omit)
        self.coverage.set_option("run:core", "ctrace")
        self.coverage.set_option("run:disable_warnings", ["no-data-collected", "module-not-measured"])
        self.data_type = coverage.CoverageData
        self.roots = roots
        self.branch = branch
        self.label = ""
        self.function: Any = None
        self.calls: dict[str, dict[int, CodeType]] = {}
        self.watched = ""
        # The profiler written in C: a thousandth of the cost of one in Python.
        import cProfile

        self.profiler = cProfile.Profile(builtins=False, subcalls=False)

    def start(self) -> None:
        """Begin; raises `RecorderError` where coverage has no C tracer."""
        self.coverage.start()
        self.function = sys.gettrace()
        if type(self.function).__name__ != "CTracer":
            kind = type(self.function).__name__
            self.coverage.stop()
            raise RecorderError(
                f"coverage runs with its {kind} core, expected CTracer; install a binary coverage wheel"
            )

    def handlers(self) -> dict[str, Callable[[tuple[Any, ...]], None]]:
        """Need no audit events: the tracer sees every call."""
        return {}

    def switch(self, label: str) -> None:
        """Store what ran and go on for another context."""
        self.label = label
        self.coverage.switch_context(label)

    def watch_calls(self, *, wanted: bool) -> None:
        """Profile while a module executes: then every `def` line runs without a call."""
        if self.watched:
            self.profiler.disable()
            codes = self.calls.setdefault(self.watched, {})
            for entry in self.profiler.getstats():
                if isinstance(entry.code, CodeType) and entry.code.co_filename.startswith(self.roots):
                    codes[id(entry.code)] = entry.code
            self.profiler.clear()
            self.watched = ""
        if wanted and sys.getprofile() is None:
            self.watched = self.label
            self.profiler.enable()

    def note(self, code: CodeType) -> None:
        """Count a code object as executed now."""
        self.calls.setdefault(self.label, {})[id(code)] = code

    def forget(self) -> None:
        """Start from nothing: in a new process coverage opens a new, empty store by itself."""
        self.calls = {}
        self.coverage.switch_context(self.label)

    def problem(self) -> str:
        """Say when the trace function is not ours any more."""
        return "" if sys.gettrace() is self.function else "trace-function-changed"

    def executed(self) -> Executed:
        """Give the calls that were watched."""
        return _number(self.calls)

    def lines(self) -> Lines:
        """Give the lines of each context and file; for few contexts (a fork's child)."""
        data = self.coverage.get_data()
        found: Lines = {}
        for label in data.measured_contexts():
            data.set_query_context(label)
            files = {}
            for name in data.measured_files():
                noticed = (data.arcs if self.branch else data.lines)(name)
                if noticed:
                    files[name] = list(noticed)
            found[label] = files
        data.set_query_contexts(None)
        return found

    def absorb(self, lines: Lines) -> None:
        """Store a child's lines as if they had run here."""
        data = self.coverage.get_data()
        for label, files in lines.items():
            data.set_context(label)
            if self.branch:
                data.add_arcs({name: [tuple(arc) for arc in arcs] for name, arcs in files.items()})
            else:
                data.add_lines(files)
        data.set_context(self.label)

    def stop(self, path: str) -> None:
        """Write everything, with its contexts, as one coverage data file."""
        self.coverage.stop()
        data = self.coverage.get_data()
        target = self.data_type(basename=path)
        target.update(data)
        target.write()
        target.close()


def _number(contexts: dict[str, dict[int, CodeType]]) -> Executed:
    table: list[Code] = []
    places: dict[int, int] = {}
    found: dict[str, list[int]] = {}
    for label, codes in list(contexts.items()):
        ran = list(codes.items())
        for key, code in ran:
            if key not in places:
                places[key] = len(table)
                table.append([code.co_filename, code.co_firstlineno, code.co_name])
        found[label] = [places[key] for key, _ in ran]
    return table, found
