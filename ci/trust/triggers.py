"""Does an event start a workflow: types, branch and tag filters, causing workflows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ci.trust import globs
from ci.trust.model import Trigger, Workflow
from ci.trust.rows import Variant

PULL_EVENTS = frozenset({"pull_request", "pull_request_target"})
DEFAULT_TYPES = dict.fromkeys(PULL_EVENTS, ("opened", "synchronize", "reopened"))
"""Types that start a workflow when none are listed; every other event takes all of its types."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """Whether a workflow starts: yes, no, or None for maybe, and why."""

    starts: bool | None
    why: str


def decide_start(workflow: Workflow, variant: Variant, workflows: Mapping[str, Workflow]) -> Start:
    """Decide whether one delivery starts one workflow."""
    trigger = workflow.triggers.get(variant.event)
    if trigger is None:
        return Start(starts=False, why=f"the workflow does not start on {variant.event}")
    types = trigger.types if trigger.types is not None else DEFAULT_TYPES.get(variant.event)
    if variant.action and types is not None and variant.action not in types:
        return Start(
            starts=False, why=f"{variant.event} is limited to the types {', '.join(types)}; this is {variant.action}"
        )
    if variant.event == "workflow_run":
        caused = _caused(trigger, variant, workflows)
        if caused is not None:
            return caused
    if variant.tag is not None:
        return _tag(trigger, variant.tag)
    return _branch(trigger, variant)


def _caused(trigger: Trigger, variant: Variant, workflows: Mapping[str, Workflow]) -> Start | None:
    if not trigger.workflows:
        return Start(starts=False, why="workflow_run names no workflow")
    named = {workflow.name: workflow for workflow in workflows.values()}
    found = [named[name] for name in trigger.workflows if name in named]
    if len(found) < len(trigger.workflows):
        return None  # one that is not here may start on anything
    events = ("pull_request", "pull_request_target") if variant.cause == "pull_request" else (variant.cause,)
    if any(event in workflow.triggers for workflow in found for event in events):
        return None
    listed = ", ".join(trigger.workflows)
    return Start(starts=False, why=f"none of its causes ({listed}) starts on {variant.cause}")


def _tag(trigger: Trigger, tag: str) -> Start:
    if trigger.tags is not None:
        matched = globs.match_any(trigger.tags, tag)
        return Start(starts=matched, why=f"tags are limited to {', '.join(trigger.tags)}")
    if trigger.tags_ignore is not None:
        ignored = globs.match_any(trigger.tags_ignore, tag)
        return Start(starts=not ignored, why=f"tags {', '.join(trigger.tags_ignore)} are ignored")
    if trigger.branches is not None or trigger.branches_ignore is not None:
        return Start(starts=False, why="push is limited to branches, and this is a tag")
    return Start(starts=True, why=f"starts on every {trigger.name}")


def _branch(trigger: Trigger, variant: Variant) -> Start:
    no_branches = trigger.branches is None and trigger.branches_ignore is None
    some_tags = trigger.tags is not None or trigger.tags_ignore is not None
    if variant.event == "push" and no_branches and some_tags:
        return Start(starts=False, why="push is limited to tags, and this is a branch")
    if variant.branch is None and not variant.branch_any:
        return Start(starts=True, why=f"starts on {variant.event}")
    if trigger.branches is not None:
        listed = ", ".join(trigger.branches)
        if variant.branch_any:
            possible = globs.matches_other(trigger.branches, variant.other_than)
            return Start(starts=None if possible else False, why=f"branches are limited to {listed}")
        return Start(
            starts=globs.match_any(trigger.branches, variant.branch or ""), why=f"branches are limited to {listed}"
        )
    if trigger.branches_ignore is not None:
        listed = ", ".join(trigger.branches_ignore)
        if variant.branch_any:
            ignores_all = any(pattern in ("**", "*") for pattern in trigger.branches_ignore)
            return Start(starts=not ignores_all, why=f"branches {listed} are ignored")
        ignored = globs.match_any(trigger.branches_ignore, variant.branch or "")
        return Start(starts=not ignored, why=f"branches {listed} are ignored")
    return Start(starts=True, why=f"starts on {variant.event}")
