"""An audit's result -> JSON, Markdown and SARIF."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from ci.trust import view
from ci.trust.audit import ACCEPTED, Result
from ci.trust.cells import Cell, Finding
from ci.trust.rules import RULES
from ci.trust.trust import Severity, State

SARIF_LEVELS = {Severity.FAIL: "error", Severity.WARN: "warning", Severity.SETTING: "note"}
HELP = "Described in docs/security.md of Lockgate, under {}."
SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def render_json(result: Result, *, opened: Sequence[str] | None = None, base: str = "") -> dict[str, Any]:
    """Give the machine-readable form; its keys are a contract."""
    document: dict[str, Any] = {
        "repository": result.audit.repo.full_name,
        "default_branch": result.audit.repo.default_branch,
        "cells": [_cell(cell) for cell in result.audit.cells],
        "findings": [_finding(finding) for finding in result.findings],
        "accepted": [
            {**_finding(finding), "reason": one.reason, "expires": one.expires.isoformat()}
            for finding, one in result.accepted
        ],
        "events": [{"id": row.id, "label": row.label, "outsider": row.outsider} for row in result.audit.rows],
        "notes": list(result.audit.folder.notes),
    }
    if opened is not None:
        document["diff"] = {"base": base, "opened": list(opened)}
    return document


def _cell(cell: Cell) -> dict[str, Any]:
    return {
        "workflow": cell.workflow.path,
        "job": cell.name,
        "event": cell.row.id,
        "state": cell.state.value,
        "runner": {"kind": cell.runner.kind.value, "labels": list(cell.runner.labels)},
        "code": cell.code.value,
        "token": dict(cell.token),
        "secrets": cell.secrets,
        "environment": cell.environment,
        "why": cell.why,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "severity": finding.severity.value,
        "workflow": finding.workflow,
        "job": finding.job,
        "event": finding.event,
        "line": finding.line,
        "message": finding.message,
        "fix": finding.fix,
    }


def render_markdown(result: Result, *, opened: Sequence[str] | None = None, base: str = "") -> str:
    """Give a step summary: what is newly open, findings, the table, then every outcome folded away."""
    audit = result.audit
    lines = [f"## Workflow trust audit of {_escape(audit.repo.full_name)}", "", _escape(view.count_line(result)), ""]
    if opened is not None:
        lines += [
            f"### Newly open since {_escape(base)}",
            "",
            *([f"- {_escape(one)}" for one in opened] or ["Nothing."]),
            "",
        ]
    groups = view.group_findings(result.findings)
    if groups:
        lines += ["### Findings", "", "| | rule | place | what | events |", "|---|---|---|---|---|"]
    for group in groups:
        one = group.finding
        place = f"{one.workflow}:{one.line}" + (f" {view.base_name(one.job)}" if one.job else "")
        what = _escape(one.message) + (f"<br>_{_escape(one.fix)}_" if one.fix else "")
        lines.append(
            f"| {one.severity} | {one.rule} | {_escape(place)} | {what} | {_escape(view.shorten(group.events, 6))} |"
        )
    lines += ["", _escape(view.level_e(result)), "", "### Level A, as written", ""]
    lines += _markdown_table(result)
    lines += ["", "<details><summary>Every outcome</summary>", ""]
    for path, rows in view.details(audit.cells).items():
        lines += [
            f"**{_escape(path)}**",
            "",
            "| job | state | machine | code | token | secrets | environment | events | why |",
            "|" + "---|" * 9,
        ]
        for row in rows:
            cell = row.cell
            token = view.show_token(cell) if cell.state is not State.SKIPPED else "-"
            columns = (
                view.base_name(cell.name),
                cell.state.value,
                ", ".join(cell.runner.labels) or "-",
                cell.code.value,
                token,
                "yes" if cell.secrets else "no",
                cell.environment or "-",
                ", ".join(row.events),
                cell.why,
            )
            lines.append("| " + " | ".join(_escape(column) for column in columns) + " |")
        lines.append("")
    lines += ["</details>", ""]
    return "\n".join(lines)


def _markdown_table(result: Result) -> list[str]:
    lines: list[str] = []
    for path, rows in view.table_lines(result.audit.cells).items():
        titles = [
            title
            for title in view.family_titles()
            if any(title in row.cells and row.cells[title].state is not State.SKIPPED for row in rows)
        ]
        if not titles:
            lines += [f"**{_escape(path)}**: no event starts a job of it", ""]
            continue
        lines += [
            f"**{_escape(path)}**",
            "",
            "| job | " + " | ".join(view_title(title) for title in titles) + " |",
            "|" + "---|" * (len(titles) + 1),
        ]
        for row in rows:
            signs = [view.sign(row.cells[title]) if title in row.cells else " " for title in titles]
            lines.append(f"| {_escape(view.times(row.name, row.count))} | " + " | ".join(signs) + " |")
        lines.append("")
    return [*lines, view.LEGEND.replace("\n", "; ")]


def view_title(title: str) -> str:
    """Give a column's title on one line."""
    return title.replace("-\n", "").replace("\n", " ")


def _escape(text: str) -> str:
    """Keep text of a workflow from being read as Markdown or HTML."""
    for mark, other in (
        ("&", "&amp;"),
        ("<", "&lt;"),
        (">", "&gt;"),
        ("|", "\\|"),
        ("\n", " "),
        ("*", "\\*"),
        ("_", "\\_"),
        ("[", "\\["),
        ("@", "&#64;"),
    ):
        text = text.replace(mark, other)
    return text


def render_sarif(result: Result) -> dict[str, Any]:
    """Give SARIF 2.1.0 for code scanning."""
    summaries = {rule.id: rule.summary for rule in RULES} | {
        ACCEPTED: "An acceptance is past its day, or covers nothing."
    }
    used = list(dict.fromkeys(finding.rule for finding in result.findings))
    return {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "lockgate audit",
                        "rules": [
                            {
                                "id": rule,
                                "shortDescription": {"text": summaries[rule]},
                                "help": {"text": HELP.format(rule)},
                            }
                            for rule in used
                        ],
                    }
                },
                "results": [_sarif_result(finding) for finding in result.findings],
            }
        ],
    }


def _sarif_result(finding: Finding) -> dict[str, Any]:
    text = f"{finding.message}. {finding.fix}" if finding.fix else finding.message
    place = f"{finding.rule}|{finding.workflow}|{finding.job}|{finding.event}"
    found: dict[str, Any] = {
        "ruleId": finding.rule,
        "level": SARIF_LEVELS[finding.severity],
        "message": {"text": text},
        "partialFingerprints": {"lockgateTrust/v1": hashlib.sha256(place.encode()).hexdigest()},
    }
    if finding.workflow and finding.workflow != "*":
        found["locations"] = [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": finding.workflow},
                    "region": {"startLine": max(1, finding.line)},
                }
            }
        ]
    return found
