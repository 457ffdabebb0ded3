"""The rows of the table: about forty events, each with what the service sends and grants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ci.trust import payloads
from ci.trust.payloads import PullRequest, Repo, attacker_text, insider, login, opaque
from ci.trust.trust import Trust
from ci.trust.values import ATTACKER, CHOSEN, OpenObject, Unknown, Value

OTHER_LABEL = "(other)"
"""Stands for a label that no file mentions."""

PULL_TYPES = ("opened", "synchronize", "reopened", "labeled")
OUTSIDER_EVENTS = frozenset(
    {"discussion", "discussion_comment", "watch", "fork", "gollum", "check_run", "check_suite", "status"}
)


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One concrete delivery: what filters look at, and the `github` context.

    `branch` is what `branches` filters compare; with `branch_any` somebody
    chooses it freely, any name but `other_than`. `cause` is the event that
    caused the run that caused this one.
    """

    event: str
    action: str = ""
    branch: str | None = None
    branch_any: bool = False
    other_than: str = ""
    tag: str | None = None
    cause: str = ""
    github: Mapping[str, Value]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One event row: who can cause it, whose code it brings, what power it gets.

    `head` is the trust of the pull request or run that an explicit checkout
    can reach (None: there is none). `cache` is `private`, `ref` or `default`.
    """

    id: str
    label: str
    variants: tuple[Variant, ...]
    code: Trust
    head: Trust | None = None
    outsider: bool = False
    read_only: bool = False
    secrets: bool = True
    has_vars: bool = True
    cache: str = "ref"
    cache_writes: bool = True


@dataclass(frozen=True, kw_only=True)
class Mentions:
    """What the files mention that adds rows: labels, `types` of pull requests and issues, other events."""

    labels: tuple[str, ...] = ()
    pull_types: tuple[str, ...] = ()
    issue_types: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    listens_to_labeled: bool = False
    other_base: bool = False


def build_rows(repo: Repo, mentions: Mentions) -> tuple[Row, ...]:
    """List every row for a repository, in the order of the table."""
    labels = (*mentions.labels, *((OTHER_LABEL,) if mentions.listens_to_labeled else ()))
    rows = [
        *_fork_rows(repo, mentions, labels),
        *_internal_rows(repo, labels),
        *_push_rows(repo),
        *_default_branch_rows(repo),
        *_run_rows(repo),
        *_comment_rows(repo),
        *(_issue_row(repo, kind) for kind in ("opened", *mentions.issue_types)),
        *_target_rows(repo, mentions, labels),
        _review_row(repo),
        _release_row(repo),
        _default_row(repo, "repository-dispatch", "repository dispatch", "repository_dispatch", {"client_payload": _payload()}),
        *(_other_row(repo, name) for name in mentions.events),
    ]
    return tuple(rows)


def _pull_variant(repo: Repo, pull: PullRequest, action: str, *, event: str = "pull_request", label: str = "") -> Variant:
    by_author = action in ("opened", "synchronize", "reopened", "edited", "closed", "ready_for_review", "converted_to_draft")
    if pull.author and by_author:
        name: Value = pull.author
    else:
        name = insider("the actor")["login"]
    sender: Value = login(pull.author, repo) if pull.author and by_author else insider("the sender")
    payload: dict[str, Value] = {
        "action": action, "number": payloads.NUMBER, "pull_request": payloads.pull_request(repo, pull),
        "repository": payloads.repository(repo), "sender": sender, "organization": login(repo.owner, repo),
    }  # fmt: skip
    if label:
        payload["label"] = payloads.labels((label,))[0]
    if action == "synchronize":
        payload["before"], payload["after"] = opaque("the commit before"), payloads.head_commit()
    head = pull.head_ref or payload["pull_request"]["head"]["ref"]  # type: ignore[index,call-overload]
    base = payloads.base_branch(repo, pull)
    merge_ref = event != "pull_request_target"
    items: dict[str, Value] = {
        "event_name": event, "event": payload, "actor": name, "triggering_actor": name,
        "head_ref": head, "base_ref": base,
        "ref": "refs/pull/7/merge" if merge_ref else f"refs/heads/{repo.default_branch}",
        "ref_name": "7/merge" if merge_ref else repo.default_branch,
    }  # fmt: skip
    branch = None if pull.other_base else repo.default_branch
    return Variant(
        event=event, action=action, branch=branch, branch_any=pull.other_base, other_than=repo.default_branch, cause="pull_request",
        github=payloads.github(repo, items),
    )  # fmt: skip


def _fork_row(row_id: str, label: str, *variants: Variant) -> Row:
    return Row(
        id=row_id, label=label, variants=variants, code=Trust.UNTRUSTED, head=Trust.UNTRUSTED, outsider=True,
        read_only=True, secrets=False, has_vars=False, cache="private",
    )  # fmt: skip


def _fork_rows(repo: Repo, mentions: Mentions, labels: tuple[str, ...]) -> Iterable[Row]:
    fork = PullRequest(fork=True)
    for action in ("opened", "synchronize", "reopened"):
        yield _fork_row(f"fork-pr:{action}", f"fork PR {action}", _pull_variant(repo, fork, action))
    for action in mentions.pull_types:
        yield _fork_row(f"fork-pr:{action}", f"fork PR {action}", _pull_variant(repo, fork, action))
    for label in labels:
        labelled = replace(fork, labels=(label,))
        yield _fork_row(f"fork-pr:labeled={label}", f"fork PR labeled {label}", _pull_variant(repo, labelled, "labeled", label=label))
    for label in labels:
        labelled = replace(fork, labels=(label,))
        yield _fork_row(f"fork-pr:synchronize+label={label}", f"push to a fork PR labeled {label}", _pull_variant(repo, labelled, "synchronize"))
    gone = replace(fork, deleted=True)
    yield _fork_row("deleted-fork-pr:reopened", "PR of a deleted fork reopened", _pull_variant(repo, gone, "reopened"))
    for label in labels:
        labelled = replace(gone, labels=(label,))
        yield _fork_row(
            f"deleted-fork-pr:labeled={label}", f"PR of a deleted fork labeled {label}", _pull_variant(repo, labelled, "labeled", label=label)
        )
    named = replace(fork, head_ref=repo.default_branch)
    yield _fork_row(
        "fork-pr-from-default-name:opened", f"fork PR from a branch named {repo.default_branch}", _pull_variant(repo, named, "opened")
    )
    if mentions.other_base:
        other = replace(fork, other_base=True)
        actions = dict.fromkeys((*PULL_TYPES[:3], *mentions.pull_types))
        variants = [_pull_variant(repo, other, action) for action in actions]
        variants += [_pull_variant(repo, replace(other, labels=(label,)), "labeled", label=label) for label in labels]
        variants += [_pull_variant(repo, replace(other, labels=(label,)), "synchronize") for label in labels]
        yield _fork_row("fork-pr-to-other-branch:opened", "fork PR against another branch", *variants)


def _internal_rows(repo: Repo, labels: tuple[str, ...]) -> Iterable[Row]:
    inside = PullRequest(fork=False, author="")

    def row(row_id: str, label: str, *variants: Variant) -> Row:
        return Row(id=row_id, label=label, variants=variants, code=Trust.INTERNAL, head=Trust.INTERNAL, cache="private")

    yield row("internal-pr:opened", "internal PR opened", _pull_variant(repo, inside, "opened"))
    for label in labels:
        labelled = replace(inside, labels=(label,))
        yield row(f"internal-pr:labeled={label}", f"internal PR labeled {label}", _pull_variant(repo, labelled, "labeled", label=label))
    for label in labels:
        labelled = replace(inside, labels=(label,))
        yield row(
            f"internal-pr:synchronize+label={label}", f"push to an internal PR labeled {label}", _pull_variant(repo, labelled, "synchronize")
        )
    bot = PullRequest(fork=False, author="dependabot[bot]", head_ref="dependabot/pip/example-1.2.3")
    yield Row(
        id="dependabot-pr:opened", label="Dependabot PR opened", variants=(_pull_variant(repo, bot, "opened"),),
        code=Trust.DEPENDENCY_BOT, head=Trust.DEPENDENCY_BOT, read_only=True, cache="private",
    )  # fmt: skip


def _push_variant(repo: Repo, ref: str, name: str, *, tag: bool, actor: Value) -> Variant:
    event: dict[str, Value] = {
        "ref": ref, "before": opaque("the commit before"), "after": opaque("the commit after"), "commits": opaque("the commits"),
        "head_commit": OpenObject({"message": opaque("the commit message")}, rest=opaque("the head commit")),
        "pusher": OpenObject({"name": actor}, rest=opaque("the pusher")), "forced": Unknown(reason="a forced push", options=(False, True)),
        "deleted": False, "created": Unknown(reason="a new ref", options=(False, True)), "base_ref": None, "compare": opaque("the comparison"),
        "repository": payloads.repository(repo), "sender": OpenObject({"login": actor}, rest=opaque("the sender")),
    }  # fmt: skip
    items: dict[str, Value] = {
        "event_name": "push", "event": event, "ref": ref, "ref_name": name, "ref_type": "tag" if tag else "branch",
        "actor": actor, "triggering_actor": actor,
    }  # fmt: skip
    return Variant(event="push", branch=None if tag else name, tag=name if tag else None, cause="push", github=payloads.github(repo, items))


def _push_rows(repo: Repo) -> Iterable[Row]:
    actor = insider("the pusher")["login"]

    def branch(name: str, by: Value = actor) -> Variant:
        return _push_variant(repo, f"refs/heads/{name}", name, tag=False, actor=by)

    default = repo.default_branch
    yield Row(id="push:default", label=f"push to {default}", variants=(branch(default),), code=Trust.TRUSTED, cache="default")
    for name in ("feature", "feat/x"):
        yield Row(id=f"push:{name}", label=f"push to {name}", variants=(branch(name),), code=Trust.INTERNAL)
    tag = _push_variant(repo, "refs/tags/v1.2.3", "v1.2.3", tag=True, actor=actor)
    yield Row(id="push:tag", label="push of a tag", variants=(tag,), code=Trust.TRUSTED)
    for number in ("7", "123"):
        mirror = branch(f"pull-request/{number}", "copy-pr-bot[bot]")
        yield Row(id=f"mirror:{number}", label=f"push to pull-request/{number}", variants=(mirror,), code=Trust.VETTED, head=Trust.VETTED)


def _payload() -> Unknown:
    return opaque("chosen by whoever sends the event", taints=(CHOSEN,), truthy=False)


def _default_variant(repo: Repo, name: str, event: Mapping[str, Value], *, action: str = "", actor: Value = None, **filters: str) -> Variant:
    who = actor if actor is not None else insider("the actor")["login"]
    payload: dict[str, Value] = {"repository": payloads.repository(repo), "sender": OpenObject({"login": who}, rest=opaque("the sender"))}
    if action:
        payload["action"] = action
    items: dict[str, Value] = {
        "event_name": name, "event": {**payload, **event}, "ref": f"refs/heads/{repo.default_branch}",
        "ref_name": repo.default_branch, "actor": who, "triggering_actor": who,
    }  # fmt: skip
    return Variant(event=name, action=action, branch=filters.get("branch"), cause=filters.get("cause", ""), github=payloads.github(repo, items))


def _default_row(repo: Repo, row_id: str, label: str, name: str, event: Mapping[str, Value]) -> Row:
    return Row(id=row_id, label=label, variants=(_default_variant(repo, name, event),), code=Trust.TRUSTED, cache="default")


def _default_branch_rows(repo: Repo) -> Iterable[Row]:
    yield _default_row(repo, "schedule", "schedule", "schedule", {"schedule": opaque("the schedule's line")})
    chosen: dict[str, Value] = {"inputs": _payload(), "workflow": opaque("the workflow's path")}
    yield _default_row(repo, "dispatch:default", f"dispatch on {repo.default_branch}", "workflow_dispatch", chosen)
    start = _default_variant(repo, "workflow_dispatch", chosen)
    elsewhere = {**start.github, "ref": "refs/heads/feature", "ref_name": "feature"}
    yield Row(
        id="dispatch:branch", label="dispatch on another branch", variants=(replace(start, github=elsewhere),), code=Trust.INTERNAL
    )
    queue = f"gh-readonly-queue/{repo.default_branch}/pr-7-0123456789012345678901234567890123456789"
    group = OpenObject(
        {"base_ref": f"refs/heads/{repo.default_branch}", "head_ref": f"refs/heads/{queue}", "head_sha": opaque("the group's commit")},
        rest=opaque("the merge group", truthy=False),
    )
    queued = _default_variant(repo, "merge_group", {"merge_group": group}, action="checks_requested", branch=repo.default_branch)
    ref = {**queued.github, "ref": f"refs/heads/{queue}", "ref_name": queue}
    yield Row(id="merge-group", label="merge queue", variants=(replace(queued, github=ref),), code=Trust.TRUSTED)


def _run_rows(repo: Repo) -> Iterable[Row]:
    def variants(event: str, *, fork: bool, head: Value, branch: str | None) -> tuple[Variant, ...]:
        found = []
        for action in ("completed", "requested", "in_progress"):
            for conclusion in ("success", "failure", "cancelled") if action == "completed" else ("",):
                run = payloads.workflow_run(repo, event=event, fork=fork, head_branch=head, conclusion=conclusion, name="")
                payload: dict[str, Value] = {"workflow_run": run, "workflow": OpenObject({}, rest=opaque("the causing workflow"))}
                variant = _default_variant(repo, "workflow_run", payload, action=action, actor="outsider" if fork else None, cause=event)
                found.append(replace(variant, branch=branch, branch_any=branch is None, other_than=repo.default_branch))
        return tuple(found)

    outside = attacker_text("the head branch's name", never=("", repo.default_branch))
    rows = (
        ("workflow-run:fork-pr", "run caused by a fork PR", "pull_request", Trust.UNTRUSTED, outside, None),
        (
            "workflow-run:fork-pr-from-default-name", f"run caused by a fork PR from a branch named {repo.default_branch}",
            "pull_request", Trust.UNTRUSTED, repo.default_branch, repo.default_branch,
        ),
        ("workflow-run:internal-pr", "run caused by an internal PR", "pull_request", Trust.INTERNAL, opaque("the head branch", never=(repo.default_branch,)), None),
        ("workflow-run:push-default", f"run caused by a push to {repo.default_branch}", "push", Trust.TRUSTED, repo.default_branch, repo.default_branch),
    )  # fmt: skip
    for row_id, label, event, head, name, branch in rows:
        fork = head is Trust.UNTRUSTED
        yield Row(
            id=row_id, label=label, variants=variants(event, fork=fork, head=name, branch=branch), code=Trust.TRUSTED, head=head,
            outsider=fork, cache="default", cache_writes=not fork,
        )  # fmt: skip


def _comment_rows(repo: Repo) -> Iterable[Row]:
    for role, fork in (("NONE", True), ("CONTRIBUTOR", True), ("MEMBER", True), ("NONE", False)):
        outside = role in payloads.OUTSIDE_ROLES
        payload: dict[str, Value] = {"comment": payloads.comment(repo, role), "issue": payloads.issue(repo, fork=fork)}
        actor: Value = payloads.OUTSIDER if outside else None
        place = "fork-pr" if fork else "internal-pr"
        yield Row(
            id=f"comment:{role}@{place}", label=f"comment by {role} on {'a fork' if fork else 'an internal'} PR",
            variants=tuple(_default_variant(repo, "issue_comment", payload, action=action, actor=actor) for action in ("created", "edited", "deleted")),
            code=Trust.TRUSTED, head=Trust.UNTRUSTED if fork else Trust.INTERNAL, outsider=outside, cache="default", cache_writes=False,
        )  # fmt: skip


def _issue_row(repo: Repo, action: str) -> Row:
    names = (OTHER_LABEL,) if action == "labeled" else ()
    payload: dict[str, Value] = {"issue": payloads.issue(repo, fork=None, names=names)}
    if names:
        payload["label"] = opaque("the label", truthy=False)
    by_outsider = action in ("opened", "edited", "closed", "reopened", "deleted")
    actor: Value = payloads.OUTSIDER if by_outsider else None
    return Row(
        id=f"issues:{action}", label=f"issue {action}", variants=(_default_variant(repo, "issues", payload, action=action, actor=actor),),
        code=Trust.TRUSTED, outsider=by_outsider, cache="default", cache_writes=False,
    )  # fmt: skip


def _target_rows(repo: Repo, mentions: Mentions, labels: tuple[str, ...]) -> Iterable[Row]:
    for fork, place in ((True, "fork"), (False, "internal")):
        pull = PullRequest(fork=fork, author=payloads.OUTSIDER if fork else "")
        variants = [
            _pull_variant(repo, pull, action, event="pull_request_target")
            for action in dict.fromkeys((*PULL_TYPES[:3], *mentions.pull_types))
        ]
        for label in labels:
            labelled = replace(pull, labels=(label,))
            variants.append(_pull_variant(repo, labelled, "labeled", event="pull_request_target", label=label))
            variants.append(_pull_variant(repo, labelled, "synchronize", event="pull_request_target"))
        yield Row(
            id=f"pr-target:{place}", label=f"pull_request_target of {'a fork' if fork else 'an internal'} PR", variants=tuple(variants),
            code=Trust.TRUSTED, head=Trust.UNTRUSTED if fork else Trust.INTERNAL, outsider=fork, cache="default", cache_writes=False,
        )  # fmt: skip


def _review_row(repo: Repo) -> Row:
    pull = PullRequest(fork=True)
    variants = []
    for event, key, actions in (
        ("pull_request_review", "review", ("submitted", "edited", "dismissed")),
        ("pull_request_review_comment", "comment", ("created", "edited", "deleted")),
    ):
        for action in actions:
            start = _pull_variant(repo, pull, action, event=event)
            payload = {**start.github["event"], key: payloads.comment(repo, "NONE")}  # type: ignore[dict-item]
            context = {**start.github, "event": payload, "actor": payloads.OUTSIDER, "triggering_actor": payloads.OUTSIDER}
            variants.append(replace(start, github=context))
    return replace(_fork_row("review:NONE@fork-pr", "review by anyone on a fork PR"), variants=tuple(variants))


def _release_row(repo: Repo) -> Row:
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


def _other_row(repo: Repo, name: str) -> Row:
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
        id=name, label=name, variants=(replace(start, github=context),), code=Trust.TRUSTED, outsider=outside,
        cache="default", cache_writes=not outside,
    )  # fmt: skip
