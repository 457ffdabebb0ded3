"""URL -> store: one row per scheme; a store's module is imported when it is asked for."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping

from monitoring.store.contract import Store
from monitoring.store.url import EMBEDDED, MEMORY, NULL, SECURE, SERVER, StoreUrl, parse_store_url

MODULES: Mapping[str, str] = {
    EMBEDDED: "monitoring.store.embedded",
    SERVER: "monitoring.store.server",
    SECURE: "monitoring.store.secure",
    MEMORY: "monitoring.store.memory",
    NULL: "monitoring.store.null",
}
"""Each module has `open_url(url: StoreUrl) -> Store`."""


def open_store(url: str | os.PathLike[str] | StoreUrl) -> Store:
    """Open a store by path or URL; creates nothing before `prepare`.

    Raises `StoreUrlError` for a bad URL, `MissingDependency` when the carrier's
    library is not installed, `StoreError` when the place cannot be used.
    """
    parsed = url if isinstance(url, StoreUrl) else parse_store_url(os.fspath(url))
    store: Store = importlib.import_module(MODULES[parsed.scheme]).open_url(parsed)
    return store
