"""Workflows x events -> cells, in the service's own order.

trigger -> workflow concurrency -> needs -> job `if` -> matrix -> environment
-> machine -> code, token, secrets, cache
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ci.trust.cells import Cell, GroupUse
from ci.trust.code import find_sources
from ci.trust.conditions import Ancestors, Cause, Decision, Outcome, decide_condition, needs_context
from ci.trust.document import Node, Scalar, node_text, plain_value
from ci.trust.evaluate import Scope
from ci.trust.events import Row, Variant
from ci.trust.expression import ExpressionError
from ci.trust.matrix import SINGLE, Combination, expand_matrix
from ci.trust.model import Concurrency, Folder, Job, Text, Trigger, Workflow
from ci.trust.policy import Policy
from ci.trust.power import cache_writable, token_of
from ci.trust.runners import NOWHERE, Runner, resolve_runner
from ci.trust.steps import job_contexts, own_path, safe_value, unfold_steps
from ci.trust.triggers import decide_start
from ci.trust.trust import Kind, State, Trust
from ci.trust.values import CHOSEN, EvaluationError, OpenObject, Unknown, Value, options_of, text_of, truth

MAX_CALLS = 10
WORST = {State.RUNS: 4, State.MAYBE: 3, State.WAITS: 2, State.INVALID: 1, State.SKIPPED: 0}


@dataclass(frozen=True, kw_only=True)
class Run:
    """One workflow started by one delivery; `cells` and `groups` collect what happens."""

    workflow: Workflow
    row: Row
    variant: Variant
    folder: Folder
    policy: Policy
    unsure: str = ""
    cells: list[Cell] = field(default_factory=list)
    groups: list[GroupUse] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Call:
    """The surroundings of a set of jobs: the file they stand in, and what its caller hands on."""

    owner: Workflow
    contexts: Mapping[str, Value]
    prefix: str = ""
    cap: Mapping[str, str] | None = None
    secrets: bool = True
    unsure: str = ""
    depth: int = 0


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
            workflow=workflow, row=row, variant=variant, folder=folder, policy=policy,
            unsure="" if start.starts else f"starts when the name of the branch fits: {start.why}",
        )  # fmt: skip
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
        for owner, inner, name in _leaves(workflow, job, job.id, folder, 0):
            found.append(
                Cell(workflow=workflow, owner=owner, job=inner, name=name, row=row, state=state, why=why, cause=cause, code=row.code)
            )
    return found


def _leaves(owner: Workflow, job: Job, name: str, folder: Folder, depth: int) -> Iterator[tuple[Workflow, Job, str]]:
    called = called_workflow(job, folder)
    if called is None or depth >= MAX_CALLS or not called.jobs:
        yield owner, job, name
        return
    for inner in called.jobs.values():
        yield from _leaves(called, inner, f"{name} / {inner.id}", folder, depth + 1)


def called_workflow(job: Job, folder: Folder) -> Workflow | None:
    """Give the local workflow that a job calls, None for none or a remote one."""
    path = own_path(job.uses.text) if job.uses else ""
    if not path:
        return None
    found = folder.workflows.get(path)
    if found is not None:
        return found
    name = path.rpartition("/")[2]
    return next((workflow for known, workflow in folder.workflows.items() if known == name), None)


def _run_workflow(run: Run) -> None:
    github = {**run.variant.github, "workflow": run.workflow.name}
    github["workflow_ref"] = f"{github['repository']}/{run.workflow.path}@{text_of(github['ref'])}"
    contexts: dict[str, Value] = {"github": github, "inputs": _event_inputs(run), "vars": _variables(run)}
    if run.workflow.concurrency is not None:
        _enter(run, run.workflow.concurrency, Scope(contexts=contexts), job="", code=run.row.code)
    _run_jobs(run, Call(owner=run.workflow, contexts=contexts, unsure=run.unsure))


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


def _enter(run: Run, declared: Concurrency, scope: Scope, *, job: str, code: Trust) -> None:
    group = safe_value(declared.group, scope)
    if group is None or group == "":
        return
    cancels = truth(_flag(safe_value(declared.cancel, scope)))
    run.groups.append(
        GroupUse(workflow=run.workflow, job=job, row=run.row, group=group, cancels=cancels, code=code, declared=declared)
    )


def _flag(value: Value) -> Value:
    return value != "false" if isinstance(value, str) else value


def _run_jobs(run: Run, call: Call) -> bool:
    """Run a file's jobs in the order of their needs; tells whether any may run."""
    outcomes: dict[str, Outcome] = {}
    before: dict[str, frozenset[str]] = {}
    waiting = list(call.owner.jobs.values())
    while waiting:
        ready = [job for job in waiting if all(name in outcomes for name in job.needs)]
        for job in ready:
            before[job.id] = frozenset(job.needs).union(*(before[name] for name in job.needs))
            ancestors = Ancestors(
                needs={name: outcomes[name] for name in job.needs},
                all={name: outcome for name, outcome in outcomes.items() if name in before[job.id]},
            )
            outcomes[job.id] = _run_job(run, call, job, ancestors)
        if not ready:
            break
        waiting = [job for job in waiting if job.id not in outcomes]
    return any(outcome is not Outcome.SKIPPED for outcome in outcomes.values())


def _run_job(run: Run, call: Call, job: Job, ancestors: Ancestors) -> Outcome:
    decision = decide_condition(job.condition, call.contexts, ancestors)
    if decision.state is State.SKIPPED:
        for owner, inner, name in _leaves(call.owner, job, call.prefix + job.id, run.folder, call.depth):
            _add(run, call, owner=owner, job=inner, name=name, decision=decision)
        return Outcome.SKIPPED
    if call.unsure and decision.state is State.RUNS:
        decision = replace(decision, state=State.MAYBE, why=call.unsure)
    contexts = {**call.contexts, "needs": needs_context(ancestors)}
    try:
        combinations = expand_matrix(job.matrix.node, Scope(contexts=contexts)) if job.matrix else [SINGLE]
    except (EvaluationError, ExpressionError) as error:
        _add(run, call, owner=call.owner, job=job, name=call.prefix + job.id, decision=_broken(f"the matrix fails: {error}"))
        return Outcome.SKIPPED
    for combination in combinations:
        _run_combination(run, call, job, combination, contexts, decision)
    if not combinations:
        return Outcome.SKIPPED
    return Outcome.RAN if decision.state is State.RUNS else Outcome.MAYBE


def _broken(why: str) -> Decision:
    return Decision(state=State.INVALID, why=why, cause=Cause.CONDITION)


def _run_combination(
    run: Run, call: Call, job: Job, combination: Combination, contexts: Mapping[str, Value], decision: Decision
) -> None:
    words = f" ({', '.join(combination.words)})" if combination.words else ""
    name = f"{call.prefix}{job.id}{words}"
    inner = {**contexts, "matrix": combination.values, "strategy": Unknown(reason="the job's place in its matrix")}
    scope = Scope(contexts=inner)
    if job.uses is not None:
        _run_call(run, call, job, name, scope, decision)
        return
    environment = _environment(job.environment, scope)
    try:
        runner = resolve_runner(job.runs_on, scope, run.policy)
    except (EvaluationError, ExpressionError) as error:
        _add(run, call, owner=call.owner, job=job, name=name, decision=_broken(f"`runs-on` fails: {error}"))
        return
    if runner.kind is Kind.NONE:
        _add(run, call, owner=call.owner, job=job, name=name, decision=_broken("`runs-on` is empty: no machine takes the job"))
        return
    _add(run, call, owner=call.owner, job=job, name=name, decision=decision, runner=runner, contexts=inner, environment=environment)


def _run_call(run: Run, call: Call, job: Job, name: str, scope: Scope, decision: Decision) -> None:
    called = called_workflow(job, run.folder)
    uses = job.uses.text if job.uses else ""
    if called is None or called.problems or "workflow_call" not in called.triggers or call.depth >= MAX_CALLS:
        if own_path(uses):
            _add(run, call, owner=call.owner, job=job, name=name, decision=_broken(f"{uses} is no workflow that can be called"))
            return
        kind = run.policy.unknown_runners.get(uses) or run.policy.unknown_runners.get(uses.partition("@")[0])
        runner = Runner(kind=kind or Kind.UNKNOWN, labels=(uses,))
        why = f"{decision.why}; the remote workflow {uses} is not expanded"
        _add(
            run, call, owner=call.owner, job=job, name=name, decision=replace(decision, why=why), runner=runner,
            contexts=scope.contexts, remote=uses,
        )  # fmt: skip
        return
    inputs = _call_inputs(called.triggers["workflow_call"], job, scope)
    github, variables = call.contexts["github"], call.contexts["vars"]
    cap = token_of(run.row, call.owner, job, default=run.policy.default_token, cap=call.cap)
    inner = Call(
        owner=called,
        contexts={"github": github, "inputs": inputs, "vars": variables},
        prefix=f"{name} / ",
        cap=cap,
        secrets=call.secrets and (job.inherits_secrets or bool(job.secrets)),
        unsure=decision.why if decision.state is State.MAYBE else "",
        depth=call.depth + 1,
    )
    _run_jobs(run, inner)


def _call_inputs(trigger: Trigger, job: Job, scope: Scope) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for name, node in trigger.inputs.items():
        table = plain_value(node)
        default = table.get("default") if isinstance(table, dict) else None
        kind = table.get("type") if isinstance(table, dict) else None
        empty: Value = {"boolean": False, "number": 0.0}.get(str(kind), "")
        found[name] = default if default is not None else empty
    for name, node in job.inputs.items():
        text = node_text(node)
        literal = isinstance(node, Scalar) and not isinstance(node.value, str)
        found[name] = plain_value(node) if literal else safe_value(text, scope)
    return found


def _environment(declared: Text | None, scope: Scope) -> tuple[str | None, Value]:
    if declared is None:
        return None, None
    value = safe_value(declared.text, scope)
    if isinstance(value, Unknown):
        return declared.text, value
    return (text_of(value) or None), value


def _waits(environment: tuple[str | None, Value], policy: Policy) -> bool:
    name, value = environment
    listed = options_of(value)
    if name is None or listed is None:
        return False
    return all(text_of(option).lower() in policy.reviewed_environments for option in listed)


def _add(
    run: Run, call: Call, *, owner: Workflow, job: Job, name: str, decision: Decision, runner: Runner = NOWHERE,
    contexts: Mapping[str, Value] | None = None, environment: tuple[str | None, Value] = (None, None), remote: str = "",
) -> None:  # fmt: skip
    """Add one cell; only a job that reaches a machine gets code, power and groups."""
    row = run.row
    start = Cell(
        workflow=run.workflow, owner=owner, job=job, name=name, row=row, state=decision.state, why=decision.why,
        cause=decision.cause, code=row.code, steps=decision.steps, environment=environment[0],
    )  # fmt: skip
    if contexts is None:
        run.cells.append(start)
        return
    full = job_contexts(owner, job, contexts)
    views = tuple(unfold_steps(job.steps, owner.path, full, run.folder.actions))
    sources = tuple(find_sources(views, row))
    code = row.code
    for source in sources:
        code = code.at_most(source.trust)
    state, why = decision.state, decision.why
    if _waits(environment, run.policy):
        state, why = State.WAITS, f"waits for the reviewers of environment {environment[0]}; {why}"
        code = Trust.APPROVED if code.rank < Trust.APPROVED.rank else code
    if job.concurrency is not None:
        _enter(run, job.concurrency, Scope(contexts=contexts), job=name, code=code)
    run.cells.append(
        replace(
            start, state=state, why=why, runner=runner, code=code, contexts=full, views=views, sources=sources, remote=remote,
            token=token_of(row, owner, job, default=run.policy.default_token, cap=call.cap),
            secrets=row.secrets and call.secrets, saves_cache=cache_writable(row, owner, job),
        )
    )  # fmt: skip
