"""An audit's result -> rich tables for a terminal of 100 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ci.trust import view
from ci.trust.audit import Result
from ci.trust.cells import Cell
from ci.trust.trust import Kind, Severity, State, Trust

COLOURS = {Severity.FAIL: "bold red", Severity.WARN: "yellow", Severity.SETTING: "cyan"}
EVENTS_SHOWN = 6
JOB_WIDTH = 28
COLUMNS = 12
"""Event families that stand beside a job in 100 columns."""
DETAILS_SHOWN = 400
"""Rows of outcomes beyond which only findings and the overview are printed; JSON has all."""


def render_table(result: Result, *, opened: Sequence[str] | None = None, base: str = "") -> RenderableType:
    """Lay out the overview, every outcome, level E and the findings."""
    parts: list[RenderableType] = []
    audit = result.audit
    parts.append(
        Text.assemble(
            ("Workflow trust audit of ", "bold"),
            (audit.repo.full_name, "bold cyan"),
            f", default branch {audit.repo.default_branch}",
        )
    )
    parts += [Text(f"note: {note}", style="yellow") for note in audit.folder.notes]
    parts += [Text(), Text("Level A, as written", style="bold"), Text(view.LEGEND, style="dim")]
    parts += _overviews(view.table_lines(audit.cells))
    outcomes = view.details(audit.cells)
    if sum(len(rows) for rows in outcomes.values()) <= DETAILS_SHOWN:
        parts += [part for path, rows in outcomes.items() for part in (Text(), _outcomes(path, rows))]
    else:
        parts.append(Text("More outcomes than fit here: --format json lists every cell.", style="dim"))
    parts += [Text(), Text(view.level_e(result), style="bold")]
    if opened is not None:
        parts += [Text(), *_opened(opened, base)]
    groups = view.group_findings(result.findings)
    if groups:
        parts += [Text(), _findings(groups)]
    parts += [Text(), Text(view.count_line(result), style="bold red" if result.fails else "bold green")]
    return Stack(*parts)


def _overviews(lines: dict[str, list[view.Line]]) -> list[RenderableType]:
    """Draw one grid for all files where it fits, else one for each."""
    used = {
        path: [title for title in view.family_titles() if any(_shown(row, title) for row in rows)]
        for path, rows in lines.items()
    }
    idle = [path for path, titles in used.items() if not titles]
    busy = {path: rows for path, rows in lines.items() if used[path]}
    titles = [title for title in view.family_titles() if any(title in used[path] for path in busy)]
    parts: list[RenderableType] = []
    if busy and len(titles) <= COLUMNS:
        parts += [Text(), _overview(busy, titles)]
    else:
        parts += [part for path, rows in busy.items() for part in (Text(), _overview({path: rows}, used[path]))]
    if idle:
        parts.append(Text(f"No event starts a job of {', '.join(idle)}.", style="dim"))
    return parts


def _overview(files: dict[str, list[view.Line]], titles: Sequence[str]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("job", no_wrap=True, overflow="ellipsis", max_width=JOB_WIDTH, style="bold")
    for title in titles:
        table.add_column(title, no_wrap=True, min_width=4, header_style="dim")
    for path, lines in files.items():
        table.add_row(Text(path.rpartition("/")[2], style="bold underline"))
        for line in lines:
            table.add_row(
                Text(f"  {view.times(line.name, line.count)}"), *(_sign(line.cells.get(title)) for title in titles)
            )
    return table


def _shown(line: view.Line, title: str) -> bool:
    return title in line.cells and line.cells[title].state is not State.SKIPPED


def _sign(cell: Cell | None) -> Text:
    return Text(view.sign(cell), style=_colour(cell)) if cell is not None else Text()


def _colour(cell: Cell) -> str:
    if cell.state is State.SKIPPED:
        return "dim"
    if view.is_bad(cell) or cell.state is State.INVALID:
        return "bold red"
    if cell.code.rank <= Trust.VETTED.rank and cell.runner.kind.exposed:
        return "yellow"
    return "green" if cell.runner.kind is Kind.HOSTED else "cyan"


def _outcomes(path: str, rows: list[view.Detail]) -> RenderableType:
    table = Table(
        title=Text(f"{path}: outcomes"),
        title_justify="left",
        title_style="dim",
        box=None,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("job", max_width=18, overflow="fold", style="bold")
    table.add_column("state", no_wrap=True)
    table.add_column("machine, code and power", max_width=32, overflow="fold")
    table.add_column("events, and why", overflow="fold", ratio=1)
    last = ""
    for row in rows:
        cell = row.cell
        name = view.times(view.base_name(cell.name), row.count)
        why = Text(view.shorten(row.events, EVENTS_SHOWN))
        if cell.state is not State.RUNS or view.is_bad(cell):
            why.append(f"\n{cell.why}", style="dim")
        table.add_row(
            Text(name if name != last else ""), Text(cell.state.value, style=_colour(cell)), _power(cell), why
        )
        last = name
    return Padding(table, (0, 0, 0, 2))


def _power(cell: Cell) -> Text:
    if cell.state is State.SKIPPED or cell.state is State.INVALID:
        return Text("-", style="dim")
    text = Text(f"{view.SIGNS[cell.runner.kind]} {', '.join(cell.runner.labels)}", style=_colour(cell))
    where = f", environment {cell.environment}" if cell.environment else ""
    secrets = "secrets" if cell.secrets else "no secrets"
    text.append(f"\n{cell.code}; token {view.show_token(cell)}; {secrets}{where}", style="dim not bold")
    return text


def _opened(opened: Sequence[str], base: str) -> list[RenderableType]:
    if not opened:
        return [Text(f"Nothing is newly open since {base}.", style="green")]
    return [Text(f"Newly open since {base}", style="bold red"), *(Text(f"  {one}") for one in opened)]


def _findings(groups: list[view.Group]) -> Table:
    table = Table(
        title=Text("Findings", style="bold"),
        title_justify="left",
        box=None,
        padding=(0, 1, 1, 0),
        pad_edge=False,
        show_header=False,
    )
    table.add_column("severity", no_wrap=True)
    table.add_column("rule and place", max_width=36, overflow="fold")
    table.add_column("what", overflow="fold", ratio=1)
    for group in groups:
        one = group.finding
        place = Text(one.rule, style="bold")
        if one.workflow:
            place.append(f"\n{one.workflow}:{one.line}", style="not bold")
        if group.jobs:
            place.append(f"\n{view.shorten(group.jobs, 2)}", style="dim not bold")
        what = Text(one.message)
        if len(group.events) > 1:
            what.append(f"\non {view.shorten(group.events, EVENTS_SHOWN)}", style="dim")
        if one.fix:
            what.append(f"\nfix: {one.fix}", style="green")
        table.add_row(Text(one.severity.value, style=COLOURS[one.severity]), place, what)
    return table
