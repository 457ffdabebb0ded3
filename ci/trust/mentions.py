"""What the files mention that adds rows to the table: labels, types, events, base branches."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ci.trust import globs
from ci.trust.model import Folder, Job, Step, Text, Workflow
from ci.trust.rows import PULL_TYPES, Mentions
from ci.trust.syntax import Access, Call, Compare, Literal, Name, Node, walk
from ci.trust.template import Hole, split
from ci.trust.tokens import ExpressionError

KNOWN_EVENTS = frozenset(
    {
        "pull_request",
        "pull_request_target",
        "pull_request_review",
        "pull_request_review_comment",
        "push",
        "schedule",
        "workflow_dispatch",
        "workflow_call",
        "merge_group",
        "workflow_run",
        "issue_comment",
        "issues",
        "release",
        "repository_dispatch",
    }
)
PULL_EVENTS = ("pull_request", "pull_request_target")


def find_mentions(folder: Folder, default_branch: str) -> Mentions:
    """Collect the mentions of every file."""
    workflows = [workflow for workflow in folder.workflows.values() if not workflow.problems]
    triggers = [trigger for workflow in workflows for trigger in workflow.triggers.values()]
    types = [kind for trigger in triggers if trigger.name in PULL_EVENTS for kind in trigger.types or ()]
    labels: dict[str, str] = {}
    other_base = False
    for workflow in workflows:
        for node in _expressions(workflow):
            for label in _labels(node):
                labels.setdefault(label.lower(), label)
            other_base = other_base or any(_is_base(item) for item in walk(node))
    for trigger in triggers:
        if trigger.name in PULL_EVENTS and trigger.branches is not None:
            other_base = other_base or not globs.match_any(trigger.branches, default_branch)
        if trigger.name in PULL_EVENTS and trigger.branches_ignore is not None:
            other_base = other_base or globs.match_any(trigger.branches_ignore, default_branch)
    return Mentions(
        labels=tuple(sorted(labels.values())),
        pull_types=tuple(dict.fromkeys(kind for kind in types if kind not in PULL_TYPES)),
        issue_types=tuple(
            dict.fromkeys(
                kind for one in triggers if one.name == "issues" for kind in one.types or () if kind != "opened"
            )
        ),
        events=tuple(dict.fromkeys(one.name for one in triggers if one.name not in KNOWN_EVENTS)),
        listens_to_labeled="labeled" in types,
        listens_to_comments=any(trigger.name == "issue_comment" for trigger in triggers),
        other_base=other_base,
    )


def _expressions(workflow: Workflow) -> Iterator[Node]:
    for job in workflow.jobs.values():
        yield from _job_expressions(job)


def _job_expressions(job: Job) -> Iterator[Node]:
    if job.condition.node is not None:
        yield job.condition.node
    for step in job.steps:
        yield from _step_expressions(step)
    for text in job.texts:
        yield from _holes(text)


def _step_expressions(step: Step) -> Iterator[Node]:
    if step.condition is not None and step.condition.node is not None:
        yield step.condition.node


def _holes(text: Text) -> Iterator[Node]:
    try:
        parts = split(text.text)
    except ExpressionError:
        return
    for part in parts:
        if isinstance(part, Hole) and part.node is not None:
            yield part.node


def _labels(root: Node) -> Iterator[str]:
    for node in walk(root):
        if isinstance(node, Compare) or (
            isinstance(node, Call) and node.name in ("contains", "startswith", "endswith")
        ):
            parts = list(walk(node))
            if any(_is_label(part) for part in parts):
                yield from _words(node)


def _words(node: Node) -> Iterator[str]:
    keys = {id(part.key) for part in walk(node) if isinstance(part, Access) and part.key is not None}
    for part in walk(node):
        if isinstance(part, Literal) and isinstance(part.value, str) and part.value and id(part) not in keys:
            yield from _listed(part.value)


def _listed(text: str) -> list[str]:
    if not text.lstrip().startswith("["):
        return [text]
    try:
        found = json.loads(text)
    except ValueError:
        return [text]
    return [item for item in found if isinstance(item, str) and item] if isinstance(found, list) else [text]


def _path(node: Node) -> list[str]:
    names: list[str] = []
    while isinstance(node, Access):
        key = node.key
        names.append(key.value.lower() if isinstance(key, Literal) and isinstance(key.value, str) else "*")
        node = node.target
    if isinstance(node, Name):
        names.append(node.name.lower())
    return names[::-1]


def _is_label(node: Node) -> bool:
    path = _path(node) if isinstance(node, Access) else []
    return path[:2] == ["github", "event"] and ("label" in path or ("labels" in path and "head" not in path))


def _is_base(node: Node) -> bool:
    path = _path(node) if isinstance(node, Access) else []
    return path == ["github", "base_ref"] or path[:5] == ["github", "event", "pull_request", "base", "ref"]
