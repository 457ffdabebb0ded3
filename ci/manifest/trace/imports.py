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
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from .state import State

FROZEN = "<frozen importlib._bootstrap>"
"""Frames of this file name are left out of tracebacks and of `stacklevel`, as the import system's own are."""


def install(state: State, *, rewriter: type | None = None) -> None:
    """Wrap the import functions; `rewriter` is pytest's loader of test modules."""
    original = builtins.__import__
    seen: dict[tuple[Any, ...], tuple[CodeType, list[str]]] = {}

    def note(frame: FrameType | None, names: list[str], key: tuple[Any, ...]) -> None:
        if not state.active:
            return
        targets = _files(names, state.inside)
        if targets:
            importer = _importer(frame, state.inside)
            if importer is None:
                # Asked for by code outside the repository: the context wants it.
                state.current.imported.update(targets)
                return
            state.edge(importer, targets)
        if frame is not None:
            seen[key] = (frame.f_code, targets)

    def failed(name: str) -> None:
        if state.active:
            state.current.probed.update(_candidates(name, state.inside))

    def importer(
        name: str,
        globals: Any = None,
        locals: Any = None,
        fromlist: Any = (),
        level: int = 0,  # noqa: A002
    ) -> Any:
        try:
            module = original(name, globals, locals, fromlist, level)
        except ImportError:
            failed(_absolute(name, globals, level))
            raise
        frame = _caller()
        key = (id(frame.f_code) if frame else 0, name, tuple(fromlist or ()), level)
        if key not in seen:
            absolute = _absolute(name, globals, level)
            note(frame, [absolute, *(f"{absolute}.{item}" for item in fromlist or ())], key)
        return module

    original_module = importlib.import_module

    def import_module(name: str, package: str | None = None) -> ModuleType:
        try:
            module = original_module(name, package)
        except ImportError:
            failed(name.lstrip("."))
            raise
        frame = _caller()
        key = (id(frame.f_code) if frame else 0, name, package)
        if key not in seen:
            note(frame, [module.__name__, name], key)
        return module

    original_spec = importlib.util.find_spec

    def find_spec(name: str, package: str | None = None) -> Any:
        spec = original_spec(name, package)
        if spec is None:
            failed(name)
        elif state.active and spec.origin and spec.origin.startswith(state.inside):
            state.current.probed.add(spec.origin)
        return spec

    builtins.__import__ = _hidden(importer)
    importlib.import_module = _hidden(import_module)
    importlib.util.find_spec = _hidden(find_spec)
    for loader in (importlib.machinery.SourceFileLoader, rewriter):
        if loader is not None:
            _wrap_loader(loader, state)


def _caller() -> FrameType | None:
    """Give the frame that called our caller; the interpreter itself imports from no frame at all."""
    try:
        return sys._getframe(2)  # noqa: SLF001
    except ValueError:
        return None


def _wrap_loader(loader: Any, state: State) -> None:
    original = loader.exec_module

    def exec_module(self: Any, module: ModuleType) -> None:
        origin = getattr(getattr(module, "__spec__", None), "origin", None) or ""
        if origin.startswith(state.inside) and state.active:
            with state.context(f"module:{origin}"):
                original(self, module)
        else:
            original(self, module)
            if module.__name__ in state.on_load:
                state.on_load.pop(module.__name__)(module)

    loader.exec_module = _hidden(exec_module)


def _hidden(function: Callable[..., Any]) -> Any:
    """Give a function's code the file name that tracebacks and warnings skip."""
    assert isinstance(function, FunctionType)  # noqa: S101 - for the type checker
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
    """Find the code of the repository that asked, unless the import system or pytest did."""
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
        if base + os.sep == inside or base.startswith(inside):
            for length in range(1, len(parts) + 1):
                stem = os.path.join(base, *parts[:length])
                found.update((f"{stem}.py", os.path.join(stem, "__init__.py")))
    return found
