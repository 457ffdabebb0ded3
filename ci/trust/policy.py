"""`[tool.lockgate.trust]` or a policy file -> `Policy`: what the files cannot say.

All problems are listed before stopping. Keys may be written with `-` or `_`.
"""

from __future__ import annotations

import datetime as dt
import difflib
import fnmatch
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ci.errors import ConfigError
from ci.trust.trust import Kind

ATTESTATIONS = {
    "fork_approval": "workflows of all external contributors wait for approval",
    "runner_hook": "a hook on every runner refuses jobs of pull requests",
    "no_runner": "no runner is registered on the public repository",
}
"""Settings outside the files that a person vouches for, with what each says."""


@dataclass(frozen=True, kw_only=True)
class OwnRunner:
    """A label, or `group:NAME`, of machines of our own.

    `workflows` is the attested list of files that the group is limited to.
    """

    ephemeral: bool = False
    workflows: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """A finding that a person accepts, with the reason, until a day."""

    rule: str
    reason: str
    expires: dt.date
    workflow: str = "*"
    job: str = "*"
    event: str = "*"

    def covers(self, rule: str, workflow: str, job: str, event: str) -> bool:
        """Tell whether it is about a finding; places may use `*`."""
        pairs = ((self.workflow, workflow), (self.job, job), (self.event, event))
        # A job's matrix values stand in parentheses and labels may hold brackets: exact words first.
        return self.rule == rule and all(
            wanted == found or fnmatch.fnmatchcase(found, wanted) for wanted, found in pairs
        )


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What a person says about the repository's settings; the defaults assume the worst."""

    repository: str = ""
    hosted_labels: tuple[str, ...] = ()
    runners: Mapping[str, OwnRunner] = field(default_factory=dict)
    unknown_runners: Mapping[str, Kind] = field(default_factory=dict)
    default_token: str = "write"  # noqa: S105 - a level, not a secret
    variables: Mapping[str, str] = field(default_factory=dict)
    reviewed_environments: frozenset[str] = frozenset()
    required_checks: tuple[str, ...] = ()
    merge_queue: bool = False
    dependabot_on_self_hosted: bool = False
    require_attestation: bool = False
    attestations: Mapping[str, str] = field(default_factory=dict)
    accepted: tuple[Acceptance, ...] = ()

    def is_ephemeral(self, label: str) -> bool:
        """Tell whether a label's machines are thrown away after each job."""
        return any(name.lower() == label.lower() and runner.ephemeral for name, runner in self.runners.items())


Reader = Callable[[str, Any], Any]


def parse_policy(table: Mapping[str, Any], *, source: str) -> Policy:
    """Parse the raw table; raises `ConfigError` listing every problem."""
    problems: list[str] = []
    values: dict[str, Any] = {}
    for key, value in _known(table, tuple(KEYS), "[tool.lockgate.trust]", problems):
        field_name, reader = KEYS[key]
        try:
            values[field_name] = reader(key, value)
        except _ProblemsError as found:
            problems += found.args[0]
    if problems:
        raise ConfigError(
            f"{source} has {len(problems)} problem(s):\n" + "\n".join(f"  - {problem}" for problem in problems),
            hint="the keys of the trust policy are described in docs/security.md",
        )
    return Policy(**values)


class _ProblemsError(Exception):
    """Several problems of one key, gathered before anything stops."""


def _known(table: Mapping[str, Any], valid: tuple[str, ...], place: str, problems: list[str]) -> list[tuple[str, Any]]:
    found = []
    for key, value in table.items():
        name = key.replace("-", "_")
        if name in valid:
            found.append((name, value))
            continue
        close = difflib.get_close_matches(name, valid, n=1)
        meant = f" (did you mean {close[0]!r}?)" if close else ""
        problems.append(f"{place}: unknown key {key!r}{meant}; valid keys: {', '.join(valid)}")
    return found


def _wrong(key: str, value: object, expected: str) -> _ProblemsError:
    return _ProblemsError([f"{key} is {value!r}, expected {expected}"])


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _wrong(key, value, "a non-empty string")
    return value


def _flag(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(key, value, "true or false")
    return value


def _texts(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _wrong(key, value, "an array of strings")
    return tuple(value)


def _repository(key: str, value: Any) -> str:
    text = _text(key, value)
    if not is_repository(text):
        raise _wrong(key, value, "owner/name")
    return text


def is_repository(text: str) -> bool:
    """Tell whether a text has the form `owner/name`."""
    owner, slash, name = text.partition("/")
    return bool(owner and slash and name) and "/" not in name and not any(character.isspace() for character in text)


def _level(key: str, value: Any) -> str:
    if value not in ("read", "write"):
        raise _wrong(key, value, "'read' or 'write'")
    return str(value)


def _mapping(key: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(key, value, "a table")
    return value


def _variables(key: str, value: Any) -> dict[str, str]:
    table = _mapping(key, value)
    bad = [f"{key}.{name} is {item!r}, expected a string" for name, item in table.items() if not isinstance(item, str)]
    if bad:
        raise _ProblemsError(bad)
    return dict(table)


def _rows(key: str, value: Any, valid: Mapping[str, Reader]) -> dict[str, dict[str, Any]]:
    problems: list[str] = []
    rows: dict[str, dict[str, Any]] = {}
    for name, row in _mapping(key, value).items():
        if not isinstance(row, Mapping):
            problems.append(f"{key}.{name} is {row!r}, expected a table")
            continue
        rows[name] = {}
        for inner, item in _known(row, tuple(valid), f"{key}.{name}", problems):
            try:
                rows[name][inner] = valid[inner](f"{key}.{name}.{inner}", item)
            except _ProblemsError as found:
                problems += found.args[0]
    if problems:
        raise _ProblemsError(problems)
    return rows


def _runners(key: str, value: Any) -> dict[str, OwnRunner]:
    return {
        name: OwnRunner(**row) for name, row in _rows(key, value, {"ephemeral": _flag, "workflows": _texts}).items()
    }


def _unknown_runners(key: str, value: Any) -> dict[str, Kind]:
    table = _mapping(key, value)
    words = (Kind.HOSTED.value, Kind.SELF_HOSTED.value)
    bad = [
        f"{key}.{name} is {item!r}, expected one of: {', '.join(words)}"
        for name, item in table.items()
        if item not in words
    ]
    if bad:
        raise _ProblemsError(bad)
    return {name: Kind(item) for name, item in table.items()}


def _environments(key: str, value: Any) -> frozenset[str]:
    rows = _rows(key, value, {"reviewers": _flag})
    return frozenset(name.lower() for name, row in rows.items() if row.get("reviewers"))


def _attestations(key: str, value: Any) -> dict[str, str]:
    problems: list[str] = []
    found: dict[str, str] = {}
    for name, item in _known(_mapping(key, value), tuple(ATTESTATIONS), key, problems):
        if isinstance(item, str) and item.strip():
            found[name] = item
        else:
            problems.append(f"{key}.{name} is {item!r}, expected who checked it, where and when")
    if problems:
        raise _ProblemsError(problems)
    return found


def _accepted(key: str, value: Any) -> tuple[Acceptance, ...]:
    if not isinstance(value, list):
        raise _wrong(key, value, "an array of tables")
    problems: list[str] = []
    found = []
    valid = ("rule", "reason", "expires", "workflow", "job", "event")
    for number, row in enumerate(value, 1):
        place = f"{key}[{number}]"
        if not isinstance(row, Mapping):
            problems.append(f"{place} is {row!r}, expected a table")
            continue
        start = len(problems)
        entries = dict(_known(row, valid, place, problems))
        for name in ("rule", "reason", "workflow", "job", "event"):
            item = entries.get(name)
            if name in ("rule", "reason") and name not in entries:
                problems.append(f"{place}: {name} is missing")
            elif item is not None and (not isinstance(item, str) or not item.strip()):
                problems.append(f"{place}: {name} is {item!r}, expected a non-empty string")
        day = _day(entries.get("expires"))
        if day is None:
            problems.append(f"{place}: expires is {entries.get('expires')!r}, expected a date such as 2030-01-31")
        if len(problems) == start and day is not None:
            found.append(Acceptance(**{**entries, "expires": day}))
    if problems:
        raise _ProblemsError(problems)
    return tuple(found)


def _day(value: Any) -> dt.date | None:
    if isinstance(value, dt.datetime):
        return value.date()
    if isinstance(value, dt.date):
        return value
    try:
        return dt.date.fromisoformat(value)
    except (TypeError, ValueError):
        return None


KEYS: Mapping[str, tuple[str, Reader]] = {
    "repository": ("repository", _repository),
    "hosted_labels": ("hosted_labels", _texts),
    "runners": ("runners", _runners),
    "unknown_runners": ("unknown_runners", _unknown_runners),
    "default_token": ("default_token", _level),
    "vars": ("variables", _variables),
    "environments": ("reviewed_environments", _environments),
    "required_checks": ("required_checks", _texts),
    "merge_queue": ("merge_queue", _flag),
    "dependabot_on_self_hosted": ("dependabot_on_self_hosted", _flag),
    "require_attestation": ("require_attestation", _flag),
    "attest": ("attestations", _attestations),
    "accept": ("accepted", _accepted),
}
