"""`--explain JOB EVENT`: how one cell came about, down to the sub-expression that decided."""

from __future__ import annotations

import difflib

from ci.errors import UsageError
from ci.trust.audit import Result
from ci.trust.cells import Cell
from ci.trust.jobs import soft_gates
from ci.trust.trust import State
from ci.trust.view import base_name, show_token


def find_cells(result: Result, job: str, event: str) -> list[Cell]:
    """Find cells by job (`workflow.yml:job` where several files have one) and event; raises `UsageError`."""
    file, colon, name = job.rpartition(":")
    named = [
        cell
        for cell in result.audit.cells
        if name in (cell.name, base_name(cell.name))
        and (not colon or file in (cell.workflow.path, cell.workflow.path.rpartition("/")[2]))
    ]
    if not named:
        names = sorted({base_name(cell.name) for cell in result.audit.cells})
        raise UsageError(f"there is no job {job!r}", hint=_hint(job, names, "jobs"))
    found = [cell for cell in named if cell.row.id == event]
    if not found:
        raise UsageError(
            f"there is no event {event!r}", hint=_hint(event, [row.id for row in result.audit.rows], "events")
        )
    return found


def _hint(word: str, known: list[str], what: str) -> str:
    close = difflib.get_close_matches(word, known, n=3)
    return f"did you mean {', '.join(close)}?" if close else f"{what}: {', '.join(known)}"


def render_explanation(cell: Cell) -> list[str]:
    """Give the trip of one job on one event, line by line."""
    lines = [f"{cell.workflow.path}: {cell.name} on {cell.row.id} ({cell.row.label})", f"  state        {cell.state}"]
    lines.append(f"  because      {cell.why}")
    if cell.job.condition.text.strip():
        shown = " ".join(cell.job.condition.text.split())
        lines.append(f"  if           {shown}  [{cell.owner.path}, line {cell.job.condition.line}]")
    lines += [f"  decided by   {source}  =  {value}" for source, value in dict.fromkeys(cell.steps)]
    if cell.state in (State.SKIPPED, State.INVALID):
        return lines
    lines.append(f"  machine      {cell.runner.kind}: {', '.join(cell.runner.labels)}")
    lines.append(f"  code         {cell.code}")
    lines += [
        f"               {source.what} ({source.trust}) [{source.path}, line {source.line}]" for source in cell.sources
    ]
    lines.append(f"  token        {show_token(cell)}")
    lines.append(f"  secrets      {'yes' if cell.secrets else 'no'}")
    lines.append(f"  environment  {cell.environment or 'none'}")
    lines.append(f"  cache        scope {cell.row.cache}, {'may save' if cell.saves_cache else 'read-only'}")
    lines += [f"  soft gate    {source}" for source in soft_gates(cell.views)]
    return lines
