"""A manifest for people: its header, what one test depends on, who depends on one path."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any

from ci.errors import UsageError
from ci.manifest.model import Finding, Manifest, count


def render_header(manifest: Manifest, problems: Iterable[Finding]) -> dict[str, Any]:
    """Give the header and the sizes of the relations."""
    header = manifest.header
    outcomes: dict[str, int] = {}
    for test in manifest.tests:
        outcomes[test.outcome] = outcomes.get(test.outcome, 0) + 1
    return {
        "stage": header.stage,
        "source": header.source,
        "recorded": dt.datetime.fromtimestamp(header.started, tz=dt.timezone.utc).isoformat(timespec="seconds"),
        "complete": header.is_complete,
        "publishable": header.is_publishable,
        "core": header.core.value,
        "isolation": header.isolation,
        "ranks": header.ranks,
        "simulated": header.simulated,
        "runner profile": header.runner_profile or "none",
        "content hash": header.content_hash,
        "environment": [f"{key}: {value[:100]}" for key, value in sorted(header.environment.items())],
        "tests": [f"{outcome}: {number}" for outcome, number in sorted(outcomes.items())],
        "opaque": [f"{test.id}: {', '.join(test.opaque)}" for test in manifest.tests if test.opaque],
        "files": len(manifest.files),
        "libraries": [f"{path} ({len(item.sources)} sources)" for path, item in manifest.libraries.items()],
        "problems": [str(problem) for problem in problems],
    }


def render_test(manifest: Manifest, test: str) -> dict[str, Any]:
    """Give everything a test depends on; raises `UsageError` for an unknown id."""
    try:
        atoms = manifest.atoms(test)
    except KeyError:
        near = [item.id for item in manifest.tests if test in item.id][:5]
        hint = f"did you mean: {', '.join(near)}" if near else "`lockgate manifest show FILE` counts the tests it knows"
        raise UsageError(f"the manifest knows no test {test!r}", hint=hint) from None
    record = manifest.tests[manifest.index()[test]]
    return {
        "test": test,
        "outcome": record.outcome,
        "seconds": record.duration,
        "opaque": list(atoms.opaque),
        "executed": sorted(f"{path}::{name}" for path, name in atoms.blocks),
        "imported": sorted(atoms.modules),
        "opened": sorted(atoms.opened),
        "listed": sorted(folder or "." for folder in atoms.listed),
        "asked for": sorted(atoms.probed),
        "libraries": sorted(atoms.libraries),
    }


def render_path(manifest: Manifest, path: str) -> dict[str, Any]:
    """Give the tests that depend on a path, by kind of dependency."""
    folder = "" if path in (".", "") else path.rstrip("/")
    executed = manifest.executed.get(path, {})
    library = manifest.libraries.get(path)
    built = [place for place, item in manifest.libraries.items() if path in item.sources]
    known = path in manifest.files
    return {
        "path": path,
        "known": "yes" if known else "no: not a file of the recorded tree",
        "executed by": [f"{name}: {count(bits)} tests" for name, bits in executed.items()],
        "imported by": manifest.ids(manifest.imported.get(path, 0)),
        "opened by": manifest.ids(manifest.opened.get(path, 0)),
        "listed by": manifest.ids(manifest.listed.get(folder, 0)),
        "asked for by": manifest.ids(manifest.probed.get(path, 0)),
        "loaded by": manifest.ids(library.tests) if library else [],
        "built into": built,
    }
