"""`clickhouse://`: a server over plain HTTP. The drain inserts with the native client, Python does the rest."""

from __future__ import annotations

import http.client
import re
import socket
import time
from collections.abc import Mapping
from urllib.parse import urlencode

from monitoring.errors import StoreError, StoreUrlError
from monitoring.store.schema import Tables, Version
from monitoring.store.sinks import http_sink
from monitoring.store.sql import SqlStore
from monitoring.store.url import StoreUrl

DEFAULT_TIMEOUT = 30.0
"""Seconds for connecting, and for one answer; `?timeout=` sets it."""

MAX_MESSAGE = 600
"""Characters of a server's error that are passed on: modern ones hold a stack trace."""

CONNECT_HINT = "is the server up? `invoke clickhouse-up` starts one for tests; a folder as the store needs none"

FAULT = re.compile(r"Code: (\d+)[.,]")


def open_url(url: StoreUrl) -> SqlStore:
    """Open a server's store; nothing is sent before the first use."""
    return SqlStore(url=str(url), carrier=HttpCarrier(url), tables=Tables.of(url))


class HttpCarrier:
    """One keep-alive connection to a ClickHouse HTTP port."""

    def __init__(self, url: StoreUrl) -> None:
        """Remember where; connect at first use."""
        self._url = url
        self._timeout = float(url.options.get("timeout", DEFAULT_TIMEOUT))
        self._connection: http.client.HTTPConnection | None = None
        for what, value in (("user", url.user), ("password", url.password)):
            if not _is_latin(value):
                raise StoreUrlError(f"the {what} of {url} holds a character that an HTTP header cannot carry")

    def execute(self, sql: str, *, readonly: bool = False) -> bytes:
        """Run one statement; a connection that the server closed meanwhile is opened again once."""
        return self._post({"readonly": "1"} if readonly else {}, sql.encode("utf-8", "surrogateescape"))

    def insert(self, into: str, block: bytes | memoryview) -> None:
        """Insert one block; may store it twice when a connection breaks (reads deduplicate)."""
        self._post({"query": f"{into} FORMAT Native", **insert_settings(self._url)}, block)

    def sink(self, tables: Tables, *, into: str, version: Version) -> object:  # noqa: ARG002 - the contract's
        """Make the native HTTP sink."""
        return http_sink(self._url, tables, version=version, timeout=self._timeout, settings=insert_settings(self._url))

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _post(self, parameters: Mapping[str, str], body: bytes | memoryview) -> bytes:
        # wait_end_of_query: the status then tells whether all of the answer is good.
        target = "/?" + urlencode({"wait_end_of_query": "1", **parameters}, errors="surrogateescape")
        fresh = self._connection is None
        try:
            status, answer = self._exchange(target, body)
        except (ConnectionError, http.client.BadStatusLine) as error:
            self.close()
            # An idle connection that the server closed meanwhile shows only now. Inserts, too, may go twice:
            # rows are deduplicated.
            if fresh or isinstance(error, ConnectionRefusedError):
                raise self._unreachable(error) from None
            try:
                status, answer = self._exchange(target, body)
            except (OSError, http.client.HTTPException) as again:
                self.close()
                raise self._unreachable(again) from None
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._unreachable(error) from None
        if status != http.client.OK:
            raise server_error(answer.decode("utf-8", "replace"), status=status, url=self._url)
        return answer

    def _exchange(self, target: str, body: bytes | memoryview) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self._url.host, self._url.port, timeout=self._timeout)
        headers = {"X-ClickHouse-User": self._url.user or "default", "Content-Length": str(memoryview(body).nbytes)}
        if self._url.password:
            headers["X-ClickHouse-Key"] = self._url.password
        self._connection.request("POST", target, body=body, headers=headers)
        response = self._connection.getresponse()
        return response.status, response.read()

    def _unreachable(self, error: Exception) -> StoreError:
        if isinstance(error, socket.gaierror):
            reason = f"the host {self._url.host} is not known"
        elif isinstance(error, TimeoutError):
            reason = f"no answer within {self._timeout:g} s"
        elif isinstance(error, OSError) and error.strerror:
            reason = error.strerror.lower()
        else:
            reason = f"the answer is not HTTP or was cut short ({type(error).__name__})"
        return StoreError(f"{self._url} cannot be reached: {reason}", hint=CONNECT_HINT)


def insert_settings(url: StoreUrl) -> dict[str, str]:
    """Give the URL settings of an insert: through a Distributed table it must be there when we return."""
    return {"insert_distributed_sync": "1"} if url.options.get("cluster") else {}


def server_error(text: str, *, status: int, url: StoreUrl) -> StoreError:
    """Turn a server's error text into ours: short, without credentials, with a hint where one helps."""
    message = " ".join(text.split("Stack trace", maxsplit=1)[0].split())
    message = message.replace(", e.what() = DB::Exception", "")
    if url.password:
        message = message.replace(url.password, "***")
    message = message[:MAX_MESSAGE] or f"HTTP status {status} without a word"
    match = FAULT.search(message)
    return StoreError(f"{url}: {message}", hint=HINTS.get(int(match.group(1)), "") if match else "")


HINTS: Mapping[int, str] = {
    60: "the table is not there: nothing was captured into this database yet, or ?table= names another one",
    81: "the database is not there: nothing was captured into it yet",
    164: "the user may only read",
    192: "check the user in the URL: clickhouse://USER:PASSWORD@host",
    193: "check the password in the URL: clickhouse://USER:PASSWORD@host",
    194: "the user needs a password: clickhouse://USER:PASSWORD@host",
    241: "the server ran out of memory: select fewer sites or layers",
    243: "the server's disk is full",
    497: "the user lacks a grant",
    516: "check user and password in the URL: clickhouse://USER:PASSWORD@host",
}
"""By ClickHouse's error code."""


def wait_until_up(url: StoreUrl, *, limit: float) -> bool:
    """Whether the server answers within `limit` seconds."""
    end = time.monotonic() + limit
    while True:
        carrier = HttpCarrier(url)
        try:
            carrier.execute("SELECT 1")
        except StoreError:
            if time.monotonic() >= end:
                return False
            time.sleep(0.05)
        else:
            return True
        finally:
            carrier.close()


def _is_latin(text: str) -> bool:
    return all(ord(character) < 256 for character in text)
