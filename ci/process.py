"""The only place that starts programs: print, run, limit, kill the whole group."""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

from ci.errors import ProcessError

KILL_GRACE = 3.0
"""Seconds between asking a group to end (SIGTERM) and ending it (SIGKILL)."""

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, kw_only=True)
class Finished:
    """What a program left: its exit code (negative: the signal) and its output if captured."""

    arguments: tuple[str, ...]
    returncode: int
    stdout: str = ""
    stderr: str = ""


def run(  # noqa: PLR0913 - the words of subprocess, each named where it is used
    arguments: Sequence[str],
    *,
    cwd: Path,
    environ: Mapping[str, str],
    limit: float,
    capture: bool = False,
    check: bool = True,
    hint: str = "",
    announce: Callable[[str], None] | None = None,
) -> Finished:
    """Run a program in a process group of its own and wait for it.

    `limit` is in seconds; past it the whole group is ended, so that no child
    lives on. `announce` is told the command line first. Raises `ProcessError`
    when the program is missing, runs past the limit, or (with `check`) ends
    with another code than 0; `hint` then says what to do.
    """
    words = [os.fspath(word) for word in arguments]
    if announce is not None:
        announce(shlex.join(words))
    pipe = subprocess.PIPE if capture else None
    child = start(words, cwd=cwd, environ=environ, stdout=pipe, stderr=pipe, hint=hint)
    try:
        stdout, stderr = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        end_group(child)
        raise ProcessError(f"{shlex.join(words)} ran past its limit of {limit:g} s", hint=hint) from None
    except BaseException:
        end_group(child)
        raise
    if check and child.returncode != 0:
        tail = "\n".join((stderr or stdout or "").strip().splitlines()[-20:])
        detail = f":\n{tail}" if tail else ""
        raise ProcessError(f"{shlex.join(words)} ended with {describe_exit(child.returncode)}{detail}", hint=hint)
    return Finished(arguments=tuple(words), returncode=child.returncode, stdout=stdout or "", stderr=stderr or "")


def start(  # noqa: PLR0913 - the words of subprocess, each named where it is used
    arguments: Sequence[str],
    *,
    cwd: Path,
    environ: Mapping[str, str],
    stdin: int | IO[Any] = subprocess.DEVNULL,
    stdout: int | IO[Any] | None = None,
    stderr: int | IO[Any] | None = None,
    pass_fds: Sequence[int] = (),
    outlives_parent: bool = False,
    hint: str = "",
) -> subprocess.Popen[str]:
    """Start a program in a session of its own and return at once.

    Unless `outlives_parent`, the kernel kills it when this process dies, even
    by SIGKILL. Raises `ProcessError` when it is missing or cannot be started.
    """
    words = [os.fspath(word) for word in arguments]
    load_prctl()  # before the fork: the child may only call what is already loaded
    try:
        return subprocess.Popen(
            words, cwd=cwd, env=dict(environ), stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=tuple(pass_fds),
            start_new_session=True, text=True, encoding="utf-8", errors="replace",
            preexec_fn=None if outlives_parent else die_with_parent,  # noqa: PLW1509 - calls what is already loaded
        )  # fmt: skip
    except FileNotFoundError:
        if not Path(cwd).is_dir():
            raise ProcessError(f"{words[0]} cannot be started: there is no folder {cwd}", hint=hint) from None
        raise ProcessError(f"{words[0]} was not found on PATH", hint=hint or f"install {words[0]}") from None
    except OSError as error:
        raise ProcessError(f"{words[0]} cannot be started: {error.strerror}", hint=hint) from error


def end_group(child: subprocess.Popen[str], *, grace: float = KILL_GRACE) -> None:
    """End a child's whole process group: SIGTERM, `grace` seconds, SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
        except ProcessLookupError:
            break
        try:
            child.wait(timeout=grace)
        except subprocess.TimeoutExpired:
            continue
    child.wait()
    for stream in (child.stdout, child.stderr):
        if stream is not None:
            stream.close()


def describe_exit(code: int) -> str:
    """Say an exit code in words: `exit code 3`, `SIGSEGV`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


@cache
def load_prctl() -> Callable[..., int] | None:
    """Load Linux's `prctl`; other systems have none and go without."""
    if not sys.platform.startswith("linux"):
        return None
    function: Callable[..., int] = ctypes.CDLL(None, use_errno=True).prctl
    return function


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Ask the kernel to send this process `number` when its parent dies (Linux; elsewhere nothing)."""
    prctl = load_prctl()
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def adopt_orphans(*, enable: bool = True) -> None:
    """Become (or stop being) the parent of every orphan among this process's descendants (Linux)."""
    prctl = load_prctl()
    if prctl is not None:
        prctl(PR_SET_CHILD_SUBREAPER, int(enable), 0, 0, 0)
