"""Whose code a job runs: the event's own, unless a step fetches something else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ci.trust.payloads import FORK_OWNER
from ci.trust.rows import Row
from ci.trust.steps import StepView
from ci.trust.trust import Trust
from ci.trust.values import ATTACKER, CHOSEN, OUTPUT, PR_HEAD, RUN_ARTIFACT, OpenObject, Unknown, Value, taints_of

PULL_REF = re.compile(r"(?:refs/|\b)pull/[^/\s]+/(?:head|merge)\b|refs/pull/(?!/)", re.IGNORECASE)
PR_CHECKOUT = re.compile(r"\bgh\s+pr\s+(?:checkout|co)\b|\bhub\s+(?:pr\s+)?checkout\b", re.IGNORECASE)
GIT = re.compile(
    r"\b(?:git\s+(?:-\S+\s+)*(?:fetch|checkout|clone|pull|switch|merge|reset|worktree|cherry-pick|rebase)|gh\s+repo\s+clone)\b"
)
RUN_DOWNLOAD = re.compile(r"\bgh\s+run\s+download\b|\bgh\s+api\b.*artifacts|downloadArtifact|listWorkflowRunArtifacts")
VARIABLE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)|\$env:([A-Za-z_][A-Za-z0-9_]*)")
HOLE = "\0"
"""Stands for an expression that is not known inside a script's text."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """One place where a job takes code, or an artifact to run, from elsewhere."""

    trust: Trust
    path: str
    line: int
    what: str
    artifact: bool = False


def find_sources(views: Sequence[StepView], row: Row) -> Iterator[Source]:
    """Find every step that fetches something less trusted than the event's own code."""
    for view in views:
        source = _of_action(view, row) or _of_script(view, row)
        if source is not None and source.trust.rank < row.code.rank:
            yield source


def _of_action(view: StepView, row: Row) -> Source | None:
    if view.action == "actions/checkout":
        for name in ("ref", "repository"):
            trust = trust_of(view.input(name), row)
            if trust is not None:
                return _source(view, trust, f"checks out {name} {_shown(view, name)}", view.step.inputs[name].line)
    elif "download-artifact" in view.action:
        for name in ("run-id", "run_id"):
            if RUN_ARTIFACT in taints_of(view.input(name)) and row.head is not None:
                return _source(view, row.head, "downloads an artifact of the run that caused this one", artifact=True)
    return None


def _shown(view: StepView, name: str) -> str:
    return view.step.inputs[name].text


def _source(view: StepView, trust: Trust, what: str, line: int = 0, *, artifact: bool = False) -> Source:
    return Source(trust=trust, path=view.path, line=line or view.step.line, what=what, artifact=artifact)


def trust_of(value: Value, row: Row) -> Trust | None:
    """Tell whose code a ref or repository names; None for the event's own or a fixed one."""
    taints = taints_of(value)
    text = rendered(value)
    if taints & {PR_HEAD, ATTACKER, RUN_ARTIFACT} or FORK_OWNER in text or PULL_REF.search(text):
        return row.head or Trust.UNTRUSTED
    if OUTPUT in taints:
        if row.head is not None:
            return row.head
        return Trust.UNTRUSTED if row.outsider else None
    return Trust.VETTED if CHOSEN in taints else None


def rendered(value: Value) -> str:
    """Give a text with a mark where it is not known."""
    if isinstance(value, str):
        return value
    if isinstance(value, Unknown):
        if value.options is not None:
            return " ".join(option for option in value.options if isinstance(option, str))
        return "".join(rendered(part) for part in value.parts) if value.parts else HOLE
    return ""


def _of_script(view: StepView, row: Row) -> Source | None:
    step = view.step
    script = step.run or step.inputs.get("script")
    if script is None:
        return None
    line = script.line
    for offset, raw in enumerate(script.text.splitlines()):
        place = line + offset
        if "#" in raw and raw.lstrip().startswith("#"):
            continue
        if PR_CHECKOUT.search(raw):
            return _source(view, row.head or Trust.UNTRUSTED, f"`{raw.strip()}`", place)
        if GIT.search(raw) or RUN_DOWNLOAD.search(raw):
            trust = _of_line(view, raw, row)
            if trust is not None:
                return _source(view, trust, f"`{raw.strip()}`", place, artifact=not GIT.search(raw))
    return None


def _of_line(view: StepView, raw: str, row: Row) -> Trust | None:
    from ci.trust.steps import safe_value

    value = safe_value(raw, view.scope)
    text = rendered(value)
    tainted = taints_of(value) - {OUTPUT}
    env = view.contexts.get("env")
    for match in VARIABLE.finditer(raw):
        name = match.group(1) or match.group(2)
        if isinstance(env, OpenObject) and name in env:
            tainted |= taints_of(env[name]) - {OUTPUT}
            text += " " + rendered(env[name])
    if RUN_DOWNLOAD.search(raw) and not GIT.search(raw):
        return row.head if row.id.startswith("workflow-run:") else None
    return trust_of(Unknown(reason="a line of a script", parts=(text,), taints=frozenset(tainted)), row)
