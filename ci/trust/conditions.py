"""Does a job's `if` let it run: true, false or unknown, and which part decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ci.trust.evaluate import Scope, deciding, evaluate
from ci.trust.syntax import Node
from ci.trust.template import Condition
from ci.trust.trust import State
from ci.trust.values import OUTPUT, EvaluationError, OpenObject, Unknown, Value, text_of, truth
from ci.values import Word


class Outcome(Word):
    """What became of a job that others wait for."""

    RAN = "ran"
    WAITS = "waits"
    MAYBE = "maybe"
    SKIPPED = "skipped"


class Cause(Word):
    """Why a job does not run, or what decided."""

    NONE = "none"
    TRIGGER = "trigger"
    CONDITION = "condition"
    NEEDS = "needs"


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A job's state after its `if`, in words, and the trace for `--explain`."""

    state: State
    why: str
    cause: Cause = Cause.NONE
    steps: tuple[tuple[str, str], ...] = field(default=())


@dataclass(frozen=True, kw_only=True)
class Ancestors:
    """Outcomes of a job's direct needs and of everything before them, and what outputs are known."""

    needs: Mapping[str, Outcome]
    all: Mapping[str, Outcome]
    outputs: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)


def decide_condition(condition: Condition, contexts: Mapping[str, Value], ancestors: Ancestors) -> Decision:
    """Evaluate an `if` as if every ancestor that runs succeeds; then ask what failure would change."""
    nominal = _decide(condition, contexts, ancestors, fails=False)
    if nominal.state is not State.SKIPPED or not condition.checks_status:
        return nominal
    other = _decide(condition, contexts, ancestors, fails=True)
    if other.state is State.SKIPPED:
        return nominal
    return Decision(state=State.MAYBE, why=f"only after a failure or a cancellation: {other.why}", steps=other.steps)


def _decide(condition: Condition, contexts: Mapping[str, Value], ancestors: Ancestors, *, fails: bool) -> Decision:
    status = _status(ancestors, fails=fails)
    scope = Scope(contexts={**contexts, "needs": _needs(ancestors, fails=fails)}, status=status)
    if not condition.checks_status and truth(status["success"]) is False:
        skipped = [name for name, outcome in ancestors.all.items() if outcome is Outcome.SKIPPED]
        return Decision(state=State.SKIPPED, why=f"needs {', '.join(skipped)}, which is skipped", cause=Cause.NEEDS)
    try:
        value = evaluate(condition.node, scope) if condition.node is not None else True
    except EvaluationError as error:
        return Decision(state=State.SKIPPED, why=f"`if` fails: {error}", cause=Cause.CONDITION)
    steps = tuple(_shown(node, found, condition) for node, found in _deciding(condition, scope))
    if condition.fenced:
        return _after_success(
            status, why="text outside `${{ }}` makes `if` a string, which is always true", steps=steps
        )
    outcome = truth(value)
    if outcome is False:
        return Decision(state=State.SKIPPED, why=_because(steps, "false"), cause=Cause.CONDITION, steps=steps)
    if outcome is None:
        assert isinstance(value, Unknown)
        return Decision(
            state=State.MAYBE, why=f"{_because(steps, 'not known')}: {_reasons(condition, scope)}", steps=steps
        )
    why = _because(steps, "true") if condition.node is not None else "no condition"
    if condition.checks_status:
        return Decision(state=State.RUNS, why=why, steps=steps)
    return _after_success(status, why=why, steps=steps)


def _after_success(status: Mapping[str, Value], *, why: str, steps: tuple[tuple[str, str], ...]) -> Decision:
    success = status["success"]
    if isinstance(success, Unknown):
        return Decision(state=State.MAYBE, why=success.reason, cause=Cause.NEEDS, steps=steps)
    return Decision(state=State.RUNS, why=why, steps=steps)


def _status(ancestors: Ancestors, *, fails: bool) -> dict[str, Value]:
    outcomes = ancestors.all
    unsure = [name for name, outcome in outcomes.items() if outcome is Outcome.MAYBE]
    started = any(outcome is not Outcome.SKIPPED for outcome in outcomes.values())
    success: Value = True
    if Outcome.SKIPPED in outcomes.values():
        success = False
    elif unsure or (fails and started):
        names = ", ".join(unsure) or ", ".join(outcomes)
        success = Unknown(reason=f"needs {names}, which may be skipped or fail", options=(True, False))
    if not fails:
        return {"success": success, "failure": False, "always": True, "cancelled": False}
    failure: Value = Unknown(reason="an ancestor may fail", options=(True, False)) if started else False
    cancelled = Unknown(reason="the run may be cancelled", options=(True, False))
    return {"success": success, "failure": failure, "always": True, "cancelled": cancelled}


def _needs(ancestors: Ancestors, *, fails: bool) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for name, outcome in ancestors.needs.items():
        results: tuple[Value, ...] = ("success", "failure", "cancelled") if fails else ("success",)
        if outcome is Outcome.SKIPPED:
            found[name] = {"result": "skipped", "outputs": {}}
            continue
        if outcome is Outcome.MAYBE:
            results = (*results, "skipped")
        result: Value = Unknown(reason=f"the result of {name}", options=results) if len(results) > 1 else results[0]
        outputs = Unknown(reason=f"an output of {name}", taints=frozenset({OUTPUT}))
        known = {} if fails else ancestors.outputs.get(name, {})
        found[name] = {"result": result, "outputs": OpenObject(known, rest=outputs)}
    return found


def needs_context(ancestors: Ancestors) -> dict[str, Value]:
    """Give the `needs` context of a job whose ancestors succeed."""
    return _needs(ancestors, fails=False)


def _deciding(condition: Condition, scope: Scope) -> list[tuple[Node, Value]]:
    return deciding(condition.node, scope) if condition.node is not None else []


def _shown(node: Node, value: Value, condition: Condition) -> tuple[str, str]:
    return condition.source[node.start : node.end], show_value(value)


def show_value(value: Value) -> str:
    """Render a value for people."""
    if isinstance(value, Unknown):
        listed = [show_value(option) for option in value.options or () if not isinstance(option, (dict, list))]
        return (
            f"unknown ({value.reason})"
            if set(listed) == {"true", "false"} or not listed
            else f"one of {', '.join(listed)}"
        )
    if value is None:
        return "null"
    if isinstance(value, str):
        return f"'{value}'"
    return text_of(value)


def _because(steps: Sequence[tuple[str, str]], word: str) -> str:
    return " and ".join(f"`{source}`" for source, _ in dict.fromkeys(steps)) + f" is {word}"


def _reasons(condition: Condition, scope: Scope) -> str:
    found = [value.reason for _, value in _deciding(condition, scope) if isinstance(value, Unknown)]
    return "; ".join(dict.fromkeys(found)) or "unknown"
