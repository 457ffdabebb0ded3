"""Files opened, folders listed, paths looked for, libraries loaded: an audit hook and wrapped `stat`.

Opening emits an audit event, asking for existence does not, so `os.stat`,
`os.lstat` and `os.access` are wrapped. What the import system and pytest's own
machinery read is no dependency of a test: imports are recorded as imports.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from threading import get_ident
from types import FrameType, FunctionType
from typing import Any

from .state import State

PARTS = (
    "assertion", "config", "_code", "nodes.py", "main.py", "python.py", "warnings.py", "pathlib.py", "cacheprovider.py",
    "reports.py", "terminal.py", "skipping.py",
)  # fmt: skip
MACHINERY = (
    *(f"{os.sep}_pytest{os.sep}{name}" for name in PARTS),
    f"{os.sep}coverage{os.sep}",
    # Hypothesis collects the constants of all local modules to draw likelier inputs; what is drawn at random is no
    # dependency, and counting it as one would tie every test to every file.
    f"{os.sep}hypothesis{os.sep}internal{os.sep}constants_ast",
)
"""Code that reads files to collect, rewrite, measure and report tests, not on a test's behalf."""

STANDARD = os.path.dirname(os.__file__) + os.sep
TOOL = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
HANDED_OUT = ("get_data", "get_source", "path_stats")
PYTEST = f"{os.sep}_pytest{os.sep}"
PLUGGY = f"{os.sep}pluggy{os.sep}"
IGNORED_FOLDERS = tuple(
    f"{os.sep}{name}{os.sep}"
    for name in ("__pycache__", ".pytest_cache", ".lockgate", "site-packages", "dist-packages")
)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def install(state: State) -> None:
    """Handle the audit events of files and wrap the three functions; all obey `state.active`."""
    files = _Files(state)
    events: dict[str, Callable[[tuple[Any, ...]], None]] = {
        "open": files.opened,
        "os.listdir": files.listed,
        "os.scandir": files.listed,
        "ctypes.dlopen": files.loaded,
        "import": files.extension,
        "sqlite3.connect": files.database,
    }
    for event, handler in events.items():
        state.handlers[event] = partial(files.guarded, handler)
    state.handlers["object.__getattr__"] = files.code_read
    for name in ("stat", "lstat", "access"):
        _wrap(name, partial(files.guarded, files.asked), state)


class _Files:
    """What the handlers share: the functions as they were, and which threads are in a handler already."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.lstat = os.lstat
        self.resolve = _Folders()
        self.ignored = (*IGNORED_FOLDERS, state.folder + os.sep)
        self.busy: set[int] = set()

    def guarded(self, handler: Callable[[Any], None], argument: Any) -> None:
        """Call a handler, but not from within one: resolving a path asks for files itself."""
        thread = get_ident()
        if thread not in self.busy:
            self.busy.add(thread)
            try:
                handler(argument)
            finally:
                self.busy.discard(thread)

    def place(self, path: Any) -> str | None:
        """Give the absolute path if it lies in the repository, links resolved on the way there."""
        try:
            text = os.fsdecode(path)
        except TypeError:
            return None
        if not text or "\0" in text:
            return None
        text = os.path.normpath(text if text.startswith("/") else os.path.join(os.getcwd(), text))
        root, inside = self.state.root, self.state.inside
        if text != root and not text.startswith(inside):
            text = self.resolve(text)
            if text != root and not text.startswith(inside):
                return None
        return None if any(folder in text for folder in self.ignored) else text

    def exists(self, path: str) -> bool:
        """Ask without being noticed."""
        try:
            self.lstat(path)
        except (OSError, ValueError):
            return False
        return True

    def opened(self, args: tuple[Any, ...]) -> None:
        """Note a file that is read, written or looked for in vain."""
        path, mode, flags = args
        text = None if isinstance(path, int) else self.place(path)
        if text is None or _is_machinery():
            return
        current = self.state.current
        writes = bool(flags & WRITING) if isinstance(flags, int) else bool(set(str(mode)) & set("wax+"))
        if not self.exists(text):
            (current.written if writes else current.probed).add(text)
        elif writes and isinstance(flags, int) and flags & os.O_TRUNC:
            current.written.add(text)
        elif text not in current.written:
            current.opened.add(text)
            if writes:
                current.written.add(text)

    def database(self, args: tuple[Any, ...]) -> None:
        """Note a database: SQLite opens it out of sight."""
        try:
            name = os.fsdecode(args[0])
        except TypeError:
            return
        name = name.partition("?")[0].removeprefix("file:")
        if name and not name.startswith(":"):
            self.opened((name, "r", 0))

    def listed(self, args: tuple[Any, ...]) -> None:
        """Note a folder whose entries are read."""
        path = "." if not args or args[0] is None else args[0]
        text = None if isinstance(path, int) else self.place(path)
        if text is not None and not _is_machinery():
            self.state.current.listed.add(text)

    def loaded(self, args: tuple[Any, ...]) -> None:
        """Note a native library."""
        text = self.place(args[0]) if isinstance(args[0], str | bytes) else None
        if text is not None:
            self.state.current.loaded.add(text)

    def extension(self, args: tuple[Any, ...]) -> None:
        """Note an extension module: for those alone the event names a file."""
        if len(args) > 1 and args[1]:
            self.loaded((args[1],))

    def code_read(self, args: tuple[Any, ...]) -> None:
        """Count a function whose bytecode is taken as executed: a compiler depends on its body without running it."""
        if args[1] != "__code__":
            return
        asker = sys._getframe(2).f_code.co_filename  # noqa: SLF001 - past this and the hook
        if _is_transparent(asker) or PYTEST in asker or type(args[0]) is not FunctionType:
            return
        self.state.active = False
        code = args[0].__code__
        self.state.active = True
        if code.co_filename.startswith(self.state.inside):
            self.state.recorder.note(code)

    def asked(self, path: Any) -> None:
        """Note a path whose existence is asked for."""
        text = None if isinstance(path, int) else self.place(path)
        if text is None or _is_machinery():
            return
        # Before it hands out lines that it read earlier, `linecache` only asks whether the file is still the same.
        (self.state.current.opened if _is_linecache() else self.state.current.probed).add(text)


def _wrap(name: str, asked: Callable[[Any], None], state: State) -> None:
    original: Callable[..., Any] = getattr(os, name)

    def wrapper(path: Any, *args: Any, **options: Any) -> Any:
        if state.active and options.get("dir_fd") is None:
            asked(path)
        return original(path, *args, **options)

    wrapper.__name__ = wrapper.__qualname__ = name
    wrapper.__doc__ = original.__doc__
    # `shutil` and others ask whether a function of `os` takes descriptors by looking for it in these sets.
    for group in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
        if original in group:
            group.add(wrapper)
    setattr(os, name, wrapper)
    if sys.version_info < (3, 11):
        # Python 3.10's pathlib has bound the function into a class of its own.
        import pathlib

        accessor: Any = getattr(pathlib, "_NormalAccessor", None)
        if accessor is not None and hasattr(accessor, name):
            setattr(accessor, name, staticmethod(wrapper))


class _Folders:
    """Resolves links in the folder part of paths outside the repository, remembering folders."""

    def __init__(self) -> None:
        """Know the folders that cannot lead into the repository."""
        self.known: dict[str, str] = {}
        self.outside = tuple({sys.prefix + os.sep, sys.base_prefix + os.sep, "/proc/", "/dev/", "/sys/"})

    def __call__(self, path: str) -> str:
        """Give the resolved path."""
        if path.startswith(self.outside):
            return path
        folder, name = os.path.split(path)
        real = self.known.get(folder)
        if real is None:
            real = os.path.realpath(folder)
            if len(self.known) < 10_000:
                self.known[folder] = real
        text = os.path.join(real, name)
        try:
            return os.path.realpath(text) if os.path.islink(text) else text
        except OSError:
            return text


def _is_linecache() -> bool:
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None and frame.f_code.co_filename.startswith(TOOL):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.endswith(f"{os.sep}linecache.py")


def _is_machinery() -> bool:
    """Whether no test asked: the first frame that says so is the import system's or pytest's own machinery."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith("<frozen importlib"):
            # Loaders hand out data and source text as well; only inside an import are they the import system's.
            if frame.f_code.co_name not in HANDED_OUT:
                return True
        elif not _is_transparent(name):
            return any(part in name for part in MACHINERY)
        frame = frame.f_back
    return False


def _is_transparent(name: str) -> bool:
    """Whether code acts for whoever called it: the standard library, the hook caller, and this tool itself."""
    if name.startswith(("<frozen ", TOOL)) or PLUGGY in name:
        return True
    return name.startswith(STANDARD) and "-packages" not in name
