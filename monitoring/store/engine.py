"""The embedded engine's own process: chDB on one folder, served over a Unix socket in that folder.

chDB allows one folder per process and one process per folder, does not survive
a fork and starts some thirty threads. In a process of its own none of that
reaches the program that captures: stores on several folders, several ranks on
one folder, and forks all work, and a program that is killed leaves an engine
that notices, finishes what it holds and ends.

Run as a script with the folder as its argument: standard library and chDB
only. It says on stdout, in one JSON line, whether it is up, and ends with its
last client.

A request is `<op:1><sql bytes:8><data bytes:8>` and those bytes; an answer
`<status:1><bytes:8>` and those bytes; numbers are little endian. Operations:
H greeting, Q statement (answer: its output), I insert of a Native block, B goodbye.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import signal
import socket
import struct
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

REQUEST = struct.Struct("<cQQ")
ANSWER = struct.Struct("<cQ")
OK, FAULT = b"+", b"-"
GREETING, STATEMENT, INSERT, GOODBYE = b"H", b"Q", b"I", b"B"

LAST = b"last"
"""Answer to the goodbye with which the engine ends."""

SOCKET = "engine.sock"
LOCK = "engine.lock"
DATA = "engine"

PLAIN = re.compile(r"[A-Za-z0-9_./-]+")

BUSY = 75
"""Exit code: another engine has the folder (the client connects to that one)."""

FAILED = 1

FIRST_CLIENT_LIMIT = 30.0
"""Seconds after which an engine that nobody came to ends."""


def receive(link: socket.socket, size: int) -> bytearray:
    """Read exactly `size` bytes; raises `ConnectionError` when the other side ends first."""
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = link.recv_into(view)
        if not count:
            raise ConnectionError("the other side ended")
        view = view[count:]
    return data


def call(
    link: socket.socket, operation: bytes, sql: bytes = b"", data: bytes | memoryview = b""
) -> tuple[bytes, bytearray]:
    """Send one request and wait for its answer: status and content."""
    nbytes = memoryview(data).nbytes
    link.sendall(REQUEST.pack(operation, len(sql), nbytes) + sql)
    if nbytes:
        link.sendall(data)
    status, size = ANSWER.unpack(receive(link, ANSWER.size))
    return status, receive(link, size)


@contextmanager
def block_file(data: bytearray) -> Iterator[str]:
    """Give the path of a file that holds `data`: in memory where the system can."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("block"), "wb") as stream:
            stream.write(data)
            stream.flush()
            yield f"/proc/self/fd/{stream.fileno()}"
    else:
        with tempfile.NamedTemporaryFile() as stream:
            stream.write(data)
            stream.flush()
            yield stream.name


class Engine:
    """Serves one chDB folder to clients, one thread and one session each, until the last has gone."""

    def __init__(self, open_session: Callable[[], Any], listener: socket.socket) -> None:
        """Take over the listening socket; `open_session` is cheap while another session is open."""
        self._open_session = open_session
        self._listener = listener
        self._clients = 0
        self._goodbyes: list[socket.socket] = []
        self._lock = threading.Lock()
        self._woken, self._wake = os.pipe()

    def serve(self) -> None:
        """Accept clients until none is left."""
        limit: float | None = FIRST_CLIENT_LIMIT
        while True:
            ready, _, _ = select.select([self._listener.fileno(), self._woken], [], [], limit)
            limit = None
            if self._listener.fileno() in ready:
                link, _ = self._listener.accept()
                with self._lock:
                    self._clients += 1
                threading.Thread(target=self._serve_one, args=(link,), daemon=True).start()
                continue
            if self._woken in ready:
                os.read(self._woken, 1)
            with self._lock:
                if self._clients == 0:
                    break
        # Who connected but was not accepted is turned away: its greeting fails, and it starts the next engine.
        self._listener.close()

    def finish(self) -> None:
        """Answer those who said goodbye, once the session is closed: then the folder is quiet."""
        for link in self._goodbyes:
            with suppress(OSError):
                link.sendall(ANSWER.pack(OK, len(LAST)) + LAST)
            link.close()

    def _serve_one(self, link: socket.socket) -> None:
        goodbye = False
        session = self._open_session()
        try:
            while not goodbye:
                operation, sql_size, data_size = REQUEST.unpack(receive(link, REQUEST.size))
                sql = receive(link, sql_size).decode("utf-8", "surrogateescape")
                data = receive(link, data_size)
                goodbye = operation == GOODBYE
                if goodbye:
                    break
                try:
                    status, content = OK, self._run(session, operation, sql, data)
                except Exception as error:  # noqa: BLE001 - whatever chDB raises is the client's answer
                    status, content = FAULT, str(error).encode("utf-8", "replace")
                link.sendall(ANSWER.pack(status, len(content)))
                link.sendall(content)
        except OSError:
            pass  # the client ended without a goodbye
        session.close()
        self._leave(link, goodbye=goodbye)

    def _run(self, session: Any, operation: bytes, sql: str, data: bytearray) -> bytes:
        if operation == GREETING:
            return b""
        if operation == STATEMENT:
            return bytes(session.query(sql, "Native").bytes())
        if operation != INSERT:
            raise ValueError(f"unknown operation {operation!r}")
        columns = sql[sql.index("(") + 1 : sql.index(")")]
        with block_file(data) as path:
            # Not `send_insert`: on a full disk it reports success and stores nothing (chDB 4.4).
            source = f" SELECT {columns} FROM file('{path}', 'Native')"  # noqa: S608 - our own column names
            session.query(sql + source, "Native")
        return b""

    def _leave(self, link: socket.socket, *, goodbye: bool) -> None:
        with self._lock:
            self._clients -= 1
            last = self._clients == 0
            if goodbye and last:
                self._goodbyes.append(link)
        if goodbye and not last:
            with suppress(OSError):
                link.sendall(ANSWER.pack(OK, 0))
        if not (goodbye and last):
            link.close()
        if last:
            os.write(self._wake, b"x")


def say(**values: object) -> None:
    """Tell the process that started us, once."""
    with suppress(OSError):
        sys.stdout.write(json.dumps(values) + "\n")
        sys.stdout.flush()
    # The reader waits for the end of the line alone; chDB must not write there later.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def plain_path(folder: Path) -> tuple[Path, Path | None]:
    """Give a path of plain characters to `folder`, and the temporary folder to remove after use, if one was made.

    chDB takes its path for a URL with parameters: a `?` or `#` in it would lead elsewhere.
    """
    if PLAIN.fullmatch(str(folder)):
        return folder, None
    made = Path(tempfile.mkdtemp(prefix="lockgate-engine-"))
    (made / "store").symlink_to(folder)
    return made / "store", made


def remove_link(made: Path | None) -> None:
    """Remove the temporary folder of `plain_path` with its link."""
    if made is not None:
        with suppress(OSError):
            (made / "store").unlink()
            made.rmdir()


def main(folder: Path) -> int:
    """Serve `folder` until the last client leaves."""
    for number in (signal.SIGINT, signal.SIGXFSZ, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    os.chdir(folder)
    os.umask(0o077)
    try:
        lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        say(error=f"its lock file cannot be written: {error.strerror}", code=error.errno)
        return FAILED
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return BUSY
    made = None
    try:
        from chdb.session import Session

        with suppress(FileNotFoundError):
            Path(SOCKET).unlink()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(SOCKET)
        folder = Path.cwd()
        place, made = plain_path(folder)
        os.chdir("/")  # chDB reads the working directory, too, as if it were a URL
        session = Session(str(place / DATA))
        listener.listen(64)
    except BaseException as error:  # noqa: BLE001 - reported to the process that waits for us
        remove_link(made)
        say(error=str(error).split("Stack trace")[0][:600], code=getattr(error, "errno", 0) or 0)
        return FAILED
    say(up=True)
    engine = Engine(lambda: Session(str(place / DATA)), listener)
    engine.serve()
    session.close()
    with suppress(OSError):
        (folder / SOCKET).unlink()
    remove_link(made)
    # Whoever waits for our goodbye may start the next engine at once.
    fcntl.flock(lock, fcntl.LOCK_UN)
    engine.finish()
    return 0


if __name__ == "__main__":
    # This folder's own modules must not stand in for libraries of the same name.
    sys.path.pop(0)
    code = main(Path(sys.argv[1]))
    # chDB's threads need not be waited for: the session is closed.
    os._exit(code)
