"""Workflows x events -> cells, in the service's own order.

trigger -> workflow concurrency -> needs -> job `if` -> matrix -> environment
-> machine -> code, token, secrets, cache
"""

from __future__ import annotations

from collections.abc import Sequence

from ci.trust.calls import leaf_jobs
from ci.trust.cells import Cell, GroupUse
from ci.trust.conditions import Cause
from ci.trust.document import Node, plain_value
from ci.trust.evaluate import Scope
from ci.trust.jobs import Call, Run, enter_group, run_jobs
from ci.trust.model import Folder, Workflow
from ci.trust.policy import Policy
from ci.trust.rows import Row
from ci.trust.triggers import decide_start
from ci.trust.trust import State
from ci.trust.values import CHOSEN, OpenObject, Unknown, Value, text_of

WORST = {State.RUNS: 4, State.MAYBE: 3, State.WAITS: 2, State.INVALID: 1, State.SKIPPED: 0}


def simulate(folder: Folder, rows: Sequence[Row], policy: Policy) -> tuple[list[Cell], list[GroupUse]]:
    """Simulate every event on every workflow that an event can start."""
    cells: list[Cell] = []
    groups: list[GroupUse] = []
    for workflow in folder.workflows.values():
        if workflow.only_called:
            continue
        for row in rows:
            found, entered = _simulate_row(workflow, row, folder, policy)
            cells += found
            groups += entered
    return cells, groups


def _simulate_row(workflow: Workflow, row: Row, folder: Folder, policy: Policy) -> tuple[list[Cell], list[GroupUse]]:
    if workflow.problems:
        why = f"the file is invalid (line {workflow.problems[0].line}): nothing in it runs"
        return _idle(workflow, row, State.INVALID, why, Cause.NONE, folder), []
    merged: dict[str, Cell] = {}
    groups: list[GroupUse] = []
    whys: list[str] = []
    for variant in row.variants:
        start = decide_start(workflow, variant, folder.workflows)
        if start.starts is False:
            whys.append(start.why)
            continue
        run = Run(
            workflow=workflow,
            row=row,
            variant=variant,
            folder=folder,
            policy=policy,
            unsure="" if start.starts else f"starts when the name of the branch fits: {start.why}",
        )
        _run_workflow(run)
        groups += run.groups
        for cell in run.cells:
            merged[cell.name] = _worse(merged[cell.name], cell) if cell.name in merged else cell
    if not merged:
        return _idle(workflow, row, State.SKIPPED, whys[0] if whys else "not started", Cause.TRIGGER, folder), groups
    return _without_ghosts(list(merged.values())), groups


def _worse(left: Cell, right: Cell) -> Cell:
    """Keep the more dangerous of two deliveries of one row."""

    def key(cell: Cell) -> tuple[int, int, int]:
        return WORST[cell.state], -cell.code.rank, int(cell.runner.kind.exposed)

    return right if key(right) > key(left) else left


def _without_ghosts(cells: list[Cell]) -> list[Cell]:
    """Drop the unexpanded, skipped cell of a matrix job that another delivery expands."""
    expanded = {(cell.name.rpartition(" (")[0], cell.job.id) for cell in cells if cell.name.endswith(")")}
    return [cell for cell in cells if cell.state is not State.SKIPPED or (cell.name, cell.job.id) not in expanded]


def _idle(workflow: Workflow, row: Row, state: State, why: str, cause: Cause, folder: Folder) -> list[Cell]:
    found = []
    for job in workflow.jobs.values():
        for owner, inner, name in leaf_jobs(workflow, job, job.id, folder, 0):
            found.append(
                Cell(
                    workflow=workflow,
                    owner=owner,
                    job=inner,
                    name=name,
                    row=row,
                    state=state,
                    why=why,
                    cause=cause,
                    code=row.code,
                )
            )
    return found


def _run_workflow(run: Run) -> None:
    github = {**run.variant.github, "workflow": run.workflow.name}
    github["workflow_ref"] = f"{github['repository']}/{run.workflow.path}@{text_of(github['ref'])}"
    contexts: dict[str, Value] = {"github": github, "inputs": _event_inputs(run), "vars": _variables(run)}
    if run.workflow.concurrency is not None:
        enter_group(run, run.workflow.concurrency, Scope(contexts=contexts), job="", code=run.row.code)
    run_jobs(run, Call(owner=run.workflow, contexts=contexts, unsure=run.unsure))


def _variables(run: Run) -> Value:
    if not run.row.has_vars:
        return {}
    known: dict[str, Value] = dict(run.policy.variables)
    return OpenObject(known, rest=Unknown(reason="a repository variable"))


def _event_inputs(run: Run) -> Value:
    if run.variant.event != "workflow_dispatch":
        return {}
    return {name: _input(node) for name, node in run.workflow.triggers["workflow_dispatch"].inputs.items()}


def _input(node: Node) -> Value:
    """Give what a person may choose for one dispatch input."""
    table = plain_value(node)
    kind = table.get("type") if isinstance(table, dict) else None
    taints = frozenset({CHOSEN})
    if kind == "boolean":
        return Unknown(reason="an input chosen at dispatch", options=(True, False))
    options = table.get("options") if isinstance(table, dict) else None
    if kind == "choice" and isinstance(options, list):
        return Unknown(reason="an input chosen at dispatch", options=tuple(text_of(item) for item in options))
    return Unknown(reason="an input chosen at dispatch", taints=taints)
