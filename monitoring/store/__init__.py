"""Stores: where the drain's blocks go and where the reader's rows come from.

url -> `open_store` -> Store: `prepare` (schema) -> `sink` (for the native drain)
    -> `write_run` ... `read_runs`, `read_rows` (deduplicated), `query` (SQL)

One encoder (the drain's), three carriers: the native HTTP client
(`clickhouse://`), clickhouse-connect (`clickhouses://`), chDB (a folder); and
`memory:` and `null:` for tests and measurements.
"""

from __future__ import annotations

from monitoring.store.contract import Frame, Store
from monitoring.store.opening import open_store
from monitoring.store.url import StoreUrl, parse_store_url

__all__ = ["Frame", "Store", "StoreUrl", "open_store", "parse_store_url"]
