"""The engines that the store contract runs against: memory, embedded, an old server, the modern engine over HTTP."""

from __future__ import annotations

import base64
import contextlib
import ctypes
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from ci.stages.guards import require_clickhouse
from monitoring import devserver
from monitoring.blocks import decode_blocks
from monitoring.errors import StoreError
from monitoring.rows import CaptureRow
from monitoring.store import Store, open_store
from monitoring.store.embedded import EngineCarrier
from monitoring.store.folder import create_store

KINDS = (
    "memory",
    "embedded",
    pytest.param("server", marks=(pytest.mark.clickhouse, require_clickhouse())),
    "modern",
)
SQL_KINDS = KINDS[1:]


class Handler(BaseHTTPRequestHandler):
    """ClickHouse's HTTP interface, as far as our clients use it, over the embedded engine."""

    protocol_version = "HTTP/1.1"
    server: ModernServer

    def do_POST(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        sql = query.get("query", [""])[0]
        body = self._body()
        if self.server.password and self._password() != self.server.password:
            self._answer(403, b"Code: 516. DB::Exception: default: Authentication failed. (AUTHENTICATION_FAILED)")
            return
        try:
            self._answer(200, self._run(sql, body, token=query.get("insert_deduplication_token", [""])[0]))
        except StoreError as error:
            self._answer(500, error.message.encode())

    def _run(self, sql: str, body: bytes, *, token: str) -> bytes:
        text, block = (sql, body) if sql else _split(body)
        with self.server.lock:
            if text.startswith("INSERT"):
                into = text.removesuffix("FORMAT Native").strip()
                settings = f" SETTINGS insert_deduplication_token = '{token}'" if token else ""
                self.server.tokens.append(token)
                self.server.carrier.insert(into + settings, block)
                return b""
            native = self.server.carrier.execute(text.strip().removesuffix("FORMAT Native"))
        if text.strip().endswith("FORMAT Native"):
            return native
        rows = [row for one in decode_blocks(native) for row in zip(*one.columns, strict=True)]
        return "".join("\t".join(map(str, row)) + "\n" for row in rows).encode()

    def _password(self) -> str:
        kind, _, token = self.headers.get("Authorization", "").partition(" ")
        if kind == "Basic":
            return base64.b64decode(token).decode().partition(":")[2]
        return self.headers.get("X-ClickHouse-Key", "")

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


def _split(body: bytes) -> tuple[str, bytes]:
    """Take a body that holds the statement, and behind an INSERT its block."""
    if body.startswith(b"INSERT"):
        statement, _, block = body.partition(b"FORMAT Native\n")
        return statement.decode() + "FORMAT Native", block
    return body.decode("utf-8", "surrogateescape"), b""


class ModernServer(ThreadingHTTPServer):
    """The modern engine (chDB) on a loopback port."""

    daemon_threads = True

    def __init__(self, folder: Path, *, password: str = "") -> None:
        create_store(folder)
        self.carrier = EngineCarrier(folder)
        self.lock = threading.Lock()
        self.password = password
        self.tokens: list[str] = []
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"clickhouse://127.0.0.1:{self.server_address[1]}/default"


@contextlib.contextmanager
def serve_modern(folder: Path, *, password: str = "") -> Iterator[ModernServer]:
    server = ModernServer(folder, password=password)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        server.carrier.close()


@dataclass(frozen=True)
class Place:
    """Where one kind of store is: `url` opens it, any number of times."""

    kind: str
    url: str

    def open(self) -> Store:
        return open_store(self.url)


@pytest.fixture(scope="session")
def old_server() -> Iterator[devserver.ServerInfo]:
    with devserver.running_server() as info:
        yield info


@pytest.fixture(scope="session")
def modern_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModernServer]:
    pytest.importorskip("chdb", reason="the embedded engine is not installed")
    with serve_modern(tmp_path_factory.mktemp("modern")) as server:
        yield server


@pytest.fixture(name="serve_modern")
def serve_modern_fixture() -> Callable[..., contextlib.AbstractContextManager[ModernServer]]:
    return serve_modern


def find_place(kind: str, request: pytest.FixtureRequest) -> Place:
    table = f"t{uuid.uuid4().hex}"
    if kind == "memory":
        return Place(kind, f"memory:{table}")
    if kind == "embedded":
        pytest.importorskip("chdb", reason="the embedded engine is not installed")
        return Place(kind, str(request.getfixturevalue("tmp_path") / "store"))
    server = request.getfixturevalue("old_server" if kind == "server" else "modern_server")
    return Place(kind, f"{server.url}?table={table}")


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest) -> Place:
    """Give each kind of store in turn."""
    return find_place(request.param, request)


@pytest.fixture(params=SQL_KINDS)
def sql_place(request: pytest.FixtureRequest) -> Place:
    """Give each kind of store that speaks SQL in turn."""
    return find_place(request.param, request)


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    """Give each kind of store in turn, prepared."""
    opened = place.open()
    opened.prepare()
    yield opened
    opened.close()


@pytest.fixture
def sql_store(sql_place: Place) -> Iterator[Store]:
    """Give each kind of store that speaks SQL in turn, prepared."""
    opened = sql_place.open()
    opened.prepare()
    yield opened
    opened.close()


def make_rows(count: int, *, run: str = "r", size: int = 6, first: int = 0) -> list[CaptureRow]:
    """Rows of a small run: two layers, bytes that tell one from another."""
    return [
        CaptureRow(
            run_id=run, model_id="m", request_id=f"q{seq % 3}", site="resid_pre", layer=seq % 2, step=seq // 6, seq=seq,
            token_start=seq // 6, token_end=seq // 6 + 1, dtype="uint8", shape=(1, size),
            data=bytes((seq + at) % 256 for at in range(size)), inserted_at=7,
        )
        for seq in range(first, first + count)
    ]  # fmt: skip


@pytest.fixture(name="make_rows")
def make_rows_fixture() -> Callable[..., list[CaptureRow]]:
    return make_rows


def push_rows(ring: Any, count: int, *, size: int = 4, first: int = 0) -> list[tuple[int, int, int, bytes]]:
    """Push float32 tensors `[1, size]` of two layers; give (seq, layer, token, bytes) of each."""
    slots = [ring.declare("resid_pre", layer, 0, "float32") for layer in (0, 1)]
    number = ring.request("q0")
    pushed = []
    for seq in range(first, first + count):
        data = bytes((seq + at) % 251 for at in range(4 * size))
        source = ctypes.create_string_buffer(data, len(data))
        token = seq // 2
        ring.push(slots[seq % 2], number, token, 0, token, token + 1, (1, size), ctypes.addressof(source), len(data))
        pushed.append((seq, seq % 2, token, data))
    return pushed


@pytest.fixture(name="push_rows")
def push_rows_fixture() -> Callable[..., Any]:
    return push_rows


class Proxy:
    """A TCP proxy in front of a server, which can be made to fail.

    `mode`: "pass"; "refuse" closes every new connection; "stall" swallows all;
    "cut" ends a connection after `after` bytes of a request; "mute" lets the
    request through and ends the connection instead of answering.
    """

    def __init__(self, port: int) -> None:
        self.mode, self.after = "pass", 0
        self.connections = 0
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._pumps: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def break_connections(self) -> None:
        """End every connection there is."""
        for link in self._open:
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.break_connections()
        self._thread.join()
        for thread in self._pumps:
            thread.join()
        for link in self._open:
            link.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                if self.mode == "refuse":
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self._target))
                self._open += [client, server]
                for source, sink, answers in ((client, server, False), (server, client, True)):
                    pump = threading.Thread(target=self._pump, args=(source, sink), kwargs={"answers": answers})
                    pump.start()
                    self._pumps.append(pump)

    def _pump(self, source: socket.socket, sink: socket.socket, *, answers: bool) -> None:
        seen = 0
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                seen += len(data)
                if self.mode == "stall":
                    continue
                if self.mode == "cut" and not answers and seen > self.after:
                    sink.sendall(data[: max(0, len(data) - (seen - self.after))])
                    break
                if self.mode == "mute" and answers:
                    break
                sink.sendall(data)
        for link in (source, sink):
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxied_server(old_server: devserver.ServerInfo) -> Iterator[tuple[Proxy, str]]:
    """Give a proxy in front of the old server, and the store URL that leads through it."""
    proxy = Proxy(old_server.http_port)
    yield proxy, f"clickhouse://127.0.0.1:{proxy.port}/default?table=t{uuid.uuid4().hex}&timeout=3"
    proxy.close()


@pytest.fixture
def opening() -> Iterator[Callable[[Any], Any]]:
    """Open stores that are closed when the test ends, however it ends."""
    with contextlib.ExitStack() as stack:

        def open_it(url: Any) -> Any:
            store = open_store(url)
            stack.callback(store.close)
            return store

        yield open_it
