"""A folder (`chdb://`): the embedded ClickHouse, with no server to install.

folder/monitoring-store.json   says that the folder is a store
folder/engine/                 chDB's own files
folder/engine.sock, .lock      the running engine's (see `monitoring.store.engine`)
"""

from __future__ import annotations

import importlib.util
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from monitoring.errors import MissingDependency, StoreError
from monitoring.store import engine
from monitoring.store.folder import check_store, create_store, describe, engine_error
from monitoring.store.schema import Tables, Version
from monitoring.store.sinks import callback_sink
from monitoring.store.sql import SqlStore
from monitoring.store.url import StoreUrl

START_LIMIT = 60.0
"""Seconds for an engine to come up: a cold import of chDB reads half a gigabyte."""

FREE_BYTES = 64 << 20
"""Disk space that inserts leave free: a merge that runs out of it damages its rows without a word (chDB 4.4)."""

END_LIMIT = 5.0
"""Seconds to wait for an engine's process once it has let go of the folder."""

ANSWER_LIMIT = 600.0
"""Seconds for one statement or insert; an engine that takes longer counts as lost."""

SUN_PATH = 100
"""Bytes of path that a socket's address holds on every system, with room to spare."""


def open_url(url: StoreUrl) -> EmbeddedStore:
    """Open an embedded store; the engine starts at the first use."""
    if importlib.util.find_spec("chdb") is None:
        raise MissingDependency(
            f"the store {url} is an embedded ClickHouse, which needs chdb",
            hint='pip install "lockgate[embedded]" (or chdb), or use a server: clickhouse://host/database',
        )
    return EmbeddedStore(url)


class EmbeddedStore(SqlStore):
    """The SQL store on a folder."""

    def __init__(self, url: StoreUrl) -> None:
        """Touch nothing yet."""
        self.folder = Path(url.location).absolute()
        carrier = EngineCarrier(self.folder)
        tables = replace(Tables.of(url), free_bytes=FREE_BYTES)
        super().__init__(url=str(url), carrier=carrier, tables=tables, own_database=False)

    def prepare(self) -> None:
        """Make the folder a store unless it is one; refuses a folder with other content."""
        if not self._prepared:
            create_store(self.folder)
        super().prepare()


class EngineCarrier:
    """A connection to the folder's engine, which is started when there is none."""

    def __init__(self, folder: Path) -> None:
        """Connect at first use."""
        self._folder = folder
        self._link: socket.socket | None = None
        self._pid = 0
        self._sinks: list[EngineCarrier] = []

    def execute(self, sql: str, *, readonly: bool = False) -> bytes:  # noqa: ARG002 - the caller lets only reads through
        """Run one statement."""
        return bytes(self._call(engine.STATEMENT, sql))

    def insert(self, into: str, block: bytes | memoryview) -> None:
        """Insert one block."""
        self._call(engine.INSERT, into, block)

    def sink(self, tables: Tables, *, into: str, version: Version) -> object:  # noqa: ARG002 - the contract's
        """Make a sink with a connection of its own, so that reading does not hold the drain up."""
        carrier = EngineCarrier(self._folder)
        self._sinks.append(carrier)
        return callback_sink(lambda block: carrier.insert(into, block), name=f"chdb://{self._folder}")

    def close(self) -> None:
        """Leave the engine; the last to leave waits until it has let go of the folder."""
        for carrier in self._sinks:
            carrier.close()
        self._sinks.clear()
        link = self._drop()
        if link is None:
            return
        with link, suppress(OSError):
            _, word = engine.call(link, engine.GOODBYE)
            if word == engine.LAST:
                _reap(self._folder)

    def _call(self, operation: bytes, sql: str, data: bytes | memoryview = b"") -> bytearray:
        link = self._connected()
        try:
            status, content = engine.call(link, operation, sql.encode("utf-8", "surrogateescape"), data)
        except TimeoutError:
            self._drop_broken()
            raise StoreError(f"the engine of {self._folder} gave no answer within {ANSWER_LIMIT:g} s") from None
        except OSError:
            self._drop_broken()
            raise StoreError(
                f"the engine of {self._folder} ended in the middle of a statement (killed, or out of memory?)",
                hint="the next use starts it again",
            ) from None
        if status != engine.OK:
            raise engine_error(content.decode("utf-8", "replace"), folder=self._folder)
        return content

    def _connected(self) -> socket.socket:
        if self._link is not None and self._pid == os.getpid():
            return self._link
        self._drop_broken()  # after a fork the connection is the parent's
        check_store(self._folder)
        self._link, self._pid = connect(self._folder), os.getpid()
        return self._link

    def _drop(self) -> socket.socket | None:
        link, self._link = self._link, None
        if link is not None and self._pid != os.getpid():
            link.close()
            return None
        return link

    def _drop_broken(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()


def connect(folder: Path) -> socket.socket:
    """Connect to the folder's engine, starting it when there is none."""
    end = time.monotonic() + START_LIMIT
    pause = 0.005
    while True:
        link = _try_connect(folder)
        if link is not None:
            return link
        if time.monotonic() > end:
            raise StoreError(f"the engine of {folder} did not come up within {START_LIMIT:g} s", hint=BUSY_HINT)
        if not _start(folder, limit=end - time.monotonic()):
            time.sleep(pause)  # another engine has the folder: it comes up, or ends
            pause = min(2 * pause, 0.2)


BUSY_HINT = "is another program using the folder with chDB itself, or is it on a network file system?"


def _try_connect(folder: Path) -> socket.socket | None:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.settimeout(ANSWER_LIMIT)
    try:
        with _socket_address(folder) as address:
            link.connect(address)
        engine.call(link, engine.GREETING)
    except OSError as error:
        link.close()
        if isinstance(error, FileNotFoundError | ConnectionError):
            return None  # no engine, a dead one's socket, or one that is just ending
        raise StoreError(f"the engine of {folder} cannot be reached: {describe(error)}") from None
    return link


@contextmanager
def _socket_address(folder: Path) -> Iterator[str]:
    """Give the socket's address; a path too long for one goes by way of a folder descriptor (Linux)."""
    path = folder / engine.SOCKET
    if len(os.fsencode(path)) <= SUN_PATH:
        yield str(path)
        return
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{handle}/{engine.SOCKET}"
    finally:
        os.close(handle)


def _start(folder: Path, *, limit: float) -> bool:
    """Start an engine and wait for its word; False when another one has the folder."""
    try:
        child = subprocess.Popen(
            [sys.executable, str(Path(engine.__file__)), str(folder)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise StoreError(f"the engine of {folder} cannot be started: {describe(error)}") from None
    _CHILDREN.append((folder, child))
    _reap()
    assert child.stdout is not None
    with child.stdout as words:
        ready, _, _ = select.select([words], [], [], limit)
        line = words.readline() if ready else b""
    if not line:
        code = child.wait() if ready else None
        if code == engine.BUSY:
            return False
        child.kill()
        child.wait()
        what = f"it ended with code {code}" if ready else f"no word within {limit:.0f} s"
        raise StoreError(f"the engine of {folder} did not come up: {what}", hint=BUSY_HINT)
    said = json.loads(line)
    if "error" in said:
        child.wait()
        raise engine_error(said["error"], folder=folder, number=said.get("code", 0))
    return True


_CHILDREN: list[tuple[Path, subprocess.Popen[bytes]]] = []
"""Engines that this process started, by folder, kept until they have ended: nobody else can reap them."""


def _reap(ending: Path | None = None) -> None:
    """Forget the engines that have ended; wait a moment for that of `ending`, which said that it ends."""
    for folder, child in list(_CHILDREN):
        if folder == ending:
            with suppress(subprocess.TimeoutExpired):
                child.wait(timeout=END_LIMIT)
        if child.poll() is not None and (folder, child) in _CHILDREN:
            _CHILDREN.remove((folder, child))
