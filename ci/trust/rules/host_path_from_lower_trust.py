"""A less trusted job writes a folder of the machine that a more trusted one mounts.

Machines that the policy calls ephemeral keep nothing, and `:ro` mounts write
nothing. Between internal pull requests and trusted runs it only warns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ci.trust.cells import Audit, Cell, Finding
from ci.trust.code import rendered
from ci.trust.evaluate import Scope
from ci.trust.rules.base import at_cell, rule
from ci.trust.steps import safe_value
from ci.trust.trust import Severity, Trust

ID = "host-path-from-lower-trust"
NOT_STORES = re.compile(r"/(?:proc|sys|dev(?!/shm))(?:/|$)")
"""Devices and the kernel's views keep nothing that one job leaves for another."""


@dataclass(frozen=True, kw_only=True)
class Mount:
    """One folder of the machine inside a job's container."""

    cell: Cell
    path: str
    writes: bool
    line: int


def check(audit: Audit) -> Iterator[Finding]:
    """Compare every writer of a host path with every more trusted job that mounts it."""
    mounts = [
        mount
        for cell in audit.reachable()
        if cell.runner.kind.exposed and not cell.runner.ephemeral
        for mount in _mounts(cell)
    ]
    for mount in mounts:
        if not mount.writes:
            continue
        readers = [
            other for other in mounts if other.cell.code.rank > mount.cell.code.rank and _shares(mount.path, other.path)
        ]
        if not readers:
            continue
        reader = max(readers, key=lambda other: other.cell.code.rank).cell
        internal = mount.cell.code.rank >= Trust.INTERNAL.rank
        yield at_cell(
            mount.cell,
            rule=ID,
            severity=Severity.WARN if internal else Severity.FAIL,
            message=f"{mount.cell.row.label}: {mount.cell.code} code writes {mount.path}, which {reader.name} "
            f"mounts with {reader.code} code on {reader.row.id}",
            fix="mount it read-only (`:ro`) in the less trusted job, or use another folder or an ephemeral machine",
            line=mount.line,
        )


def _mounts(cell: Cell) -> Iterator[Mount]:
    for volume in cell.job.volumes:
        text = rendered(safe_value(volume.text, Scope(contexts=cell.contexts)))
        host, colon, rest = text.partition(":")
        keeps = not NOT_STORES.match(host)
        if colon and keeps and host.startswith(("/", "~", "\0")):
            yield Mount(
                cell=cell,
                path=host.rstrip("/") or "/",
                writes="ro" not in rest.split(":")[-1].split(","),
                line=volume.line,
            )


def _shares(left: str, right: str) -> bool:
    return left == right or left.startswith(right.rstrip("/") + "/") or right.startswith(left.rstrip("/") + "/")


RULE = rule(__doc__, id=ID, severity=Severity.FAIL, check=check)
