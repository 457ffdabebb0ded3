"""Rows of pull requests: of forks, of our own branches, of bots, on every trigger that they cause."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ci.trust import payloads
from ci.trust.payloads import PullRequest, Repo, insider, login, opaque
from ci.trust.rows import PULL_TYPES, Mentions, Row, Variant
from ci.trust.trust import Trust
from ci.trust.values import Value


def _pull_variant(
    repo: Repo, pull: PullRequest, action: str, *, event: str = "pull_request", label: str = ""
) -> Variant:
    by_author = action in (
        "opened",
        "synchronize",
        "reopened",
        "edited",
        "closed",
        "ready_for_review",
        "converted_to_draft",
    )
    if pull.author and by_author:
        name: Value = pull.author
    else:
        name = insider("the actor")["login"]
    sender: Value = login(pull.author, repo) if pull.author and by_author else insider("the sender")
    payload: dict[str, Value] = {
        "action": action,
        "number": payloads.NUMBER,
        "pull_request": payloads.pull_request(repo, pull),
        "repository": payloads.repository(repo),
        "sender": sender,
        "organization": login(repo.owner, repo),
    }
    if label:
        payload["label"] = payloads.labels((label,))[0]
    if action == "synchronize":
        payload["before"], payload["after"] = opaque("the commit before"), payloads.head_commit()
    head = pull.head_ref or payload["pull_request"]["head"]["ref"]  # type: ignore[index,call-overload]
    base = payloads.base_branch(repo, pull)
    merge_ref = event != "pull_request_target"
    items: dict[str, Value] = {
        "event_name": event,
        "event": payload,
        "actor": name,
        "triggering_actor": name,
        "head_ref": head,
        "base_ref": base,
        "ref": "refs/pull/7/merge" if merge_ref else f"refs/heads/{repo.default_branch}",
        "ref_name": "7/merge" if merge_ref else repo.default_branch,
    }
    branch = None if pull.other_base else repo.default_branch
    return Variant(
        event=event,
        action=action,
        branch=branch,
        branch_any=pull.other_base,
        other_than=repo.default_branch,
        cause="pull_request",
        github=payloads.github(repo, items),
    )


def _fork_row(row_id: str, label: str, *variants: Variant) -> Row:
    return Row(
        id=row_id,
        label=label,
        variants=variants,
        code=Trust.UNTRUSTED,
        head=Trust.UNTRUSTED,
        outsider=True,
        read_only=True,
        secrets=False,
        has_vars=False,
        cache="private",
    )


def fork_rows(repo: Repo, mentions: Mentions, labels: tuple[str, ...]) -> Iterable[Row]:
    """List pull requests of forks."""
    fork = PullRequest(fork=True)
    for action in ("opened", "synchronize", "reopened"):
        yield _fork_row(f"fork-pr:{action}", f"fork PR {action}", _pull_variant(repo, fork, action))
    for action in mentions.pull_types:
        yield _fork_row(f"fork-pr:{action}", f"fork PR {action}", _pull_variant(repo, fork, action))
    for label in labels:
        labelled = replace(fork, labels=(label,))
        yield _fork_row(
            f"fork-pr:labeled={label}",
            f"fork PR labeled {label}",
            _pull_variant(repo, labelled, "labeled", label=label),
        )
    for label in labels:
        labelled = replace(fork, labels=(label,))
        yield _fork_row(
            f"fork-pr:synchronize+label={label}",
            f"push to a fork PR labeled {label}",
            _pull_variant(repo, labelled, "synchronize"),
        )
    gone = replace(fork, deleted=True)
    yield _fork_row("deleted-fork-pr:reopened", "PR of a deleted fork reopened", _pull_variant(repo, gone, "reopened"))
    for label in labels:
        labelled = replace(gone, labels=(label,))
        yield _fork_row(
            f"deleted-fork-pr:labeled={label}",
            f"PR of a deleted fork labeled {label}",
            _pull_variant(repo, labelled, "labeled", label=label),
        )
    named = replace(fork, head_ref=repo.default_branch)
    yield _fork_row(
        "fork-pr-from-default-name:opened",
        f"fork PR from a branch named {repo.default_branch}",
        _pull_variant(repo, named, "opened"),
    )
    if mentions.other_base:
        other = replace(fork, other_base=True)
        actions = dict.fromkeys((*PULL_TYPES[:3], *mentions.pull_types))
        variants = [_pull_variant(repo, other, action) for action in actions]
        variants += [_pull_variant(repo, replace(other, labels=(label,)), "labeled", label=label) for label in labels]
        variants += [_pull_variant(repo, replace(other, labels=(label,)), "synchronize") for label in labels]
        yield _fork_row("fork-pr-to-other-branch:opened", "fork PR against another branch", *variants)


def internal_rows(repo: Repo, labels: tuple[str, ...]) -> Iterable[Row]:
    """List pull requests of the repository's own branches."""
    inside = PullRequest(fork=False, author="")

    def row(row_id: str, label: str, *variants: Variant) -> Row:
        return Row(id=row_id, label=label, variants=variants, code=Trust.INTERNAL, head=Trust.INTERNAL, cache="private")

    yield row("internal-pr:opened", "internal PR opened", _pull_variant(repo, inside, "opened"))
    for label in labels:
        labelled = replace(inside, labels=(label,))
        yield row(
            f"internal-pr:labeled={label}",
            f"internal PR labeled {label}",
            _pull_variant(repo, labelled, "labeled", label=label),
        )
    for label in labels:
        labelled = replace(inside, labels=(label,))
        yield row(
            f"internal-pr:synchronize+label={label}",
            f"push to an internal PR labeled {label}",
            _pull_variant(repo, labelled, "synchronize"),
        )
    bot = PullRequest(fork=False, author="dependabot[bot]", head_ref="dependabot/pip/example-1.2.3")
    yield Row(
        id="dependabot-pr:opened",
        label="Dependabot PR opened",
        variants=(_pull_variant(repo, bot, "opened"),),
        code=Trust.DEPENDENCY_BOT,
        head=Trust.DEPENDENCY_BOT,
        read_only=True,
        cache="private",
    )


def target_rows(repo: Repo, mentions: Mentions, labels: tuple[str, ...]) -> Iterable[Row]:
    """List the privileged trigger of pull requests."""
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
            id=f"pr-target:{place}",
            label=f"pull_request_target of {'a fork' if fork else 'an internal'} PR",
            variants=tuple(variants),
            code=Trust.TRUSTED,
            head=Trust.UNTRUSTED if fork else Trust.INTERNAL,
            outsider=fork,
            cache="default",
            cache_writes=False,
        )


def review_row(repo: Repo) -> Row:
    """Make the row of a review."""
    pull = PullRequest(fork=True)
    variants = []
    for event, key, actions in (
        ("pull_request_review", "review", ("submitted", "edited", "dismissed")),
        ("pull_request_review_comment", "comment", ("created", "edited", "deleted")),
    ):
        for action in actions:
            start = _pull_variant(repo, pull, action, event=event)
            payload = {**start.github["event"], key: payloads.comment(repo, "NONE")}  # type: ignore[dict-item]
            context = {
                **start.github,
                "event": payload,
                "actor": payloads.OUTSIDER,
                "triggering_actor": payloads.OUTSIDER,
            }
            variants.append(replace(start, github=context))
    return replace(_fork_row("review:NONE@fork-pr", "review by anyone on a fork PR"), variants=tuple(variants))
