"""Helpers of the audit's tests: audit a folder of fixtures, or texts, and look at the cells."""

from __future__ import annotations

import datetime as dt
import functools
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ci.trust.audit import Result, run_audit
from ci.trust.cells import Cell, Finding
from ci.trust.model import Folder, Workflow
from ci.trust.payloads import Repo
from ci.trust.policy import Policy, parse_policy
from ci.trust.read import find_place, read_folder
from ci.trust.workflow import parse_action, parse_workflow

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[4]
DATA = ROOT / "tests" / "data" / "trust"
TODAY = dt.date(2026, 6, 1)
REPO = Repo(full_name="owner/name", default_branch="main")


@functools.lru_cache(maxsize=256)
def parsed_workflow(text: str, path: str) -> Workflow:
    """Parse a text once for all tests; the result is frozen."""
    return parse_workflow(text, path=path)


@pytest.fixture
def data() -> Path:
    """The folder of fixtures."""
    return DATA


@pytest.fixture
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture
def audit_case() -> Callable[..., list[Finding]]:
    """Audit one case of a rule's data folder and give that rule's findings."""

    def audit(rule: str, case: str) -> list[Finding]:
        folder = DATA / rule / case
        policy_file = folder / "policy.toml"
        table = tomllib.loads(policy_file.read_text(encoding="utf-8")) if policy_file.is_file() else {}
        result = run_audit(read_folder(find_place(folder)), REPO, parse_policy(table, source="policy"), today=TODAY)
        assert rule == "invalid-workflow" or not any(one.rule == "invalid-workflow" for one in result.findings)
        return [one for one in result.findings if one.rule == rule]

    return audit


class Audited:
    """A result with look-ups by job and event."""

    def __init__(self, result: Result) -> None:
        self.result = result
        self.cells = {(cell.name, cell.row.id): cell for cell in result.audit.cells}

    def cell(self, job: str, event: str) -> Cell:
        return self.cells[job, event]

    def state(self, job: str, event: str) -> str:
        return self.cells[job, event].state.value

    def rules(self, severity: str = "fail") -> set[str]:
        return {one.rule for one in self.result.findings if one.severity.value == severity}

    def events(self, rule: str) -> set[str | None]:
        return {one.event for one in self.result.findings if one.rule == rule}

    def reaching(self, kind: str = "self-hosted") -> set[tuple[str, str]]:
        return {(cell.name, cell.row.id) for cell in self.result.audit.reachable() if cell.runner.kind.value == kind}


@pytest.fixture
def audit_texts() -> Callable[..., Audited]:
    """Audit workflow texts by file name; `actions` are `action.yml` texts by folder."""

    def audit(
        *texts: str,
        files: Mapping[str, str] | None = None,
        actions: Mapping[str, str] | None = None,
        policy: Policy | None = None,
        repo: Repo = REPO,
        today: dt.date = TODAY,
    ) -> Audited:
        named = {f"{number}.yml": text for number, text in enumerate(texts)} | dict(files or {})
        workflows = {
            f".github/workflows/{name}": parsed_workflow(text, f".github/workflows/{name}")
            for name, text in named.items()
        }
        parsed = {path: parse_action(text, path=f"{path}/action.yml") for path, text in (actions or {}).items()}
        return Audited(run_audit(Folder(workflows=workflows, actions=parsed), repo, policy or Policy(), today=today))

    return audit
