"""The only place that starts programs: print, run, limit, kill the whole group."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ci.errors import ProcessError

KILL_GRACE = 3.0
"""Seconds between asking a group to end (SIGTERM) and ending it (SIGKILL)."""


@dataclass(frozen=True, kw_only=True)
class Finished:
    """What a program left: its exit code (negative: the signal) and its output if captured."""

    arguments: tuple[str, ...]
    returncode: int
    stdout: str = ""
    stderr: str = ""


def run(
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
    try:
        child = subprocess.Popen(
            words, cwd=cwd, env=dict(environ), stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe,
            start_new_session=True, text=True, encoding="utf-8", errors="replace",
        )
    except FileNotFoundError:
        raise ProcessError(f"{words[0]} was not found on PATH", hint=hint or f"install {words[0]}") from None
    except OSError as error:
        raise ProcessError(f"{words[0]} cannot be started: {error.strerror}", hint=hint) from error
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


def end_group(child: subprocess.Popen[str]) -> None:
    """End a child's whole process group: SIGTERM, a short grace, SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
        except ProcessLookupError:
            break
        try:
            child.wait(timeout=KILL_GRACE)
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
