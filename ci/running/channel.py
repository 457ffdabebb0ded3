"""The wire between the controller and a rank: JSON objects, one per line, over a stream socket."""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Mapping
from typing import Any

Message = dict[str, Any]
BLOCK = 1 << 16
UNIX = "unix:"


class Channel:
    """One end of the wire; the other end has closed when `closed` is true."""

    def __init__(self, stream: socket.socket) -> None:
        """Own a connected stream socket."""
        self._stream = stream
        self._rest = b""
        self.closed = False

    def fileno(self) -> int:
        """Give the descriptor, so that a selector can wait for this end."""
        return self._stream.fileno()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message; to an end that has closed it is lost, which the next read tells."""
        try:
            self._stream.sendall(json.dumps(message, default=str).encode() + b"\n")
        except OSError:
            self.closed = True

    def receive(self) -> Message | None:
        """Wait for one message; None when the other end has closed."""
        while b"\n" not in self._rest:
            if not self._fill():
                return None
        line, self._rest = self._rest.split(b"\n", 1)
        message: Message = json.loads(line)
        return message

    def receive_ready(self) -> list[Message]:
        """Read once (call it when the descriptor is readable) and give the whole messages that are there."""
        self._fill()
        *lines, self._rest = self._rest.split(b"\n")
        return [json.loads(line) for line in lines]

    def receive_rest(self) -> list[Message]:
        """Give the whole messages that are there already; never waits, whoever still holds the other end."""
        messages: list[Message] = []
        poller = select.poll()
        poller.register(self, select.POLLIN)
        while not self.closed and poller.poll(0):
            messages += self.receive_ready()
        return messages

    def close(self) -> None:
        """Close this end."""
        self.closed = True
        self._stream.close()

    def _fill(self) -> bool:
        try:
            block = self._stream.recv(BLOCK)
        except OSError:  # a peer killed in the middle of a line resets the connection
            block = b""
        self.closed = self.closed or not block
        self._rest += block
        return bool(block)


def listen(address: str) -> socket.socket:
    """Listen at `unix:<path>` or `<host>:<port>` (port 0: any free one)."""
    if address.startswith(UNIX):
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.bind(address.removeprefix(UNIX))
    else:
        host, _, port = address.rpartition(":")
        server = socket.create_server((host, int(port)))
    server.listen(64)
    return server


def name_address(server: socket.socket) -> str:
    """Give the address under which `connect` reaches a listening socket."""
    name = server.getsockname()
    return f"{UNIX}{name}" if isinstance(name, str) else f"{name[0]}:{name[1]}"


def connect(address: str, *, limit: float) -> Channel:
    """Connect to a listening end; raises `OSError` when nobody listens there."""
    if address.startswith(UNIX):
        stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        stream.settimeout(limit)
        stream.connect(address.removeprefix(UNIX))
    else:
        host, _, port = address.rpartition(":")
        stream = socket.create_connection((host, int(port)), timeout=limit)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.settimeout(None)
    return Channel(stream)


def find_free_port() -> int:
    """Find a TCP port of the loopback that nobody uses now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
