"""One file's jobs on one delivery: needs, `if`, matrix, calls, environment, machine -> cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ci.trust.calls import MAX_CALLS, called_workflow, leaf_jobs
from ci.trust.cells import Cell, GroupUse
from ci.trust.code import find_sources
from ci.trust.conditions import Ancestors, Cause, Decision, Outcome, decide_condition, needs_context
from ci.trust.document import Scalar, node_text, plain_value
from ci.trust.evaluate import Scope
from ci.trust.matrix import SINGLE, Combination, expand_matrix
from ci.trust.model import Concurrency, Folder, Job, Text, Trigger, Workflow
from ci.trust.policy import Policy
from ci.trust.power import cache_writable, token_of
from ci.trust.rows import Row, Variant
from ci.trust.runners import Runner, resolve_runner
from ci.trust.steps import StepView, job_contexts, own_path, safe_value, unfold_steps
from ci.trust.syntax import Name, walk
from ci.trust.tokens import ExpressionError
from ci.trust.trust import Kind, State, Trust
from ci.trust.values import OUTPUT, EvaluationError, Unknown, Value, options_of, taints_of, text_of, truth


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
    waits: str = ""
    depth: int = 0


@dataclass(frozen=True, kw_only=True)
class Spot:
    """Where a job stands on its way: its file, its name so far, what its `if` decided, whom it waits for."""

    owner: Workflow
    job: Job
    name: str
    decision: Decision
    environment: str | None = None
    waits: str = ""


def enter_group(run: Run, declared: Concurrency, scope: Scope, *, job: str, code: Trust) -> None:
    """Enter a concurrency group; an empty name is none."""
    group = safe_value(declared.group, scope)
    if group is None or group == "":
        return
    cancels = truth(_flag(safe_value(declared.cancel, scope)))
    run.groups.append(
        GroupUse(
            workflow=run.workflow, job=job, row=run.row, group=group, cancels=cancels, code=code, declared=declared
        )
    )


def _flag(value: Value) -> Value:
    return value != "false" if isinstance(value, str) else value


def run_jobs(run: Run, call: Call) -> bool:
    """Run a file's jobs in the order of their needs; tells whether any may run."""
    outcomes: dict[str, Outcome] = {}
    before: dict[str, frozenset[str]] = {}
    outputs: dict[str, dict[str, Value]] = {}
    waiting = list(call.owner.jobs.values())
    while waiting:
        ready = [job for job in waiting if all(name in outcomes for name in job.needs)]
        for job in ready:
            before[job.id] = frozenset(job.needs).union(*(before[name] for name in job.needs))
            ancestors = Ancestors(
                needs={name: outcomes[name] for name in job.needs},
                all={name: outcome for name, outcome in outcomes.items() if name in before[job.id]},
                outputs=outputs,
            )
            outcomes[job.id] = _run_job(run, call, job, ancestors)
            outputs[job.id] = known_outputs(call, job, ancestors) if outcomes[job.id] is Outcome.RAN else {}
        if not ready:
            break
        waiting = [job for job in waiting if job.id not in outcomes]
    return any(outcome is not Outcome.SKIPPED for outcome in outcomes.values())


def _run_job(run: Run, call: Call, job: Job, ancestors: Ancestors) -> Outcome:
    decision = decide_condition(job.condition, call.contexts, ancestors)
    if decision.state is State.SKIPPED:
        for owner, inner, name in leaf_jobs(call.owner, job, call.prefix + job.id, run.folder, call.depth):
            _add_idle(run, Spot(owner=owner, job=inner, name=name, decision=decision))
        return Outcome.SKIPPED
    if call.unsure and decision.state is State.RUNS:
        decision = replace(decision, state=State.MAYBE, why=call.unsure)
    contexts = {**call.contexts, "needs": needs_context(ancestors)}
    spot = Spot(
        owner=call.owner, job=job, name=call.prefix + job.id, decision=decision, waits=_waits_for(call, job, ancestors)
    )
    try:
        combinations = expand_matrix(job.matrix.node, Scope(contexts=contexts)) if job.matrix else [SINGLE]
    except (EvaluationError, ExpressionError) as error:
        _add_broken(run, spot, f"the matrix fails: {error}")
        return Outcome.SKIPPED
    waits = [_run_combination(run, call, spot, combination, contexts) for combination in combinations]
    if not combinations:
        return Outcome.SKIPPED
    if decision.state is not State.RUNS:
        return Outcome.MAYBE
    return Outcome.WAITS if all(waits) else Outcome.RAN


def known_outputs(call: Call, job: Job, ancestors: Ancestors) -> dict[str, Value]:
    """Evaluate a job's outputs as far as no step decides them; the others stay unknown."""
    if job.uses is not None or job.matrix is not None:
        return {}
    full = job_contexts(call.owner, job, {**call.contexts, "needs": needs_context(ancestors)})
    found = {name: safe_value(text.text, Scope(contexts=full)) for name, text in job.outputs.items()}
    return {
        name: value if isinstance(value, Unknown) else text_of(value)
        for name, value in found.items()
        if not isinstance(value, (list, dict)) and OUTPUT not in taints_of(value) and options_of(value) is not None
    }


def _waits_for(call: Call, job: Job, ancestors: Ancestors) -> str:
    """Name the ancestor whose reviewers a job waits for; a status function may run past their refusal."""
    waiting = [name for name, outcome in ancestors.all.items() if outcome is Outcome.WAITS]
    if waiting and not job.condition.checks_status:
        return f"needs {waiting[0]}, which waits for its environment's reviewers"
    return call.waits


def _run_combination(run: Run, call: Call, spot: Spot, combination: Combination, contexts: Mapping[str, Value]) -> bool:
    """Run one job of a matrix; tells whether it waits for reviewers."""
    words = f" ({', '.join(combination.words)})" if combination.words else ""
    spot = replace(spot, name=f"{spot.name}{words}")
    inner = {**contexts, "matrix": combination.values, "strategy": Unknown(reason="the job's place in its matrix")}
    scope = Scope(contexts=inner)
    if spot.job.uses is not None:
        _run_call(run, call, spot, scope)
        return bool(spot.waits)
    environment, reviewed = _environment(spot.job.environment, scope, run.policy)
    spot = replace(spot, environment=environment)
    if reviewed:
        spot = replace(spot, waits=f"waits for the reviewers of environment {environment}")
    try:
        runner = resolve_runner(spot.job.runs_on, scope, run.policy)
    except (EvaluationError, ExpressionError) as error:
        _add_broken(run, spot, f"`runs-on` fails: {error}")
        return False
    if runner.kind is Kind.NONE:
        _add_broken(run, spot, "`runs-on` is empty: no machine takes the job")
        return False
    _add(run, call, spot, runner, inner)
    return bool(spot.waits)


def _run_call(run: Run, call: Call, spot: Spot, scope: Scope) -> None:
    job, called = spot.job, called_workflow(spot.job, run.folder)
    uses = job.uses.text if job.uses else ""
    if called is None or called.problems or "workflow_call" not in called.triggers or call.depth >= MAX_CALLS:
        if own_path(uses):
            _add_broken(run, spot, f"{uses} is no workflow that can be called")
            return
        kind = run.policy.unknown_runners.get(uses) or run.policy.unknown_runners.get(uses.partition("@")[0])
        why = f"{spot.decision.why}; the remote workflow {uses} is not expanded"
        spot = replace(spot, decision=replace(spot.decision, why=why))
        _add(run, call, spot, Runner(kind=kind or Kind.UNKNOWN, labels=(uses,)), scope.contexts)
        return
    inputs = _call_inputs(called.triggers["workflow_call"], job, scope)
    github, variables = call.contexts["github"], call.contexts["vars"]
    inner = Call(
        owner=called,
        contexts={"github": github, "inputs": inputs, "vars": variables},
        prefix=f"{spot.name} / ",
        cap=token_of(run.row, call.owner, job, default=run.policy.default_token, cap=call.cap),
        secrets=call.secrets and (job.inherits_secrets or bool(job.secrets)),
        unsure=spot.decision.why if spot.decision.state is State.MAYBE else "",
        waits=spot.waits,
        depth=call.depth + 1,
    )
    run_jobs(run, inner)


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


def _environment(declared: Text | None, scope: Scope, policy: Policy) -> tuple[str | None, bool]:
    """Give an environment's name, and whether attested reviewers stand before every value that it can take."""
    if declared is None:
        return None, False
    value = safe_value(declared.text, scope)
    listed = options_of(value)
    name = declared.text if isinstance(value, Unknown) else text_of(value)
    reviewed = listed is not None and all(text_of(option).lower() in policy.reviewed_environments for option in listed)
    return name or None, reviewed and bool(name)


def _idle_cell(run: Run, spot: Spot) -> Cell:
    decision = spot.decision
    return Cell(
        workflow=run.workflow,
        owner=spot.owner,
        job=spot.job,
        name=spot.name,
        row=run.row,
        state=decision.state,
        why=decision.why,
        cause=decision.cause,
        code=run.row.code,
        steps=decision.steps,
        environment=spot.environment,
    )


def soft_gates(views: Sequence[StepView]) -> list[str]:
    """List the conditions of steps that ask about the event: shown, never discharging."""
    found = []
    for view in views:
        condition = view.step.condition
        names = (node.name.lower() for node in walk(condition.node if condition else None) if isinstance(node, Name))
        if condition is not None and "github" in names:
            found.append(" ".join(condition.source.split()))
    return list(dict.fromkeys(found))


def _add_idle(run: Run, spot: Spot) -> None:
    run.cells.append(_idle_cell(run, spot))


def _add_broken(run: Run, spot: Spot, why: str) -> None:
    broken = Decision(state=State.INVALID, why=why, cause=Cause.CONDITION)
    run.cells.append(_idle_cell(run, replace(spot, decision=broken)))


def _add(run: Run, call: Call, spot: Spot, runner: Runner, contexts: Mapping[str, Value]) -> None:
    """Add the cell of a job that reaches a machine: with code, power and its concurrency group."""
    row, owner, job = run.row, spot.owner, spot.job
    full = job_contexts(owner, job, contexts)
    views = tuple(unfold_steps(job.steps, owner.path, full, run.folder.actions))
    sources = tuple(find_sources(views, row))
    code = row.code
    for source in sources:
        code = code.at_most(source.trust)
    state, why = spot.decision.state, spot.decision.why
    if spot.waits:
        state, why = State.WAITS, f"{spot.waits}; {why}"
        code = Trust.APPROVED if code.rank < Trust.APPROVED.rank else code
    gates = soft_gates(views)
    if gates and runner.kind.exposed and row.outsider:
        why += f"; only a soft gate in a step: `{gates[0]}`"
    if job.concurrency is not None:
        enter_group(run, job.concurrency, Scope(contexts=contexts), job=spot.name, code=code)
    run.cells.append(
        replace(
            _idle_cell(run, spot),
            state=state,
            why=why,
            runner=runner,
            code=code,
            contexts=full,
            views=views,
            sources=sources,
            token=token_of(row, owner, job, default=run.policy.default_token, cap=call.cap),
            secrets=row.secrets and call.secrets,
            saves_cache=cache_writable(row, owner, job),
        )
    )
