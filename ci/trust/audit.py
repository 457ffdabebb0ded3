"""Folder + policy -> rows, cells, findings: the steps of one audit, in order."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from ci.trust.cells import Audit, Finding
from ci.trust.events import build_rows
from ci.trust.mentions import find_mentions
from ci.trust.model import Folder
from ci.trust.payloads import Repo
from ci.trust.policy import Acceptance, Policy
from ci.trust.rules import RULES
from ci.trust.simulate import simulate
from ci.trust.trust import Severity

ACCEPTED = "acceptance"
"""The rule of findings about accepted findings."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One audit: what it looked at, what it found, and what a person accepted."""

    audit: Audit
    findings: Sequence[Finding]
    accepted: Sequence[tuple[Finding, Acceptance]]

    @property
    def fails(self) -> bool:
        """Tell whether anything fails."""
        return any(finding.severity is Severity.FAIL for finding in self.findings)


def run_audit(folder: Folder, repo: Repo, policy: Policy, *, today: dt.date) -> Result:
    """Audit a folder: mentions -> rows -> cells -> rules -> acceptances."""
    rows = build_rows(repo, find_mentions(folder, repo.default_branch))
    cells, groups = simulate(folder, rows, policy)
    audit = Audit(repo=repo, policy=policy, folder=folder, rows=rows, cells=cells, groups=groups)
    found = [finding for rule in RULES for finding in rule.check(audit)]
    findings, accepted = accept_findings(found, policy.accepted, today=today)
    return Result(audit=audit, findings=tuple(findings), accepted=tuple(accepted))


def accept_findings(
    found: Sequence[Finding], acceptances: Sequence[Acceptance], *, today: dt.date
) -> tuple[list[Finding], list[tuple[Finding, Acceptance]]]:
    """Take out what a person accepted; an acceptance past its day, or about nothing, is itself a finding."""
    valid = [one for one in acceptances if one.expires >= today]
    used: set[int] = set()
    kept: list[Finding] = []
    accepted: list[tuple[Finding, Acceptance]] = []
    for finding in found:
        covering = [
            one for one in valid if one.covers(finding.rule, finding.workflow, finding.job or "", finding.event or "")
        ]
        used.update(id(one) for one in covering)
        if covering:
            accepted.append((finding, covering[0]))
        else:
            kept.append(finding)
    kept += [_stale(one, "expired on " + one.expires.isoformat()) for one in acceptances if one.expires < today]
    kept += [_stale(one, "covers no finding") for one in valid if id(one) not in used]
    return kept, accepted


def _stale(one: Acceptance, why: str) -> Finding:
    return Finding(
        rule=ACCEPTED,
        severity=Severity.WARN,
        workflow=one.workflow,
        job=one.job,
        event=one.event,
        line=0,
        message=f"the acceptance of {one.rule} ({one.reason}) {why}",
        fix="decide again: fix the workflow, give a new day with its reason, or delete the entry",
    )


def opened_to(before: Result, after: Result) -> list[str]:
    """Say in sentences what `after` newly opens to outsiders' events and code."""
    known = {(line.who, line.what) for line in _openings(before)}
    return list(dict.fromkeys(str(line) for line in _openings(after) if (line.who, line.what) not in known))


@dataclass(frozen=True, kw_only=True)
class Opening:
    """Somebody reaches something."""

    who: str
    what: str
    place: str

    def __str__(self) -> str:
        """Give the sentence."""
        return f"{self.who} now {self.what} ({self.place})"


def _openings(result: Result) -> list[Opening]:
    found = []
    for cell in result.audit.reachable():
        if not (cell.row.outsider or cell.code.rank < 2 or cell.row.code.rank <= 2):
            continue
        place = f"{cell.workflow.path}: {cell.name}, {cell.row.id}"
        who = cell.row.label
        if cell.runner.kind.exposed:
            whose = f" with {cell.code} code"
            found.append(Opening(who=who, what=f"reaches {', '.join(cell.runner.labels)}{whose}", place=place))
        if cell.row.outsider and cell.code.rank == 0 and cell.secrets:
            found.append(Opening(who=who, what="runs its own code beside secrets", place=place))
        if cell.row.outsider and cell.code.rank == 0 and "write" in cell.token.values():
            found.append(Opening(who=who, what="runs its own code beside a token that writes", place=place))
    return found
