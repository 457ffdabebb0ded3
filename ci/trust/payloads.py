"""Contexts of the simulated events: what `github` and `github.event` hold.

Keys that the service always sends and that matter are modelled; inside an
object of the payload any other key is unknown, never null. A top-level key
that the event does not have is null, as it is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ci.trust.functions import concatenate
from ci.trust.values import ATTACKER, PR_HEAD, RUN_ARTIFACT, UNIQUE, OpenObject, Unknown, Value, text_of

FORK_OWNER = "outsider-fork-owner"
OUTSIDER = "outsider"
FORK_ID, OUTSIDER_ID = 2_000_000_002.0, 2_000_000_003.0
NUMBER = 7.0
OUTSIDE_ROLES: tuple[Value, ...] = ("NONE", "CONTRIBUTOR", "FIRST_TIME_CONTRIBUTOR", "FIRST_TIMER", "MANNEQUIN")
INSIDE_ROLES: tuple[Value, ...] = ("OWNER", "MEMBER", "COLLABORATOR")
BOTS = (
    "dependabot[bot]",
    "dependabot-preview[bot]",
    "renovate[bot]",
    "github-actions[bot]",
    "copy-pr-bot[bot]",
    "pre-commit-ci[bot]",
    "github-merge-queue[bot]",
)


@dataclass(frozen=True, kw_only=True)
class Repo:
    """The audited repository: `owner/name` and its default branch."""

    full_name: str
    default_branch: str

    @property
    def owner(self) -> str:
        """Give the owner's login."""
        return self.full_name.partition("/")[0]

    @property
    def name(self) -> str:
        """Give the name without its owner."""
        return self.full_name.partition("/")[2]

    @property
    def fork(self) -> str:
        """Give the full name of a stranger's fork."""
        return f"{FORK_OWNER}/{self.name}"


def opaque(reason: str, *, taints: tuple[str, ...] = (), truthy: bool = True, never: tuple[str, ...] = ()) -> Unknown:
    """Make a value that the files do not tell."""
    return Unknown(reason=reason, truthy=truthy, never=never, taints=frozenset(taints))


def attacker_text(what: str, *, never: tuple[str, ...] = ()) -> Unknown:
    """Make a text that a stranger writes."""
    return opaque(f"{what} is written by the outsider", taints=(ATTACKER,), truthy="" in never, never=never)


def login(name: str, repo: Repo) -> OpenObject:
    """Make a user or an organization."""
    kind = "Bot" if name.endswith("[bot]") else "Organization" if name == repo.owner else "User"
    number: Value = OUTSIDER_ID if name in (OUTSIDER, FORK_OWNER) else opaque("an id", never=(text_of(OUTSIDER_ID),))
    return OpenObject({"login": name, "type": kind, "id": number}, rest=opaque(f"user {name}", truthy=False))


def insider(what: str) -> OpenObject:
    """Make a user with write access, whose login is not known."""
    name = opaque(f"{what} is somebody with write access", never=(*BOTS, OUTSIDER, FORK_OWNER, ""))
    return OpenObject({"login": name, "type": "User"}, rest=opaque(what, truthy=False))


def repository(repo: Repo, *, fork: bool = False) -> OpenObject:
    """Make a repository object: ours, or the stranger's fork."""
    full, owner = (repo.fork, FORK_OWNER) if fork else (repo.full_name, repo.owner)
    items: dict[str, Value] = {
        "full_name": full,
        "name": repo.name,
        "owner": login(owner, repo),
        "fork": fork,
        "default_branch": repo.default_branch,
        "id": FORK_ID if fork else opaque("our repository's id", never=(text_of(FORK_ID),)),
        "archived": False,
        "disabled": False,
        "html_url": f"https://github.com/{full}",
        "clone_url": f"https://github.com/{full}.git",
        "ssh_url": f"git@github.com:{full}.git",
    }
    if fork:
        items |= {key: attacker_text(f"the fork's {key}") for key in ("description", "homepage", "default_branch")}
    return OpenObject(items, rest=opaque("the repository's payload", truthy=False))


def labels(names: tuple[str, ...]) -> list[Value]:
    """Make the labels of an issue or a pull request."""
    return [OpenObject({"name": name}, rest=opaque("a label", truthy=False)) for name in names]


@dataclass(frozen=True, kw_only=True)
class PullRequest:
    """The side of a pull request that the rows differ in."""

    fork: bool
    author: str = OUTSIDER
    deleted: bool = False
    head_ref: str = ""
    labels: tuple[str, ...] = ()
    other_base: bool = False


def pull_request(repo: Repo, pull: PullRequest) -> OpenObject:
    """Make `github.event.pull_request`."""
    free = attacker_text if pull.fork else _insider_text
    head_repo: Value = None if pull.deleted else repository(repo, fork=pull.fork)
    owner = FORK_OWNER if pull.fork else repo.owner
    author: Value = login(pull.author, repo) if pull.author else insider("the author")
    head_ref: Value = pull.head_ref or free("the head branch's name", never=("", repo.default_branch))
    head = OpenObject(
        {
            "ref": head_ref,
            "repo": head_repo,
            "sha": head_commit(),
            "user": None if pull.deleted else login(owner, repo),
            "label": concatenate([f"{owner}:", head_ref]),
        },
        rest=opaque("the head's payload", truthy=False, taints=(PR_HEAD,)),
    )
    base = OpenObject(
        {
            "ref": base_branch(repo, pull),
            "repo": repository(repo),
            "sha": opaque("the base commit"),
            "user": login(repo.owner, repo),
        },
        rest=opaque("the base's payload", truthy=False),
    )
    roles = (
        OUTSIDE_ROLES
        if pull.author == OUTSIDER and pull.fork
        else INSIDE_ROLES
        if pull.author != "dependabot[bot]"
        else ("CONTRIBUTOR", "NONE")
    )
    items: dict[str, Value] = {
        "number": NUMBER,
        "head": head,
        "base": base,
        "user": author,
        "labels": labels(pull.labels),
        "title": free("the title"),
        "body": free("the body"),
        "merged": False,
        "state": "open",
        "draft": Unknown(reason="the author chooses whether it is a draft", options=(False, True)),
        "author_association": Unknown(reason="the author's association", options=roles),
        "merge_commit_sha": head_commit(),
        "html_url": f"https://github.com/{repo.full_name}/pull/7",
        "head_ref": None,
    }
    return OpenObject(items, rest=opaque("the pull request's payload", truthy=False))


def _insider_text(what: str, *, never: tuple[str, ...] = ()) -> Unknown:
    return opaque(f"{what} is written by somebody with write access", truthy="" in never, never=never)


def head_commit() -> Unknown:
    """Make the commit at a pull request's head."""
    return opaque("the head commit", taints=(PR_HEAD,))


def base_branch(repo: Repo, pull: PullRequest) -> Value:
    """Give the branch that a pull request is to be merged into."""
    if pull.other_base:
        return opaque("the base branch is chosen by the author", never=(repo.default_branch, ""))
    return repo.default_branch


def issue(repo: Repo, *, fork: bool | None, names: tuple[str, ...] = ()) -> OpenObject:
    """Make `github.event.issue`; `fork` None is a plain issue, else a pull request's."""
    free = _insider_text if fork is False else attacker_text
    roles = INSIDE_ROLES if fork is False else OUTSIDE_ROLES
    items: dict[str, Value] = {
        "number": NUMBER,
        "title": free("the title"),
        "body": free("the body"),
        "labels": labels(names),
        "state": "open",
        "user": insider("the author") if fork is False else login(OUTSIDER, repo),
        "author_association": Unknown(reason="the author's association", options=roles),
        "pull_request": None
        if fork is None
        else OpenObject(
            {"url": f"https://api.github.com/repos/{repo.full_name}/pulls/7"},
            rest=opaque("the pull request's links"),
        ),
    }
    return OpenObject(items, rest=opaque("the issue's payload", truthy=False))


def comment(repo: Repo, role: str) -> OpenObject:
    """Make a comment or a review by somebody of a role."""
    inside = role in INSIDE_ROLES
    free = _insider_text if inside else attacker_text
    items: dict[str, Value] = {
        "body": free("the comment"),
        "diff_hunk": free("the commented lines"),
        "path": free("the commented path"),
        "author_association": role,
        "user": insider("the commenter") if inside else login(OUTSIDER, repo),
        "state": Unknown(
            reason="the reviewer chooses the state", options=("approved", "commented", "changes_requested")
        ),
    }
    return OpenObject(items, rest=opaque("the comment's payload", truthy=False))


def workflow_run(repo: Repo, *, event: str, fork: bool, head_branch: Value, conclusion: str, name: str) -> OpenObject:
    """Make `github.event.workflow_run`; a fork's run lists no pull request."""
    taints = (ATTACKER,) if fork else ()
    pulls: list[Value] = []
    if event == "pull_request" and not fork:
        pulls = [OpenObject({"number": NUMBER}, rest=opaque("the pull request", truthy=False, taints=(PR_HEAD,)))]
    head = opaque("the run's head commit", taints=(PR_HEAD,))
    items: dict[str, Value] = {
        "event": event,
        "conclusion": conclusion,
        "status": "completed",
        "name": name or opaque("the run's name"),
        "id": opaque("the id of the run that caused this one", taints=(RUN_ARTIFACT,)),
        "head_sha": head,
        "head_branch": head_branch,
        "pull_requests": pulls,
        "head_repository": repository(repo, fork=fork),
        "repository": repository(repo),
        "display_title": attacker_text("the run's title") if fork else opaque("the run's title"),
        "actor": login(OUTSIDER, repo) if fork else insider("the actor"),
        "triggering_actor": login(OUTSIDER, repo) if fork else insider("the actor"),
        "head_commit": OpenObject(
            {
                "message": opaque("the commit message", taints=taints),
                "author": opaque("the commit's author", taints=taints),
                "id": head,
            },
            rest=opaque("the head commit"),
        ),
        "artifacts_url": opaque("the run's artifacts", taints=(RUN_ARTIFACT,)),
    }
    return OpenObject(items, rest=opaque("the run's payload", truthy=False))


def github(repo: Repo, items: Mapping[str, Value]) -> dict[str, Value]:
    """Make the `github` context; `items` are what the event decides."""
    start: dict[str, Value] = {
        "repository": repo.full_name,
        "repository_owner": repo.owner,
        "repositoryUrl": f"git://github.com/{repo.full_name}.git",
        "server_url": "https://github.com",
        "api_url": "https://api.github.com",
        "graphql_url": "https://api.github.com/graphql",
        "sha": opaque("the commit of the event", taints=(UNIQUE,)),
        "run_id": opaque("the run's id", taints=(UNIQUE,)),
        "run_number": opaque("the run's number", taints=(UNIQUE,)),
        "run_attempt": opaque("the attempt"),
        "token": opaque("the job's token"),
        "job": opaque("the job's id"),
        "repository_id": opaque("our repository's id", never=(text_of(FORK_ID),)),
        "repository_owner_id": opaque("our owner's id", never=(text_of(OUTSIDER_ID),)),
        "repository_visibility": opaque("the repository's visibility"),
        "ref_protected": Unknown(reason="branch protection", options=(True, False)),
        "head_ref": "",
        "base_ref": "",
        "ref_type": "branch",
        "workspace": opaque("the workspace"),
        "event_path": opaque("the payload's path"),
        "action_path": opaque("the action's path"),
        "retention_days": opaque("the retention"),
        "secret_source": "Actions",
    }
    return {**start, **items}
