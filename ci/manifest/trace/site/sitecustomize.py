"""Start recording in a child interpreter, then run the `sitecustomize` that this one hides.

Nothing here may break a child: what cannot be recorded is written down, and
its test becomes opaque.
"""

from __future__ import annotations

import importlib.util
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
NAME = "_lockgate_trace"


def _load() -> Any:
    package = os.path.dirname(HERE)
    spec = importlib.util.spec_from_file_location(
        NAME, os.path.join(package, "__init__.py"), submodule_search_locations=[package]
    )
    if spec is None or spec.loader is None:
        raise ImportError(package)
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)
    return importlib.import_module(f"{NAME}.child")


def _chain() -> None:
    rest = [path for path in sys.path if os.path.abspath(path or ".") != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("LOCKGATE_RECORD_DIR") and NAME not in sys.modules:
    try:
        _load().start()
    except Exception as error:  # noqa: BLE001 - the border: a child must run even where it cannot be recorded
        sys.stderr.write(
            "" if os.environ.get("LOCKGATE_RECORD_QUIET", "1") == "1" else f"lockgate: not recorded: {error}\n"
        )
_chain()
