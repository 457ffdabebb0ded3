"""What a rule is, and how it makes findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ci.trust.cells import Audit, Cell, Finding
from ci.trust.trust import Severity


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule: its id, what its findings do, its promise in a sentence, and its check."""

    id: str
    severity: Severity
    summary: str
    check: Callable[[Audit], Iterator[Finding]]


def rule(module_doc: str | None, *, id: str, severity: Severity, check: Callable[[Audit], Iterator[Finding]]) -> Rule:  # noqa: A002
    """Make a module's rule; the docstring's first line is its summary."""
    return Rule(id=id, severity=severity, summary=(module_doc or "").strip().partition("\n")[0], check=check)


def at_cell(cell: Cell, *, rule: str, severity: Severity, message: str, fix: str, line: int = 0) -> Finding:
    """Make a finding about a cell."""
    here = cell.owner is cell.workflow
    place = line or cell.line
    root = cell.workflow.jobs.get(cell.name.partition(" / ")[0].partition(" (")[0], cell.job)
    return Finding(
        rule=rule,
        severity=severity,
        workflow=cell.workflow.path,
        job=cell.name,
        event=cell.row.id,
        line=place if here else root.line,
        message=message if here else f"{message} [{cell.owner.path}, line {place}]",
        fix=fix,
    )


def machine(cell: Cell) -> str:
    """Name a cell's machine in a sentence."""
    labels = ", ".join(cell.runner.labels)
    return (
        f"the machine {labels}"
        if cell.runner.kind.value == "self-hosted"
        else f"a machine that the files do not tell ({labels})"
    )
