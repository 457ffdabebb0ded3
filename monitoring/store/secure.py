"""`clickhouses://`: a server behind TLS, a proxy or a cloud endpoint, through clickhouse-connect."""

from __future__ import annotations

import importlib
from typing import Any

from monitoring.errors import MissingDependency, StoreError
from monitoring.store.schema import Tables, Version
from monitoring.store.server import DEFAULT_TIMEOUT, insert_settings, server_error
from monitoring.store.sinks import callback_sink
from monitoring.store.sql import SqlStore
from monitoring.store.url import SECURE, StoreUrl


def open_url(url: StoreUrl) -> SqlStore:
    """Open a store behind TLS; nothing is sent before the first use."""
    return SqlStore(url=str(url), carrier=ConnectCarrier(url), tables=Tables.of(url))


class ConnectCarrier:
    """Statements and encoded blocks by way of a clickhouse-connect client."""

    def __init__(self, url: StoreUrl) -> None:
        """Import the library; connect at first use."""
        try:
            self._library: Any = importlib.import_module("clickhouse_connect")
        except ImportError as error:
            raise MissingDependency(
                f"the store {url} needs clickhouse-connect ({error})",
                hint='pip install "lockgate[cloud]", or use clickhouse:// where plain HTTP will do',
            ) from error
        self._url = url
        self._client: Any = None
        self._sinks: list[ConnectCarrier] = []

    def execute(self, sql: str, *, readonly: bool = False) -> bytes:
        """Run one statement."""
        statement = sql.removesuffix("FORMAT Native")
        settings = {"readonly": "1"} if readonly else {}
        with _Faults(self._url):
            if statement == sql:
                self._connected().command(sql, use_database=False)
                return b""
            return bytes(self._connected().raw_query(statement, fmt="Native", settings=settings, use_database=False))

    def insert(self, into: str, block: bytes | memoryview) -> None:
        """Insert one block."""
        table, _, columns = into.removeprefix("INSERT INTO ").partition(" ")
        names = [name.strip() for name in columns.strip("()").split(",")]
        with _Faults(self._url):
            self._connected().raw_insert(
                table, column_names=names, insert_block=bytes(block), fmt="Native", settings=insert_settings(self._url)
            )

    def sink(self, tables: Tables, *, into: str, version: Version) -> object:  # noqa: ARG002 - the contract's
        """Make a sink with a client of its own: clients are not for two threads at once."""
        carrier = ConnectCarrier(self._url)
        self._sinks.append(carrier)
        return callback_sink(lambda block: carrier.insert(into, block), name=str(self._url))

    def close(self) -> None:
        """Close the clients."""
        for carrier in self._sinks:
            carrier.close()
        self._sinks.clear()
        if self._client is not None:
            self._client.close()
            self._client = None

    def _connected(self) -> Any:
        if self._client is None:
            timeout = max(1, round(float(self._url.options.get("timeout", DEFAULT_TIMEOUT))))
            self._client = self._library.get_client(
                host=self._url.host, port=self._url.port, username=self._url.user or "default",
                password=self._url.password, secure=self._url.scheme == SECURE, connect_timeout=timeout,
                send_receive_timeout=timeout, autogenerate_session_id=False, ca_cert=self._url.options.get("ca_cert"),
            )  # fmt: skip
        return self._client


class _Faults:
    """Turns what the library raises into `StoreError`s without credentials."""

    def __init__(self, url: StoreUrl) -> None:
        self._url = url

    def __enter__(self) -> None:
        """Nothing to set up."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        """Wrap; errors that are no `Exception` pass."""
        if isinstance(error, StoreError) or not isinstance(error, Exception):
            return
        raise server_error(str(error) or type(error).__name__, status=0, url=self._url) from None
