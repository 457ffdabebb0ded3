"""Publishing: by one job alone, complete ones only, the pointer last; restoring fails open."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ci.errors import ManifestError
from ci.manifest.model import Finding, Manifest
from ci.manifest.publish import decide_publisher, publish, restore
from ci.manifest.store import write_manifest

pytestmark = pytest.mark.cpu

ALLOWED = {"LOCKGATE_PUBLISH": "1"}
HOSTED = {
    **ALLOWED,
    "GITHUB_ACTIONS": "true",
    "RUNNER_ENVIRONMENT": "github-hosted",
    "GITHUB_EVENT_NAME": "workflow_run",
}


@pytest.mark.parametrize(
    ("environ", "word"),
    [
        ({}, "publishing job"),
        ({"LOCKGATE_PUBLISH": "yes"}, "publishing job"),
        ({**HOSTED, "RUNNER_ENVIRONMENT": "self-hosted"}, "self-hosted"),
        ({**HOSTED, "RUNNER_ENVIRONMENT": ""}, "unknown"),
        ({**HOSTED, "GITHUB_EVENT_NAME": "pull_request"}, "pull_request"),
        ({**HOSTED, "GITHUB_EVENT_NAME": "pull_request_target"}, "untrusted"),
        ({**HOSTED, "GITHUB_EVENT_NAME": "issue_comment"}, "untrusted"),
        (HOSTED, ""),
        (ALLOWED, ""),
    ],
)
def test_only_the_publishing_job_may(environ: dict[str, str], word: str) -> None:
    reason = decide_publisher(environ)
    assert (word in reason) if word else not reason


def test_what_is_published_is_restored(manifest: Manifest, now: float, tmp_path: Path) -> None:
    header = write_manifest(manifest, tmp_path / "m.sqlite")
    slot = publish(tmp_path / "m.sqlite", tmp_path / "store", environ=HOSTED, now=now)
    assert slot.content_hash == header.content_hash
    found = restore(tmp_path / "store", stage="cpu_gate", profile="", out=tmp_path / "out.sqlite")
    assert not found.problem
    assert (tmp_path / "out.sqlite").read_bytes() == (tmp_path / "m.sqlite").read_bytes()
    pointer = json.loads((tmp_path / "store" / "slots" / slot.pointer).read_text())
    assert pointer["source"] == header.source


@pytest.mark.parametrize("values", [{"is_complete": False}, {"is_publishable": False}, {"started": 4e9}])
def test_nothing_incomplete_is_published(
    build: Callable[..., Manifest], header: Any, now: float, tmp_path: Path, values: dict[str, Any]
) -> None:
    problem = Finding(check="skips-declared", found="1", expected="0", hint="declare it", is_warning=True)
    write_manifest(build(header=header(**values)), tmp_path / "m.sqlite", problems=[problem])
    with pytest.raises(ManifestError, match="not publishable"):
        publish(tmp_path / "m.sqlite", tmp_path / "store", environ=HOSTED, now=now)
    assert not (tmp_path / "store").exists()


def test_an_older_run_does_not_replace_a_newer_one(
    build: Callable[..., Manifest], header: Any, now: float, tmp_path: Path
) -> None:
    write_manifest(build(), tmp_path / "new.sqlite")
    write_manifest(build(header=header(started=now - 9000)), tmp_path / "old.sqlite")
    kept = publish(tmp_path / "new.sqlite", tmp_path / "store", environ=HOSTED, now=now)
    with pytest.raises(ManifestError, match="newer run"):
        publish(tmp_path / "old.sqlite", tmp_path / "store", environ=HOSTED, now=now)
    assert (
        restore(tmp_path / "store", stage="cpu_gate", profile="", out=tmp_path / "o").content_hash == kept.content_hash
    )


@pytest.mark.parametrize("profile", ["../../etc", "a/b", ".hidden", "a b"])
def test_slots_cannot_lead_out_of_the_store(
    build: Callable[..., Manifest], header: Any, now: float, tmp_path: Path, profile: str
) -> None:
    write_manifest(build(header=header(runner_profile=profile)), tmp_path / "m.sqlite")
    with pytest.raises(ManifestError, match="cannot name a slot"):
        publish(tmp_path / "m.sqlite", tmp_path / "store", environ=HOSTED, now=now)
    assert restore(tmp_path / "store", stage="cpu_gate", profile=profile, out=tmp_path / "o").problem


@pytest.mark.parametrize(
    "damage",
    [
        "nothing",
        "pointer-gone",
        "pointer-json",
        "pointer-schema",
        "pointer-hash",
        "object-gone",
        "object-cut",
        "object-swapped",
    ],
)
def test_restoring_fails_open_with_a_reason(
    build: Callable[..., Manifest], header: Any, now: float, tmp_path: Path, damage: str
) -> None:
    store, out = tmp_path / "store", tmp_path / "out.sqlite"
    out.write_text("an old one must not stay")
    if damage != "nothing":
        write_manifest(build(), tmp_path / "m.sqlite")
        slot = publish(tmp_path / "m.sqlite", store, environ=HOSTED, now=now)
        pointer = store / "slots" / slot.pointer
        target = next((store / "objects").iterdir())
        value = json.loads(pointer.read_text())
        if damage == "pointer-gone":
            pointer.unlink()
        elif damage == "pointer-json":
            pointer.write_text("{")
        elif damage == "pointer-schema":
            pointer.write_text(json.dumps({**value, "schema": 9}))
        elif damage == "pointer-hash":
            pointer.write_text(json.dumps({**value, "content_hash": "../../../etc/passwd"}))
        elif damage == "object-gone":
            target.unlink()
        elif damage == "object-cut":
            target.write_bytes(target.read_bytes()[:-100])
        else:
            write_manifest(build(header=header(stage="other")), target)
    found = restore(store, stage="cpu_gate", profile="", out=out)
    assert found.problem
    assert not out.exists()
