"""The edge of the report: reads event logs and reports, writes files whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path

from ci.errors import ReportError
from ci.report.build import build_run
from ci.report.document import parse_document, render_document
from ci.report.junit import render_junit
from ci.report.model import RunReport
from ci.report.timeline import render_timeline
from ci.running.events import read_events

REPORT = "report.json"
FORMATS: dict[str, Callable[[RunReport], str]] = {
    REPORT: lambda report: json.dumps(render_document(report), indent=1, ensure_ascii=False) + "\n",
    "junit.xml": render_junit,
    "timeline.html": render_timeline,
}
"""The files of a report folder and what renders each."""


def build_report(folder: Path) -> RunReport:
    """Build the report of a folder from its event logs alone; raises `ReportError` when there are none."""
    if not any(folder.glob("events-*.jsonl")):
        hint = "a run writes them to .lockgate/report/<stage>/"
        raise ReportError(f"{folder} holds no event log (events-*.jsonl)", hint=hint)
    try:
        events, damaged = read_events(folder)
    except OSError as error:
        raise ReportError(f"the event logs of {folder} cannot be read: {error.strerror}") from error
    return build_run(events, damaged=damaged)


def write_report(folder: Path, report: RunReport) -> tuple[Path, ...]:
    """Write `report.json`, `junit.xml` and `timeline.html`; gives their paths.

    Each is tried even if one before it failed; then `ReportError` lists the failures.
    """
    problems = []
    paths = []
    for name, render in FORMATS.items():
        try:
            write_whole(folder / name, render(report))
            paths.append(folder / name)
        except ReportError as error:
            problems.append(error.message)
    if problems:
        hint = "free some space; `lockgate report build` makes the files anew from the event logs"
        raise ReportError("\n".join(problems), hint=hint)
    return tuple(paths)


def read_report(path: Path) -> RunReport:
    """Read a `report.json`, or a report folder: its `report.json`, else its event logs."""
    file = path / REPORT if path.is_dir() else path
    if path.is_dir() and not file.exists():
        return build_report(path)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ReportError(f"there is no report at {path}", hint="`lockgate run STAGE` writes one") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ReportError(f"{file} cannot be read: {error}") from error
    return parse_document(text, source=str(file))


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old or the new text, never a part; raises `ReportError`."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise ReportError(f"{path} cannot be written: {error.strerror}") from error
