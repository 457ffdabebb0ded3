"""A job's steps with local composite actions unfolded, and the contexts each step sees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from ci.trust.evaluate import Scope, evaluate
from ci.trust.model import Action, Job, Step, Text, Workflow
from ci.trust.template import evaluate_text
from ci.trust.tokens import ExpressionError
from ci.trust.values import OUTPUT, EvaluationError, OpenObject, Unknown, Value, truth

MAX_NESTING = 10


def open_context(what: str, *, taints: frozenset[str] = frozenset()) -> OpenObject:
    """Make a context of which nothing is known before the job runs."""
    return OpenObject({}, rest=Unknown(reason=what, taints=taints))


STEPS = open_context("an output of a step", taints=frozenset({OUTPUT}))
SECRETS = open_context("a secret")
MACHINE = open_context("known on the runner only")


@dataclass(frozen=True)
class StepView:
    """One step as it runs: `path` is the file it stands in, `contexts` what it sees."""

    step: Step
    path: str
    contexts: Mapping[str, Value]

    @cached_property
    def scope(self) -> Scope:
        """Give the scope in which its texts are evaluated."""
        return Scope(contexts=self.contexts)

    def value(self, text: Text | None) -> Value:
        """Evaluate one of the step's texts; what fails to evaluate is unknown."""
        return safe_value(text.text, self.scope) if text is not None else None

    def input(self, name: str) -> Value:
        """Evaluate an entry of `with:`."""
        return self.value(self.step.inputs.get(name))

    @property
    def action(self) -> str:
        """Give the action it uses, in lower case and without its version."""
        return self.step.uses.text.partition("@")[0].strip().lower() if self.step.uses else ""


def safe_value(text: str, scope: Scope) -> Value:
    """Evaluate a text; what fails is unknown, with the failure as its reason."""
    try:
        return evaluate_text(text, scope)
    except (EvaluationError, ExpressionError) as error:
        return Unknown(reason=str(error))


def job_contexts(workflow: Workflow, job: Job, contexts: Mapping[str, Value]) -> dict[str, Value]:
    """Add to a job's contexts what only its steps see: `env`, `secrets`, `steps`, `runner`, `job`."""
    full: dict[str, Value] = {**contexts, "secrets": SECRETS, "steps": STEPS, "runner": MACHINE, "job": MACHINE}
    written = Unknown(reason="an environment variable that a step may set", taints=frozenset({OUTPUT}))
    env = OpenObject({}, rest=written)
    full["env"] = env
    for table in (workflow.env, job.env):
        for name, text in table.items():
            env[name] = safe_value(text.text, Scope(contexts=full))
    return full


def unfold_steps(
    steps: tuple[Step, ...], path: str, contexts: Mapping[str, Value], actions: Mapping[str, Action], depth: int = 0
) -> Iterator[StepView]:
    """Walk over steps, those of local composite actions in their place."""
    for step in steps:
        view = StepView(step, path, _with_env(step, contexts))
        if _belongs_elsewhere(view):
            continue
        yield view
        action = actions.get(local_path(step)) if depth < MAX_NESTING else None
        if action is None:
            continue
        given: dict[str, Value] = {
            name: safe_value(text.text, Scope(contexts=contexts)) for name, text in action.defaults.items()
        }
        given.update({name: view.value(text) for name, text in step.inputs.items()})
        inner = {**contexts, "inputs": given, "steps": STEPS, "env": view.contexts["env"]}
        yield from unfold_steps(action.steps, action.path, inner, actions, depth + 1)


def local_path(step: Step) -> str:
    """Give the folder of a local action, "" for a step that uses none."""
    return own_path(step.uses.text) if step.uses else ""


def own_path(uses: str) -> str:
    """Give the path of something of the same repository: `./` (as checked out) or `$/` (as the workflow's commit)."""
    text = uses.strip()
    return text[2:].strip("/") if text.startswith(("./", "$/")) else ""


def _with_env(step: Step, contexts: Mapping[str, Value]) -> Mapping[str, Value]:
    env = contexts["env"]
    if not step.env or not isinstance(env, OpenObject):
        return contexts
    extended = OpenObject(env, rest=env.rest)
    scope = Scope(contexts=contexts)
    for name, text in step.env.items():
        extended[name] = safe_value(text.text, scope)
    return {**contexts, "env": extended}


def _belongs_elsewhere(view: StepView) -> bool:
    """Tell whether a step is for another event.

    Only the event's name counts here: a step's other conditions are no gate,
    since the job already runs with its power on its machine.
    """
    condition = view.step.condition
    if condition is None or condition.node is None or condition.fenced:
        return False
    unknown = Unknown(reason="not looked at")
    github = view.contexts["github"]
    name = github.get("event_name") if isinstance(github, dict) else None
    narrow: dict[str, Value] = dict.fromkeys(view.contexts, unknown)
    narrow["github"] = OpenObject({"event_name": name}, rest=unknown)
    try:
        return truth(evaluate(condition.node, Scope(contexts=narrow))) is False
    except EvaluationError:
        return False
