"""RunReport -> one JUnit document: one testcase per test, ranks as properties. Pure.

The layout follows pytest's own `--junit-xml` (family xunit2 with properties), so
that readers of it need nothing new. Outcomes that JUnit does not know are errors
with their name as `type`; `not-run` is one too, because a reader that took it
for a skip would take the run for green.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone
from xml.etree import ElementTree as ET

from ci.report.model import Outcome, RunReport, TestResult

FORBIDDEN = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
"""Characters that XML 1.0 cannot hold, escaped or not."""

ERRORS = (Outcome.ERROR, Outcome.CRASHED, Outcome.HUNG, Outcome.NOT_RUN, Outcome.INFRASTRUCTURE)


def render_junit(report: RunReport) -> str:
    """Render the report as a JUnit document."""
    suite = ET.Element("testsuite", _attributes(report))
    properties = ET.SubElement(suite, "properties")
    for name, value in _run_properties(report):
        ET.SubElement(properties, "property", name=name, value=clean(value))
    for problem in report.infrastructure:
        case = ET.SubElement(suite, "testcase", classname="lockgate.devices", name=clean(problem.check), time="0")
        ET.SubElement(case, "error", type="infrastructure", message=clean(problem.message)).text = clean(problem.hint)
    for check in report.checks:
        case = ET.SubElement(
            suite, "testcase", classname="lockgate.checks", name=clean(check.name), time=f"{check.duration:.3f}"
        )
        if not check.passed:
            ET.SubElement(case, "failure", message=clean(f"{check.name} failed")).text = clean(check.output)
    for result in report.results:
        _add_case(suite, result)
    root = ET.Element("testsuites", name="lockgate")
    root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _attributes(report: RunReport) -> dict[str, str]:
    totals = report.totals
    extra = len(report.infrastructure) + len(report.checks)
    failed_checks = sum(not check.passed for check in report.checks)
    end = report.finished or max((one.started + one.duration for one in report.results), default=report.started)
    return {
        "name": clean(f"lockgate {report.stage}"),
        "tests": str(len(report.results) + extra),
        "failures": str(totals[Outcome.FAILED.value] + failed_checks),
        "errors": str(sum(totals[outcome.value] for outcome in ERRORS) + len(report.infrastructure)),
        "skipped": str(totals[Outcome.SKIPPED.value] + totals[Outcome.XFAILED.value]),
        "time": f"{max(end - report.started, 0.0):.3f}",
        "timestamp": datetime.fromtimestamp(report.started, tz=timezone.utc).isoformat(timespec="seconds"),
    }


def _run_properties(report: RunReport) -> list[tuple[str, str]]:
    rows = [
        ("lockgate.stage", report.stage),
        ("lockgate.commit", report.commit),
        ("lockgate.shard", report.shard),
        ("lockgate.simulated", str(report.simulated).lower()),
        ("lockgate.fingerprint", report.fingerprint),
        ("lockgate.exit_code", "none" if report.exit_code is None else str(report.exit_code)),
        *(("lockgate.reason", reason) for reason in report.reasons),
        *(("lockgate.note", note) for note in report.notes),
    ]
    return [(name, value) for name, value in rows if value]


def _add_case(suite: ET.Element, result: TestResult) -> None:
    classname, name = split_id(result.id)
    case = ET.SubElement(suite, "testcase", classname=clean(classname), name=clean(name), time=f"{result.duration:.3f}")
    rows = [("lockgate.id", result.id), ("lockgate.outcome", result.outcome.value)]
    rows += [("lockgate.devices", ",".join(result.devices))] if result.devices else []
    rows += [("lockgate.attempts", str(result.attempts))] if result.attempts > 1 else []
    rows += [
        (
            f"lockgate.rank{rank.rank}",
            " ".join(filter(None, (rank.outcome.value, f"{rank.duration:.3f}s", rank.device))),
        )
        for rank in result.ranks
    ]
    properties = ET.SubElement(case, "properties")
    for key, value in rows:
        ET.SubElement(properties, "property", name=key, value=clean(value))
    output = clean(result.output)
    message = clean(result.reason.splitlines()[0] if result.reason else result.outcome.value)
    if result.outcome is Outcome.FAILED:
        ET.SubElement(case, "failure", message=message).text = output or clean(result.reason)
    elif result.outcome in ERRORS:
        ET.SubElement(case, "error", type=result.outcome.value, message=message).text = output or clean(result.reason)
    elif result.outcome is Outcome.SKIPPED:
        kind = clean(result.skip_class or "skip")
        ET.SubElement(case, "skipped", type=kind if result.declared else f"undeclared: {kind}", message=message)
    elif result.outcome is Outcome.XFAILED:
        ET.SubElement(case, "skipped", type="pytest.xfail", message=message)
    elif output:
        ET.SubElement(case, "system-out").text = output


def split_id(node: str) -> tuple[str, str]:
    """Split a node id as pytest's JUnit does: `tests/test_b.py::C::test_d[x/y]` -> `tests.test_b.C`, `test_d[x/y]`."""
    head, bracket, parameters = node.partition("[")
    path, *rest = head.split("::")
    module = path.removesuffix(".py")
    names = [module.replace("/", "."), *rest]
    name = names.pop() if len(names) > 1 else ""
    return ".".join(names), name + bracket + parameters


def clean(text: str) -> str:
    """Replace what XML cannot hold by its escape, so that nothing is lost and every reader can read it."""
    return FORBIDDEN.sub(lambda match: f"#x{ord(match.group()):02X}", text)
