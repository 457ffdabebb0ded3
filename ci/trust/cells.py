"""What the simulation gives: one cell per job and event, and the concurrency groups that were entered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ci.trust.code import Source
from ci.trust.conditions import Cause
from ci.trust.model import Concurrency, Folder, Job, Workflow
from ci.trust.payloads import Repo
from ci.trust.policy import Policy
from ci.trust.rows import Row
from ci.trust.runners import NOWHERE, Runner
from ci.trust.steps import StepView
from ci.trust.trust import Severity, State, Trust
from ci.trust.values import Value


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One job on one event.

    `workflow` is the file that the event starts, `job` and `owner` the job as
    written and its file (a called one for reusable workflows), `name` the id
    with its callers and matrix values.
    """

    workflow: Workflow
    owner: Workflow
    job: Job
    name: str
    row: Row
    state: State
    why: str
    cause: Cause = Cause.NONE
    runner: Runner = NOWHERE
    code: Trust
    token: Mapping[str, str] = field(default_factory=dict)
    secrets: bool = False
    environment: str | None = None
    sources: tuple[Source, ...] = ()
    views: tuple[StepView, ...] = ()
    contexts: Mapping[str, Value] = field(default_factory=dict)
    steps: tuple[tuple[str, str], ...] = ()
    saves_cache: bool = False

    @property
    def line(self) -> int:
        """Give the line where the job's machine, or the job itself, stands."""
        return self.job.runs_on_line or self.job.line


@dataclass(frozen=True, kw_only=True)
class GroupUse:
    """One run, or job, entering a concurrency group; `cancels` None is unknown."""

    workflow: Workflow
    job: str
    row: Row
    group: Value
    cancels: bool | None
    code: Trust
    declared: Concurrency


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong: which rule, where, on which event, and what to do."""

    rule: str
    severity: Severity
    workflow: str
    job: str | None
    event: str | None
    line: int
    message: str
    fix: str


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Everything that rules look at."""

    repo: Repo
    policy: Policy
    folder: Folder
    rows: Sequence[Row]
    cells: Sequence[Cell]
    groups: Sequence[GroupUse]

    def reachable(self) -> list[Cell]:
        """List the cells whose job may start without anybody else's consent."""
        return [cell for cell in self.cells if cell.state.reachable]
