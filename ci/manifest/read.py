"""Reading a manifest for a plan: every way in which it can be bad is an answer, never an exception."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ci.manifest.checks import AGAIN, check_manifest
from ci.manifest.model import Expectations, Finding, Manifest, Refusal
from ci.manifest.store import Damaged, load_manifest

EXCERPT = 20
"""No refusal lists more findings than this."""


def read_manifest(path: Path, expectations: Expectations) -> Manifest | Refusal:
    """Read and check a manifest; a refusal names every reason, each with what to do.

    What only warns is in the `warnings` of the manifest.
    """
    try:
        manifest, problems = load_manifest(path)
    except FileNotFoundError:
        finding = Finding(
            check="present",
            found=f"no file {path}",
            expected="a manifest",
            hint="restore or build one: `lockgate manifest`",
        )
        return Refusal(path=str(path), findings=(finding,))
    except Damaged as error:
        finding = Finding(check="readable", found=str(error), expected="a whole manifest of this version", hint=AGAIN)
        return Refusal(path=str(path), findings=(finding,))
    findings = check_manifest(manifest, problems, expectations)
    fatal = tuple(finding for finding in findings if not finding.is_warning)
    if fatal:
        return Refusal(path=str(path), findings=fatal[:EXCERPT])
    return replace(manifest, warnings=tuple(str(finding) for finding in findings))
