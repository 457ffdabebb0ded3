"""Cells and findings grouped for people: event families, jobs with their matrices, findings with their events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ci.trust.audit import Result
from ci.trust.cells import Cell, Finding
from ci.trust.conditions import Cause
from ci.trust.simulate import WORST
from ci.trust.trust import Kind, Severity, State, Trust

FAMILIES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("fork\nlabel", ("fork-pr:labeled=", "fork-pr:synchronize+label=", "deleted-fork-pr:labeled=")),
    ("fork\nPR", ("fork-pr", "deleted-fork-pr")),
    ("PR\nlabel", ("internal-pr:labeled=", "internal-pr:synchronize+label=")),
    ("own\nPR", ("internal-pr",)),
    ("deps\nbot", ("dependabot-pr",)),
    ("push\nmain", ("push:default",)),
    ("push\ntag", ("push:tag", "release")),
    ("push\nelse", ("push:",)),
    ("mir-\nror", ("mirror:",)),
    ("sche-\ndule", ("schedule",)),
    ("dis-\npatch", ("dispatch:",)),
    ("merge\nqueue", ("merge-group",)),
    ("run\nfork", ("workflow-run:fork-pr",)),
    ("run\nown", ("workflow-run:",)),
    ("com-\nment", ("comment:",)),
    ("iss-\nues", ("issues:",)),
    ("PR\ntarget", ("pr-target:",)),
    ("re-\nview", ("review:",)),
)
"""Columns of the table, by the beginnings of event ids; the first that fits takes a row."""
OTHER = "other"
ORDER = (1, 0, 3, 2, 4, 5, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17)
SIGNS = {Kind.HOSTED: "○", Kind.SELF_HOSTED: "●", Kind.UNKNOWN: "◐", Kind.NONE: "·"}
LETTERS = {
    Trust.UNTRUSTED: "U",
    Trust.DEPENDENCY_BOT: "B",
    Trust.VETTED: "V",
    Trust.APPROVED: "A",
    Trust.INTERNAL: "I",
    Trust.TRUSTED: "T",
}
LEGEND = (
    "machine: ○ hosted  ● self-hosted  ◐ not known   state: · skipped  ? may run  ⏸ waits  ! invalid\n"
    "code:    U untrusted  B dependency bot  V vetted  A approved  I internal  T trusted"
)


def family(event: str) -> str:
    """Give the column of an event."""
    return next((title for title, starts in FAMILIES if event.startswith(starts)), OTHER)


def family_titles() -> list[str]:
    """List the columns in the order of the table."""
    return [FAMILIES[index][0] for index in ORDER] + [OTHER]


def base_name(name: str) -> str:
    """Give a job's name without its matrix values, its callers kept."""
    return " / ".join(part.partition(" (")[0] for part in name.split(" / "))


def times(name: str, count: int) -> str:
    """Name a job and how many of its matrix stand behind it."""
    return f"{name} \N{MULTIPLICATION SIGN}{count}" if count > 1 else name


def danger(cell: Cell) -> tuple[int, int, int]:
    """Order cells by how much a person wants to see them."""
    exposed = int(cell.runner.kind.exposed) if cell.state.reachable else 0
    return exposed * (6 - cell.code.rank), WORST[cell.state], 6 - cell.code.rank


def sign(cell: Cell) -> str:
    """Give a cell's two or three characters."""
    if cell.state is State.SKIPPED:
        return "·"
    if cell.state is State.INVALID:
        return "!"
    mark = {State.MAYBE: "?", State.WAITS: "⏸"}.get(cell.state, "")
    return f"{SIGNS[cell.runner.kind]}{LETTERS[cell.code]}{mark}"


def is_bad(cell: Cell) -> bool:
    """Tell whether a cell is what the audit exists to find."""
    low = cell.code in (Trust.UNTRUSTED, Trust.DEPENDENCY_BOT) or cell.row.outsider
    return cell.state.reachable and cell.runner.kind.exposed and low


@dataclass(frozen=True, kw_only=True)
class Line:
    """One job of the table: the worst cell of each family that has a reachable one."""

    name: str
    count: int
    cells: dict[str, Cell]


def table_lines(cells: Sequence[Cell]) -> dict[str, list[Line]]:
    """Group cells by workflow and job; matrix jobs share a line."""
    grouped: dict[str, dict[str, dict[str, Cell]]] = {}
    names: dict[tuple[str, str], set[str]] = {}
    for cell in cells:
        job = base_name(cell.name)
        row = grouped.setdefault(cell.workflow.path, {}).setdefault(job, {})
        names.setdefault((cell.workflow.path, job), set()).add(cell.name)
        title = family(cell.row.id)
        if title not in row or danger(cell) > danger(row[title]):
            row[title] = cell
    return {
        path: [Line(name=job, count=max(1, len(names[path, job] - {job})), cells=found) for job, found in jobs.items()]
        for path, jobs in grouped.items()
    }


@dataclass(frozen=True, kw_only=True)
class Detail:
    """One outcome that several events share for one job."""

    cell: Cell
    events: tuple[str, ...]
    count: int


def details(cells: Sequence[Cell]) -> dict[str, list[Detail]]:
    """Group a workflow's cells by job and outcome; events that do not start the workflow are left out."""
    grouped: dict[str, dict[tuple[object, ...], list[Cell]]] = {}
    for cell in cells:
        if cell.cause is Cause.TRIGGER:
            continue
        key: tuple[object, ...] = (base_name(cell.name), cell.state, cell.why if cell.state is not State.RUNS else "")
        if cell.state not in (State.SKIPPED, State.INVALID):
            key += (cell.runner, cell.code, tuple(cell.token.items()), cell.secrets, cell.environment)
        grouped.setdefault(cell.workflow.path, {}).setdefault(key, []).append(cell)
    return {path: [_detail(found) for found in _sorted(rows)] for path, rows in grouped.items()}


def _sorted(rows: dict[tuple[object, ...], list[Cell]]) -> list[list[Cell]]:
    return sorted(rows.values(), key=lambda found: (base_name(found[0].name), [-part for part in danger(found[0])]))


def _detail(found: list[Cell]) -> Detail:
    return Detail(
        cell=found[0],
        events=tuple(dict.fromkeys(cell.row.id for cell in found)),
        count=len({cell.name for cell in found}),
    )


def show_token(cell: Cell) -> str:
    """Name a token's permissions in few words."""
    if not cell.token:
        return "none"
    return " ".join(f"{scope}:{level}" for scope, level in cell.token.items())


@dataclass(frozen=True, kw_only=True)
class Group:
    """Findings of one rule at one place, with all their events."""

    finding: Finding
    jobs: tuple[str, ...]
    events: tuple[str, ...]


SEVERITIES = (Severity.FAIL, Severity.WARN, Severity.SETTING)


def group_findings(findings: Sequence[Finding]) -> list[Group]:
    """Group findings for people, failures first; machines read every one."""
    grouped: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        key = (finding.severity, finding.rule, finding.workflow, base_name(finding.job or ""), finding.line)
        grouped.setdefault(key, []).append(finding)
    groups = [
        Group(
            finding=found[0],
            jobs=tuple(dict.fromkeys(one.job for one in found if one.job)),
            events=tuple(dict.fromkeys(one.event for one in found if one.event)),
        )
        for found in grouped.values()
    ]
    return sorted(groups, key=lambda group: SEVERITIES.index(group.finding.severity))


def count_line(result: Result) -> str:
    """Count what was found in one sentence."""
    counts = {severity: sum(1 for one in result.findings if one.severity is severity) for severity in SEVERITIES}
    files = len(result.audit.folder.workflows)
    rows = len(result.audit.rows)
    return (
        f"{files} workflow file(s), {rows} events: {counts[Severity.FAIL]} fail, {counts[Severity.WARN]} warn, "
        f"{counts[Severity.SETTING]} setting(s) outside the files, {len(result.accepted)} accepted"
    )


def shorten(items: Sequence[str], most: int) -> str:
    """Join some items and count the rest."""
    left = len(items) - most
    return ", ".join(items[:most]) + (f" and {left} more" if left > 0 else "")


def level_e(result: Result) -> str:
    """Say in one line what level E comes to."""
    settings = [one for one in result.findings if one.rule == "as-edited" and "can name" in one.message]
    if not settings:
        return (
            "Level E (as edited): no job names a machine of our own, so the files tell of none that a fork could name."
        )
    open_ones = [one for one in settings if one.fix]
    if not open_ones:
        return (
            f"Level E (as edited): {len(settings)} machine(s) can be named by a fork; attested settings keep it away."
        )
    return (
        f"Level E (as edited): {len(open_ones)} machine(s) can be named by a fork's edited workflow, "
        "and no attested setting keeps it away."
    )
