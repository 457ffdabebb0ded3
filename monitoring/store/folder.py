"""The folder of an embedded store: what makes it one, and what can be wrong with it."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

from monitoring.errors import StoreError
from monitoring.rows import SCHEMA_VERSION
from monitoring.store.schema import check_schema_version
from monitoring.store.server import FAULT, HINTS, MAX_MESSAGE

MARKER = "monitoring-store.json"
KIND = "lockgate captures"


NOT_ENOUGH_SPACE = 243
"""ClickHouse's error code."""

FULL_HINT = "free space there: the engine keeps 64 MiB free, and even removing runs needs some"


def create_store(folder: Path) -> None:
    """Make an empty or absent folder a store; leaves a store as it is, refuses anything else."""
    marker = folder / MARKER
    try:
        if folder.exists() and not folder.is_dir():
            raise StoreError(f"{folder} is a file, expected a folder", hint="name a folder, existing or new")
        folder.mkdir(parents=True, exist_ok=True)
        if marker.exists():
            check_store(folder)
            return
        found = sorted(path.name for path in folder.iterdir() if not path.name.startswith(f"{MARKER}."))
        if found:
            raise StoreError(
                f"{folder} is no store: it holds {', '.join(found[:3])}{' ...' if len(found) > 3 else ''}",
                hint="name an empty or a new folder",
            )
        draft = folder / f"{MARKER}.{os.getpid()}"
        draft.write_text(json.dumps({"kind": KIND, "schema_version": SCHEMA_VERSION}) + "\n", encoding="utf-8")
        draft.replace(marker)
    except OSError as error:
        raise StoreError(
            f"{folder} cannot be made a store: {describe(error)}", hint="choose a place where you may write"
        ) from None


def check_store(folder: Path) -> None:
    """Raise `StoreError` unless the folder is a store of a version that this library knows."""
    marker = folder / MARKER
    try:
        values = json.loads(marker.read_text(encoding="utf-8"))
        kind, version = values["kind"], int(values["schema_version"])
    except FileNotFoundError:
        what = f"{folder} is no store (it has no {MARKER})" if folder.is_dir() else f"there is no store at {folder}"
        raise StoreError(what, hint="name the folder that watch(..., store=...) wrote to") from None
    except OSError as error:
        raise StoreError(f"{marker} cannot be read: {describe(error)}", hint=hint_of(error.errno)) from None
    except (ValueError, TypeError, KeyError):
        raise StoreError(f"{marker} is damaged", hint=f'its content must be {{"kind": "{KIND}", ...}}') from None
    if kind != KIND:
        raise StoreError(f"{marker} says {kind!r}, expected {KIND!r}")
    check_schema_version(version, where=str(folder))


def engine_error(text: str, *, folder: Path, number: int = 0) -> StoreError:
    """Turn chDB's error text into ours: short, with a hint where one helps."""
    message = " ".join(text.split("Stack trace", maxsplit=1)[0].split())[:MAX_MESSAGE]
    match = FAULT.search(message)
    code = int(match.group(1)) if match else 0
    if code == NOT_ENOUGH_SPACE or any(word in message for word in ("No space left", "errno: 28", "errno: 27")):
        return StoreError(f"the disk of {folder} is full: {message}", hint=FULL_HINT)
    return StoreError(f"{folder}: {message}", hint=hint_of(number) or HINTS.get(code, ""))


def describe(error: OSError) -> str:
    """Say a system error in lower-case words."""
    return (error.strerror or str(error)).lower()


def hint_of(number: int | None) -> str:
    """Say what to do about a system error."""
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "the engine writes lock files even to read: copy the folder to a place where you may write"
    if number in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full: free space, or choose another place"
    return ""
