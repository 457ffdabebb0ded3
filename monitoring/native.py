"""The native library, loaded once, at first use; the cause of a failure is kept."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from monitoring.errors import NativeUnavailable

ABI = 1
"""The contract (`_native.pyi`) that this package is written for."""

BUILD_HINT = (
    "build it: pip install . (a C++ compiler is needed), in a source tree: invoke build-native; "
    "an installation with LOCKGATE_NATIVE=off or SKIP_NATIVE_BUILD=1 has none"
)


def load_native() -> Any:
    """Give the module `monitoring._native`, checked against this package.

    Raises:
        NativeUnavailable: with the real cause: it was never built, does not load
            (the loader's own words), or was built from other sources.

    """
    loaded = _load_once()
    if isinstance(loaded, NativeUnavailable):
        # A fresh object each time: a traceback grows with every raise of one.
        raise NativeUnavailable(loaded.message, hint=loaded.hint, cause=loaded.cause) from loaded.cause
    return loaded


def find_fault() -> NativeUnavailable | None:
    """Say why the library cannot be used, or None when it can."""
    loaded = _load_once()
    return loaded if isinstance(loaded, NativeUnavailable) else None


@functools.cache
def _load_once() -> Any:
    from monitoring.hooks import sites

    try:
        module: Any = importlib.import_module("monitoring._native")
    except ModuleNotFoundError as error:
        if error.name == "monitoring._native":
            return NativeUnavailable("the native library was not built", hint=BUILD_HINT, cause=error)
        hint = f"install it: pip install {str(error.name).replace('_', '-')}"
        return NativeUnavailable(f"the native library needs the module {error.name}", hint=hint, cause=error)
    except ImportError as error:
        hint = "it was built for another system or Python; build it again: invoke build-native"
        if "nanobind" in str(error):
            hint = "pip install nanobind-backend"
        return NativeUnavailable(f"the native library does not load: {error}", hint=hint, cause=error)
    if module.ABI != ABI:
        message = f"the native library speaks contract {module.ABI}, this package {ABI}"
        return NativeUnavailable(message, hint="build it again: invoke build-native")
    try:
        module.check_hook_table(sites.TABLE_VERSION, sites.table_digest())
    except ImportError as error:
        return NativeUnavailable(str(error), hint="build it again: invoke build-native", cause=error)
    return module
