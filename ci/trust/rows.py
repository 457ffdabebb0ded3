"""What a row of the table is: an event, what the service sends with it, and what it grants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ci.trust.trust import Trust
from ci.trust.values import Value

OTHER_LABEL = "(other)"
"""Stands for a label that no file mentions."""

PULL_TYPES = ("opened", "synchronize", "reopened", "labeled")


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
    listens_to_comments: bool = False
    other_base: bool = False
