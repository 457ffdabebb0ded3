"""The native sinks that stores hand to the drain; the native library is loaded when one is made."""

from __future__ import annotations

from collections.abc import Callable

from monitoring.blocks import BlockError
from monitoring.native import load_native
from monitoring.store.schema import TOKENS_SINCE, Tables, Version
from monitoring.store.url import StoreUrl


def callback_sink(write: Callable[[bytes], None], *, name: str) -> object:
    """Make a sink that calls `write` with each encoded block, on the drain's thread.

    An exception means "try again later", a `BlockError` "this block never fits".
    """

    def take(block: bytes, rows: int, token: str) -> None:  # noqa: ARG001 - the drain counts rows itself
        write(block)

    return load_native().CallbackSink(take, name=name, fatal=(BlockError,))


def null_sink() -> object:
    """Make a sink that encodes, counts and discards."""
    return load_native().NullSink()


def http_sink(url: StoreUrl, tables: Tables, *, version: Version, timeout: float, settings: dict[str, str]) -> object:
    """Make a sink that inserts into a server with the native HTTP client."""
    return load_native().HttpSink(
        url.host, url.port, database=tables.database, table=tables.captures, user=url.user or "default",
        password=url.password, timeout=timeout, settings=settings, deduplicate=version >= TOKENS_SINCE,
    )  # fmt: skip
