"""Capture the internals of a running model, store them, read them back as tensors.

    watch(model, select=, store=)  hooks -> recorder -> native ring -> drain -> store (ClickHouse)
    read(store, run=)              store -> rows -> tensors, complete or an error that lists the gaps
    python -m monitoring           what a store holds;  python -m monitoring.demo: all of it, once

Importable with neither torch nor the native library; both are loaded at first use.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from monitoring.capture import CaptureWarning, Monitor, watch
    from monitoring.errors import (
        CaptureError,
        CaptureLoss,
        DrainTimeout,
        IncompleteRun,
        MissingDependency,
        MonitoringError,
        NativeUnavailable,
        PolicyError,
        RunNotFound,
        SchemaError,
        SelectionError,
        SiteUnreachable,
        StoreError,
        StoreUrlError,
    )
    from monitoring.hooks.select import register_preset
    from monitoring.policy import Backpressure, Delivery, Limits, Policy, Schedule
    from monitoring.read import read
    from monitoring.reading.internals import Internals
    from monitoring.stats import Stats
    from monitoring.store import open_store

__all__ = [
    "Backpressure",
    "CaptureError",
    "CaptureLoss",
    "CaptureWarning",
    "Delivery",
    "DrainTimeout",
    "IncompleteRun",
    "Internals",
    "Limits",
    "MissingDependency",
    "Monitor",
    "MonitoringError",
    "NativeUnavailable",
    "Policy",
    "PolicyError",
    "RunNotFound",
    "Schedule",
    "SchemaError",
    "SelectionError",
    "SiteUnreachable",
    "Stats",
    "StoreError",
    "StoreUrlError",
    "open_store",
    "read",
    "register_preset",
    "watch",
]

_HOMES = {
    "capture": ("CaptureWarning", "Monitor", "watch"),
    "errors": (
        "CaptureError",
        "CaptureLoss",
        "DrainTimeout",
        "IncompleteRun",
        "MissingDependency",
        "MonitoringError",
        "NativeUnavailable",
        "PolicyError",
        "RunNotFound",
        "SchemaError",
        "SelectionError",
        "SiteUnreachable",
        "StoreError",
        "StoreUrlError",
    ),
    "hooks.select": ("register_preset",),
    "policy": ("Backpressure", "Delivery", "Limits", "Policy", "Schedule"),
    "read": ("read",),
    "reading.internals": ("Internals",),
    "stats": ("Stats",),
    "store": ("open_store",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


class _Package(ModuleType):
    """This package; `monitoring.read` is the function, also after the submodule of that name was imported."""

    def __setattr__(self, name: str, value: object) -> None:
        # The import system sets each imported submodule on its package.
        if name == "read" and isinstance(value, ModuleType):
            value = value.read
        super().__setattr__(name, value)


def __getattr__(name: str) -> Any:
    """Load a public name from its module at first use."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    setattr(sys.modules[__name__], name, value)
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})


sys.modules[__name__].__class__ = _Package
