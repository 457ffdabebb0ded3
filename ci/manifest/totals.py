"""What the run's own report says of each test, from `report.json` or JUnit, to be compared with the records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from ci.errors import ManifestError
from ci.manifest.checks import Totals


def read_totals(path: Path) -> Totals:
    """Read a report; raises `ManifestError` for one that is not there or not a report."""
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".xml":
            return parse_junit(text, source=path.name)
        return parse_report(json.loads(text), source=path.name)
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError, ET.ParseError) as error:
        raise ManifestError(
            f"{path} is not a report: {error}", hint="pass the run's report.json or junit.xml"
        ) from error


def parse_report(value: Any, *, source: str) -> Totals:
    """Parse `report.json`."""
    rows = value.get("results") if "results" in value else value["tests"]
    return Totals(
        source=source,
        outcomes={row["id"]: row["outcome"] for row in rows},
        declared=frozenset(row["id"] for row in rows if row.get("declared")),
    )


def parse_junit(text: str, *, source: str) -> Totals:
    """Parse JUnit; a test id is the case's id property, or rebuilt from its class name."""
    outcomes: dict[str, str] = {}
    for case in ET.fromstring(text).iter("testcase"):  # noqa: S314 - our own run's file
        properties = {item.get("name"): item.get("value") for item in case.iter("property")}
        name = properties.get("lockgate_id") or properties.get("id") or _id(case)
        failed = case.find("failure") is not None or case.find("error") is not None
        skipped = case.find("skipped") is not None
        outcomes[name] = "failed" if failed else "skipped" if skipped else "passed"
    return Totals(source=source, outcomes=outcomes)


def _id(case: ET.Element) -> str:
    parts = (case.get("classname") or "").split(".")
    # pytest writes a.b.test_x.TestClass: the file is the last part before a capital letter.
    classes: list[str] = []
    while len(parts) > 1 and parts[-1][:1].isupper():
        classes.insert(0, parts.pop())
    return "::".join([f"{'/'.join(parts)}.py", *classes, case.get("name") or ""])
