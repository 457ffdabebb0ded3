"""Children: counted where they are started, recorded where they can be, missed by name where not.

A child interpreter finds `site/sitecustomize.py` on `PYTHONPATH` and the
context in its environment; a fork inherits everything. Every process counts
the interpreters that it starts, and every one that comes up writes a journal,
so a child that was killed, or started with `-S` or `-I`, leaves a difference.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from .journal import Journal
from .state import CONTEXT_VARIABLE, State

BLIND = frozenset({
    "uname", "ldconfig", "stty", "tty", "hostname", "true", "false", "sleep", "cat", "echo", "id", "lsb_release",
    "getconf", "nproc", "ps", "kill", "mkdir", "rm", "cp", "touch", "chmod", "nvidia-smi", "tput",
})  # fmt: skip
"""Programs that read nothing of the tree but what their arguments name, and start no interpreter."""

INERT = BLIND | {"git", "ls"}
"""Beside them, programs that read the folder they run in."""

HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.semaphore_tracker")
SERVER = ("multiprocessing.forkserver", "ci.running")
"""What the command line of this tool's own server of ranks holds; its ranks are sessions of their own."""

SITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")


def install(state: State, *, is_session: bool) -> None:
    """Count children from now on, and prepare their environment; a session's own test forks are not counted."""
    _listen(state)
    _wrap_exit(state)
    os.register_at_fork(after_in_child=lambda: _after_fork(state))
    if is_session:
        paths = [SITE, *(path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path)]
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
        os.environ["LOCKGATE_RECORD_ROOT"] = state.root
        os.environ[CONTEXT_VARIABLE] = state.label
    else:
        atexit.register(_finish, state, "exit")
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, lambda *_: _terminated(state))


def is_helper(words: Sequence[str]) -> bool:
    """Whether a command line starts an interpreter that runs nothing of the repository."""
    text = " ".join(words)
    return any(helper in text for helper in HELPERS) or all(part in text for part in SERVER)


def begin(state: State, *, parent: str) -> None:
    """Announce this process in a journal of its own."""
    state.journal.write(
        "start",
        {
            "parent": parent, "pid": os.getpid(), "label": state.label, "core": state.recorder.core,
            "role": "child", "argv": sys.orig_argv[:4],
        },
    )  # fmt: skip


def own_fork(state: State) -> int:
    """Fork a process that belongs to the session itself, neither counted nor announced."""
    was = state.active
    state.active = False
    try:
        return os.fork()
    finally:
        state.active = was


def _finish(state: State, how: str) -> None:
    if state.active:
        state.finish(how, {})


def _terminated(state: State) -> None:
    if state.closing:
        # It is leaving already, and must be let to write to the end.
        return
    _finish(state, "SIGTERM")
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


def _after_fork(state: State) -> None:
    if not state.active:
        return
    parent = state.journal.uid
    state.journal = Journal(state.folder)
    state.merge = True
    state.forget()
    begin(state, parent=parent)
    atexit.register(_finish, state, "exit")
    try:
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, lambda *_: _terminated(state))
    except ValueError:
        state.current.opaque.add("child-forked-in-thread")


def _wrap_exit(state: State) -> None:
    original = state.leave

    def leave(status: int) -> Any:
        _finish(state, "_exit")
        original(status)

    os._exit = leave


def _listen(state: State) -> None:
    def started(program: Any, arguments: Any, cwd: Any, environ: Any) -> None:
        words = (
            [os.fsdecode(word) for word in arguments]
            if not isinstance(arguments, str | bytes)
            else [os.fsdecode(arguments)]
        )
        if is_helper(words):
            return
        path = (environ or os.environ).get("PATH", os.defpath) if not _is_bytes(environ) else os.environ.get("PATH", "")
        _classify(state, os.fsdecode(program or words[0]), words, os.fsdecode(cwd or "."), path)

    def popen(args: tuple[Any, ...]) -> None:
        started(*args)

    def spawned(args: tuple[Any, ...]) -> None:
        # subprocess uses it where it can, after an event of its own.
        if not sys._getframe(2).f_code.co_filename.endswith(f"{os.sep}subprocess.py"):  # noqa: SLF001
            started(args[0], args[1], ".", args[2])

    def fork(_args: tuple[Any, ...]) -> None:
        state.current.spawned += 1

    def execute(args: tuple[Any, ...]) -> None:
        started(args[0], args[1], ".", args[2])
        if state.merge:
            _finish(state, "exec")

    def shell(args: tuple[Any, ...]) -> None:
        command = os.fsdecode(args[0]) if args and isinstance(args[0], str | bytes) else ""
        places = [place for word in command.split() for place in _places(word, os.getcwd())]
        state.current.opened.update(
            place for place in places if place.startswith(state.inside) and os.path.isfile(place)
        )
        state.current.opaque.add("child-shell")

    state.handlers |= {
        "subprocess.Popen": popen,
        "os.posix_spawn": spawned,
        "os.fork": fork,
        "os.forkpty": fork,
        "os.exec": execute,
        "os.system": shell,
        "pty.spawn": shell,
    }
    _wrap_spawn(started, state)


def _wrap_spawn(started: Any, state: State) -> None:
    """Count what multiprocessing starts: its `spawn` and `forkserver` emit no audit event."""

    def wrap(util: Any) -> None:
        original = util.spawnv_passfds

        def spawnv_passfds(path: Any, args: Any, passfds: Any) -> Any:
            if state.active:
                started(path, args, ".", None)
            return original(path, args, passfds)

        util.spawnv_passfds = spawnv_passfds

    if "multiprocessing.util" in sys.modules:
        wrap(sys.modules["multiprocessing.util"])
    else:
        state.on_load["multiprocessing.util"] = wrap


def _is_bytes(environ: Any) -> bool:
    return bool(environ) and isinstance(next(iter(environ)), bytes)


def _classify(state: State, program: str, words: Sequence[str], cwd: str, path: str) -> None:
    folder = os.path.realpath(cwd)
    named = [place for word in words for place in _places(word, folder)]
    inside = [place for place in named if place.startswith(state.inside)]
    # A script that a shell runs, a file that `cat` prints.
    state.current.opened.update(place for place in inside if os.path.isfile(place))
    found = _which(program, path)
    if found is None:
        return
    name = os.path.basename(os.path.realpath(found))
    interpreter = [os.path.basename(word) for word in _shebang(found)]
    if _is_python(name) or _is_python(os.path.basename(found)) or any(map(_is_python, interpreter)):
        state.current.spawned += 1
        return
    outside = folder != state.root and not folder.startswith(state.inside)
    stays_out = (outside or name in BLIND) and not any(os.path.isdir(place) for place in inside)
    arguments = [place for word in words[1:] for place in _places(word, folder)]
    stays_out = stays_out and not any(
        place == state.root or state.root.startswith(place + os.sep) for place in arguments
    )
    if name not in INERT or not stays_out:
        state.current.opaque.add(f"child-not-python: {name}")


def _places(word: str, folder: str) -> list[str]:
    """Give the paths that one argument may name: the word itself, or what follows `=` in an option."""
    text = word.partition("=")[2] if word.startswith("-") else word
    if not text or len(text) > 4096 or any(ord(letter) < 32 for letter in text):
        return []
    place = os.path.realpath(os.path.join(folder, text))
    return [place] if os.path.lexists(place) else []


def _is_python(name: str) -> bool:
    return name.rstrip("0123456789.") in ("python", "pypy")


def _which(program: str, path: str) -> str | None:
    folders = path.split(os.pathsep) if os.sep not in program else [""]
    for folder in folders:
        place = os.path.join(folder, program)
        if os.path.isfile(place) and os.access(place, os.X_OK):
            return place
    return None


def _shebang(path: str) -> list[str]:
    try:
        with open(path, "rb") as stream:
            line = stream.readline(256)
    except OSError:
        return []
    return os.fsdecode(line[2:]).split() if line.startswith(b"#!") else []
