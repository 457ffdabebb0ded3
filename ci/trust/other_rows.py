"""Rows of everything that is no pull request's own event: pushes, runs, comments, issues, releases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ci.trust import payloads
from ci.trust.payloads import Repo, attacker_text, insider, opaque
from ci.trust.rows import OTHER_LABEL, Row, Variant
from ci.trust.trust import Trust
from ci.trust.values import ATTACKER, CHOSEN, OpenObject, Unknown, Value

OUTSIDER_EVENTS = frozenset(
    {"discussion", "discussion_comment", "watch", "fork", "gollum", "check_run", "check_suite", "status"}
)


def _push_variant(repo: Repo, ref: str, name: str, *, tag: bool, actor: Value) -> Variant:
    event: dict[str, Value] = {
        "ref": ref,
        "before": opaque("the commit before"),
        "after": opaque("the commit after"),
        "commits": opaque("the commits"),
        "head_commit": OpenObject({"message": opaque("the commit message")}, rest=opaque("the head commit")),
        "pusher": OpenObject({"name": actor}, rest=opaque("the pusher")),
        "forced": Unknown(reason="a forced push", options=(False, True)),
        "deleted": False,
        "created": Unknown(reason="a new ref", options=(False, True)),
        "base_ref": None,
        "compare": opaque("the comparison"),
        "repository": payloads.repository(repo),
        "sender": OpenObject({"login": actor}, rest=opaque("the sender")),
    }
    items: dict[str, Value] = {
        "event_name": "push",
        "event": event,
        "ref": ref,
        "ref_name": name,
        "ref_type": "tag" if tag else "branch",
        "actor": actor,
        "triggering_actor": actor,
    }
    return Variant(
        event="push",
        branch=None if tag else name,
        tag=name if tag else None,
        cause="push",
        github=payloads.github(repo, items),
    )


def push_rows(repo: Repo) -> Iterable[Row]:
    """List pushes."""
    actor = insider("the pusher")["login"]

    def branch(name: str, by: Value = actor) -> Variant:
        return _push_variant(repo, f"refs/heads/{name}", name, tag=False, actor=by)

    default = repo.default_branch
    yield Row(
        id="push:default", label=f"push to {default}", variants=(branch(default),), code=Trust.TRUSTED, cache="default"
    )
    for name in ("feature", "feat/x"):
        yield Row(id=f"push:{name}", label=f"push to {name}", variants=(branch(name),), code=Trust.INTERNAL)
    tag = _push_variant(repo, "refs/tags/v1.2.3", "v1.2.3", tag=True, actor=actor)
    yield Row(id="push:tag", label="push of a tag", variants=(tag,), code=Trust.TRUSTED)
    for number in ("7", "123"):
        mirror = branch(f"pull-request/{number}", "copy-pr-bot[bot]")
        yield Row(
            id=f"mirror:{number}",
            label=f"push to pull-request/{number}",
            variants=(mirror,),
            code=Trust.VETTED,
            head=Trust.VETTED,
        )


def chosen_payload() -> Unknown:
    """Make what whoever starts the run chooses."""
    return opaque("chosen by whoever sends the event", taints=(CHOSEN,), truthy=False)


def _default_variant(
    repo: Repo, name: str, event: Mapping[str, Value], *, action: str = "", actor: Value = None, **filters: str
) -> Variant:
    who = actor if actor is not None else insider("the actor")["login"]
    payload: dict[str, Value] = {
        "repository": payloads.repository(repo),
        "sender": OpenObject({"login": who}, rest=opaque("the sender")),
    }
    if action:
        payload["action"] = action
    items: dict[str, Value] = {
        "event_name": name,
        "event": {**payload, **event},
        "ref": f"refs/heads/{repo.default_branch}",
        "ref_name": repo.default_branch,
        "actor": who,
        "triggering_actor": who,
    }
    return Variant(
        event=name,
        action=action,
        branch=filters.get("branch"),
        cause=filters.get("cause", ""),
        github=payloads.github(repo, items),
    )


def dispatched_row(repo: Repo, row_id: str, label: str, name: str, event: Mapping[str, Value]) -> Row:
    """Make a row of the default branch."""
    return Row(
        id=row_id, label=label, variants=(_default_variant(repo, name, event),), code=Trust.TRUSTED, cache="default"
    )


def default_branch_rows(repo: Repo) -> Iterable[Row]:
    """List schedules, dispatches and the merge queue."""
    yield dispatched_row(repo, "schedule", "schedule", "schedule", {"schedule": opaque("the schedule's line")})
    chosen: dict[str, Value] = {"inputs": chosen_payload(), "workflow": opaque("the workflow's path")}
    yield dispatched_row(repo, "dispatch:default", f"dispatch on {repo.default_branch}", "workflow_dispatch", chosen)
    start = _default_variant(repo, "workflow_dispatch", chosen)
    elsewhere = {**start.github, "ref": "refs/heads/feature", "ref_name": "feature"}
    yield Row(
        id="dispatch:branch",
        label="dispatch on another branch",
        variants=(replace(start, github=elsewhere),),
        code=Trust.INTERNAL,
    )
    queue = f"gh-readonly-queue/{repo.default_branch}/pr-7-0123456789012345678901234567890123456789"
    group = OpenObject(
        {
            "base_ref": f"refs/heads/{repo.default_branch}",
            "head_ref": f"refs/heads/{queue}",
            "head_sha": opaque("the group's commit"),
        },
        rest=opaque("the merge group", truthy=False),
    )
    queued = _default_variant(
        repo, "merge_group", {"merge_group": group}, action="checks_requested", branch=repo.default_branch
    )
    ref = {**queued.github, "ref": f"refs/heads/{queue}", "ref_name": queue}
    yield Row(id="merge-group", label="merge queue", variants=(replace(queued, github=ref),), code=Trust.TRUSTED)


def run_rows(repo: Repo) -> Iterable[Row]:
    """List runs that other runs cause."""

    def variants(event: str, *, fork: bool, head: Value, branch: str | None) -> tuple[Variant, ...]:
        found = []
        for action in ("completed", "requested", "in_progress"):
            for conclusion in ("success", "failure", "cancelled") if action == "completed" else ("",):
                run = payloads.workflow_run(
                    repo, event=event, fork=fork, head_branch=head, conclusion=conclusion, name=""
                )
                payload: dict[str, Value] = {
                    "workflow_run": run,
                    "workflow": OpenObject({}, rest=opaque("the causing workflow")),
                }
                variant = _default_variant(
                    repo, "workflow_run", payload, action=action, actor="outsider" if fork else None, cause=event
                )
                found.append(replace(variant, branch=branch, branch_any=branch is None, other_than=repo.default_branch))
        return tuple(found)

    outside = attacker_text("the head branch's name", never=("", repo.default_branch))
    rows = (
        ("workflow-run:fork-pr", "run caused by a fork PR", "pull_request", Trust.UNTRUSTED, outside, None),
        (
            "workflow-run:fork-pr-from-default-name",
            f"run caused by a fork PR from a branch named {repo.default_branch}",
            "pull_request",
            Trust.UNTRUSTED,
            repo.default_branch,
            repo.default_branch,
        ),
        (
            "workflow-run:internal-pr",
            "run caused by an internal PR",
            "pull_request",
            Trust.INTERNAL,
            opaque("the head branch", never=(repo.default_branch,)),
            None,
        ),
        (
            "workflow-run:push-default",
            f"run caused by a push to {repo.default_branch}",
            "push",
            Trust.TRUSTED,
            repo.default_branch,
            repo.default_branch,
        ),
    )
    for row_id, label, event, head, name, branch in rows:
        fork = head is Trust.UNTRUSTED
        yield Row(
            id=row_id,
            label=label,
            variants=variants(event, fork=fork, head=name, branch=branch),
            code=Trust.TRUSTED,
            head=head,
            outsider=fork,
            cache="default",
            cache_writes=not fork,
        )


def comment_rows(repo: Repo, *, issues: bool) -> Iterable[Row]:
    """List comments by everybody on pull requests and, where files listen, on plain issues."""
    if issues:
        yield _comment_row(repo, "NONE", fork=None)
    for role, fork in (("NONE", True), ("CONTRIBUTOR", True), ("MEMBER", True), ("NONE", False)):
        yield _comment_row(repo, role, fork=fork)


PLACES = {
    True: ("fork-pr", "a fork PR", Trust.UNTRUSTED),
    False: ("internal-pr", "an internal PR", Trust.INTERNAL),
    None: ("issue", "an issue", None),
}
"""Where a comment stands: its word in the id, its words for people, whose code its pull request holds."""


def _comment_row(repo: Repo, role: str, *, fork: bool | None) -> Row:
    place, where, head = PLACES[fork]
    outside = role in payloads.OUTSIDE_ROLES
    payload: dict[str, Value] = {"comment": payloads.comment(repo, role), "issue": payloads.issue(repo, fork=fork)}
    actor: Value = payloads.OUTSIDER if outside else None
    return Row(
        id=f"comment:{role}@{place}",
        label=f"comment by {role} on {where}",
        variants=tuple(
            _default_variant(repo, "issue_comment", payload, action=action, actor=actor)
            for action in ("created", "edited", "deleted")
        ),
        code=Trust.TRUSTED,
        head=head,
        outsider=outside,
        cache="default",
        cache_writes=False,
    )


def issue_row(repo: Repo, action: str) -> Row:
    """Make the row of an issue."""
    names = (OTHER_LABEL,) if action == "labeled" else ()
    payload: dict[str, Value] = {"issue": payloads.issue(repo, fork=None, names=names)}
    if names:
        payload["label"] = opaque("the label", truthy=False)
    by_outsider = action in ("opened", "edited", "closed", "reopened", "deleted")
    actor: Value = payloads.OUTSIDER if by_outsider else None
    return Row(
        id=f"issues:{action}",
        label=f"issue {action}",
        variants=(_default_variant(repo, "issues", payload, action=action, actor=actor),),
        code=Trust.TRUSTED,
        outsider=by_outsider,
        cache="default",
        cache_writes=False,
    )


def release_row(repo: Repo) -> Row:
    """Make the row of a release."""
    release = OpenObject(
        {"tag_name": "v1.2.3", "draft": False, "prerelease": Unknown(reason="a prerelease", options=(False, True))},
        rest=opaque("the release", truthy=False),
    )
    variants = []
    for action in ("published", "released", "created", "edited", "prereleased", "deleted", "unpublished"):
        start = _default_variant(repo, "release", {"release": release}, action=action)
        ref = {**start.github, "ref": "refs/tags/v1.2.3", "ref_name": "v1.2.3", "ref_type": "tag"}
        variants.append(replace(start, github=ref))
    return Row(id="release", label="release", variants=tuple(variants), code=Trust.TRUSTED)


def other_row(repo: Repo, name: str) -> Row:
    """Make the row of an event that files ask for and no other row covers."""
    outside = name in OUTSIDER_EVENTS
    start = _default_variant(repo, name, {}, actor=payloads.OUTSIDER if outside else None)
    event = start.github["event"]
    assert isinstance(event, dict)
    known: dict[str, Value] = {**event}
    if name.startswith("discussion"):
        known["discussion"] = payloads.issue(repo, fork=None)
        known["comment"] = payloads.comment(repo, "NONE")
    rest = opaque(f"the payload of {name}", taints=(ATTACKER,) if name == "gollum" else (), truthy=False)
    context = {**start.github, "event": OpenObject(known, rest=rest)}
    return Row(
        id=name,
        label=name,
        variants=(replace(start, github=context),),
        code=Trust.TRUSTED,
        outsider=outside,
        cache="default",
        cache_writes=not outside,
    )
