"""Which file imports which: wrappers on `__import__`, `import_module`, `find_spec` and `exec_module`.

A module that is already loaded leaves no trace but the call, so the calls are
what is recorded. An edge belongs to the function that holds the import
statement: who never runs the function does not have the edge.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any
from weakref import ref

from .state import State

FROZEN = "<frozen importlib._bootstrap>"
"""Frames of this file name are left out of tracebacks and of `stacklevel`, as the import system's own are."""


def install(state: State, *, rewriter: type | None = None) -> None:  # noqa: C901 - four wrappers, each a few lines
    """Wrap the import functions; `rewriter` is pytest's loader of test modules."""
    edges = _Edges(state)
    original = builtins.__import__

    def importer(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:  # noqa: A002
        try:
            module = original(name, globals, locals, fromlist, level)
        except ImportError:
            edges.failed(_absolute(name, globals, level))
            raise
        if state.active:
            absolute = _absolute(name, globals, level) if level else name
            edges.note(_caller(), module, (absolute, *fromlist) if fromlist else (absolute,))
        return module

    original_module = importlib.import_module

    def import_module(name: str, package: str | None = None) -> ModuleType:
        try:
            module = original_module(name, package)
        except ImportError:
            edges.failed(name.lstrip("."))
            raise
        if state.active:
            edges.note(_caller(), module, (module.__name__,))
        return module

    original_spec = importlib.util.find_spec

    def find_spec(name: str, package: str | None = None) -> Any:
        spec = original_spec(name, package)
        if spec is None:
            edges.failed(name)
        elif state.active and spec.origin and spec.origin.startswith(state.inside):
            state.current.probed.add(spec.origin)
        return spec

    builtins.__import__ = _hidden(importer)
    importlib.import_module = _hidden(import_module)
    importlib.util.find_spec = _hidden(find_spec)
    for loader in (importlib.machinery.SourceFileLoader, rewriter):
        if loader is not None:
            _wrap_loader(loader, state, edges)


class _Edges:
    """Notes who asked for which module; what an import statement reaches is looked up once."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.known: dict[tuple[str, ...], tuple[ref[ModuleType], list[str]]] = {}
        self.seen: dict[tuple[int, tuple[str, ...]], CodeType] = {}

    def note(self, frame: FrameType | None, module: Any, names: tuple[str, ...]) -> None:
        """Note one import; `names` are the module's and those taken from it."""
        known = self.known.get(names)
        if known is not None and known[0]() is module:
            targets = known[1]
        else:
            first = names[0]
            targets = _files([first, *(f"{first}.{item}" for item in names[1:])], self.state.inside)
            if type(module) is ModuleType:
                # Weakly: a program may count on a module going away.
                self.known[names] = (ref(module), targets)
        if not targets:
            return
        if frame is not None and frame.f_code.co_filename.startswith(self.state.inside):
            code = frame.f_code
            if (id(code), names) not in self.seen:
                # Kept alive, so that its identity stays its own.
                self.seen[id(code), names] = code
                self.state.edge((code.co_filename, code.co_firstlineno, code.co_name), targets)
            return
        importer = _importer(frame, self.state.inside)
        if importer is None:
            # Asked for by code outside the repository: the context wants it.
            self.state.current.imported.update(targets)
        else:
            self.state.edge(importer, targets)

    def executed(self, frame: FrameType | None, path: str) -> None:
        """Note who has a module executed: also one that loads it by its path, without any import."""
        importer = _importer(frame, self.state.inside)
        if importer is None:
            self.state.current.imported.add(path)
        elif importer[0] != path:
            self.state.edge(importer, [path])

    def failed(self, name: str) -> None:
        """Note where an import in vain would have been satisfied."""
        if self.state.active:
            self.state.current.probed.update(_candidates(name, self.state.inside))


def _caller() -> FrameType | None:
    """Give the frame that called our caller; the interpreter itself imports from no frame at all."""
    try:
        return sys._getframe(2)  # noqa: SLF001
    except ValueError:
        return None


def _wrap_loader(loader: Any, state: State, edges: _Edges) -> None:
    original = loader.exec_module
    rewriting = sys.modules[loader.__module__] if loader.__module__.startswith("_pytest") else None
    if rewriting is not None:
        # It compiles and then executes; only the second is the module's own doing.
        def execute(code: CodeType, namespace: dict[str, Any]) -> None:
            with state.module_code():
                exec(code, namespace)  # noqa: S102 - what the loader was about to do

        vars(rewriting)["exec"] = _hidden(execute)

    def exec_module(self: Any, module: ModuleType) -> None:
        origin = getattr(getattr(module, "__spec__", None), "origin", None) or ""
        if origin.startswith(state.inside) and state.active:
            edges.executed(_caller(), origin)
            with state.context(f"module:{origin}"), state.module_code() if rewriting is None else nullcontext():
                original(self, module)
        else:
            original(self, module)
            if module.__name__ in state.on_load:
                state.on_load.pop(module.__name__)(module)

    loader.exec_module = _hidden(exec_module)


def _hidden(function: Callable[..., Any]) -> Any:
    """Give a function's code the file name that tracebacks and warnings skip."""
    assert isinstance(function, FunctionType)
    function.__code__ = function.__code__.replace(co_filename=FROZEN)
    return function


def _absolute(name: str, globals_: Any, level: int) -> str:
    if not level:
        return name
    package = (globals_ or {}).get("__package__") or ""
    if not package:
        package = str((globals_ or {}).get("__name__", "")).rpartition(".")[0]
    base = package.split(".")
    base = base[: len(base) - level + 1]
    return ".".join([*base, name] if name else base)


def _files(names: list[str], inside: str) -> list[str]:
    """Give the loaded files of modules and of all packages above them, inside the repository."""
    found: list[str] = []
    for name in names:
        parts = name.split(".")
        for length in range(len(parts), 0, -1):
            module = sys.modules.get(".".join(parts[:length]))
            path = getattr(module, "__file__", None)
            if isinstance(path, str) and path.startswith(inside) and path not in found:
                found.append(path)
    return found


def _importer(frame: FrameType | None, inside: str) -> tuple[str, int, str] | None:
    """Find the code of the repository that asked, unless pytest did."""
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(inside):
            return (name, frame.f_code.co_firstlineno, frame.f_code.co_name)
        if f"{os.sep}_pytest{os.sep}" in name:
            return None
        frame = frame.f_back
    return None


def _candidates(name: str, inside: str) -> set[str]:
    """Name the files that would have answered an import in vain, below the repository."""
    found: set[str] = set()
    parts = name.split(".")
    for entry in sys.path:
        base = os.path.abspath(entry or ".")
        if (base + os.sep == inside or base.startswith(inside)) and os.path.isdir(base):
            for length in range(1, len(parts) + 1):
                stem = os.path.join(base, *parts[:length])
                found.update((f"{stem}.py", os.path.join(stem, "__init__.py")))
    return found
