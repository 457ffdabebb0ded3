"""The store: manifests by content hash, and one pointer per slot that is replaced last.

    <store>/objects/<content hash>.sqlite     never changed once written
    <store>/slots/<stage>@<profile>.json      {"schema", "content_hash", "source", "created", "published"}

A reader follows the pointer and checks the content, so it sees the old manifest
or the new one, whole. Publishing needs a job of its own on a hosted runner: the
machine that ran the tests is not trusted to say what may be skipped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ci.errors import ManifestError
from ci.manifest.checks import check_manifest
from ci.manifest.model import Expectations
from ci.manifest.store import Damaged, check_seal, load_manifest

ALLOW = "LOCKGATE_PUBLISH"
"""Must be `1`: the publishing job sets it, no other does."""

SLOT_SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class Slot:
    """Where a manifest was published, or what was restored; `problem` says why nothing was."""

    pointer: str = ""
    content_hash: str = ""
    problem: str = ""


def slot_name(stage: str, profile: str) -> str:
    """Name a slot; raises `ManifestError` for words that are no file names."""
    for word in (stage, profile or "default"):
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", word):
            raise ManifestError(
                f"{word!r} cannot name a slot", hint="use letters, digits, dots, dashes and underscores"
            )
    return f"{stage}@{profile or 'default'}.json"


def decide_publisher(environ: Mapping[str, str]) -> str:
    """Say why this process may not publish, or ""."""
    if environ.get(ALLOW) != "1":
        return f"{ALLOW} is not 1: only the publishing job sets it"
    if environ.get("GITHUB_ACTIONS") == "true":
        runner = environ.get("RUNNER_ENVIRONMENT", "")
        if runner != "github-hosted":
            return f"this runner is {runner or 'unknown'}, publishing is for github-hosted runners"
        event = environ.get("GITHUB_EVENT_NAME", "")
        if event not in ("schedule", "workflow_run", "workflow_dispatch", "push"):
            return f"the event is {event or 'unknown'}; untrusted changes can cause it"
    return ""


def publish(path: Path, store: Path, *, environ: Mapping[str, str], now: float) -> Slot:
    """Check a manifest, store it under its content hash, then replace the slot's pointer.

    Raises `ManifestError` for one that is damaged, incomplete, or not publishable
    from here; an older run never replaces a newer one.
    """
    reason = decide_publisher(environ)
    if reason:
        raise ManifestError(f"not published: {reason}", hint="docs/cache-contract.md describes the publishing job")
    try:
        manifest, problems = load_manifest(path)
    except FileNotFoundError:
        raise ManifestError(f"there is no file {path}", hint="build it first: `lockgate manifest build`") from None
    except Damaged as error:
        raise ManifestError(f"not published: {error}", hint="build it again") from error
    fatal = [finding for finding in check_manifest(manifest, problems, Expectations(now=now)) if not finding.is_warning]
    if not manifest.header.is_publishable:
        fatal += [problem for problem in problems if problem.check == "skips-declared"]
    if fatal or not manifest.header.is_publishable:
        lines = "\n".join(f"  - {finding}" for finding in fatal)
        raise ManifestError(
            f"not published: it is not publishable\n{lines}".rstrip(), hint="repair the run, then build again"
        )
    header = manifest.header
    pointer = store / "slots" / slot_name(header.stage, header.runner_profile)
    _refuse_older(pointer, header.started)
    target = store / "objects" / f"{header.content_hash}.sqlite"
    try:
        if not target.is_file():
            _copy(path, target)
        value = {
            "schema": SLOT_SCHEMA, "content_hash": header.content_hash, "stage": header.stage,
            "profile": header.runner_profile, "source": header.source, "started": header.started, "published": now,
        }  # fmt: skip
        _replace(pointer, json.dumps(value, indent=2).encode() + b"\n")
    except OSError as error:
        raise ManifestError(f"{store} cannot be written: {error.strerror}", hint="check the store's folder") from error
    return Slot(pointer=pointer.name, content_hash=header.content_hash)


def restore(store: Path, *, stage: str, profile: str, out: Path) -> Slot:
    """Copy a slot's manifest to `out`; whatever is wrong is the slot's `problem`, and `out` is then not there."""
    try:
        out.unlink(missing_ok=True)
        pointer = store / "slots" / slot_name(stage, profile)
        if not pointer.is_file():
            return Slot(problem=f"{pointer} is not there; nothing was published for {stage} yet")
        value = json.loads(pointer.read_text(encoding="utf-8"))
        digest = value["content_hash"]
        if value["schema"] != SLOT_SCHEMA or not re.fullmatch(r"[0-9a-f]{64}", digest):
            return Slot(problem=f"{pointer.name} is not a pointer of this version")
        _copy(store / "objects" / f"{digest}.sqlite", out)
        found = check_seal(out)
        if found != digest:
            out.unlink()
            return Slot(problem=f"{pointer.name} names {digest[:12]}, its object is {found[:12]}")
    except Damaged as error:
        out.unlink(missing_ok=True)
        return Slot(problem=f"the object is damaged: {error}")
    except ManifestError as error:
        return Slot(problem=error.message)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Slot(problem=f"the store cannot be read: {error}")
    return Slot(pointer=pointer.name, content_hash=digest)


def _refuse_older(pointer: Path, started: float) -> None:
    try:
        present = float(json.loads(pointer.read_text(encoding="utf-8"))["started"])
    except (OSError, ValueError, KeyError, TypeError):
        return
    if present > started:
        raise ManifestError(
            f"not published: {pointer.name} already names a newer run", hint="nothing to do; a re-run nightly came late"
        )


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        shutil.copyfile(source, temporary)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
