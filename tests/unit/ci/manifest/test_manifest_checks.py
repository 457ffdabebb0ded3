"""Each named check of a run: what breaks it, and that nothing incomplete is publishable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ci.manifest.checks import CANARIES, RUN_RULES, Evidence, Totals, check_run, is_safe
from ci.manifest.model import Manifest
from ci.manifest.records import Child, Records, Session, Test, Use, read_records
from ci.manifest.totals import parse_junit, parse_report
from ci.manifest.tree import Entry, Tree

pytestmark = pytest.mark.cpu

COMMIT = "a" * 40
NAMES = ("tests/test_a.py::test_1", "tests/test_a.py::test_2", "tests/test_a.py::test_3")


def make_session(**values: Any) -> Session:
    """Give a session of a good run."""
    canaries = {label: Use(executed={"canary.py": {(1, "helper"), (9, "first")}}) for label in CANARIES}
    session = Session(
        start={"role": "session", "rank": 0, "ranks": 0, "core": "coverage-ctrace", "commit": COMMIT, "time": 1.0},
        end={"exit": 0, "narrowed": [], "elsewhere": [], "collect_errors": 0, "interrupted": False},
        collected=NAMES,
        tests=[
            Test(
                id=name,
                path="tests/test_a.py",
                outcome="passed",
                reason="",
                duration=0.1,
                opaque=(),
                isolation="fork",
                fixtures=(),
            )
            for name in NAMES
        ],
        use=canaries,
    )
    for name, value in values.items():
        setattr(session, name, value)
    return session


@pytest.fixture
def evidence(manifest: Manifest) -> Evidence:
    """Give the evidence of a run that has no fault."""
    tests = tuple(replace(test, outcome="passed", opaque=()) for test in manifest.tests)
    files = {path: Entry(blob=file.blob, mode=file.mode) for path, file in manifest.files.items()}
    return Evidence(
        stage="cpu_gate",
        records=Records(folder=Path("x"), sessions=[make_session()]),
        tree=Tree(root=Path("/r"), commit=COMMIT, files=files),
        manifest=replace(manifest, tests=tests),
        blobs={path: entry.blob for path, entry in files.items()},
    )


def test_a_good_run_has_no_findings(evidence: Evidence) -> None:
    assert check_run(evidence) == []


def sessions(*items: Session) -> Callable[[Evidence], Evidence]:
    """Change the sessions."""
    return lambda evidence: replace(evidence, records=Records(folder=Path("x"), sessions=list(items)))


def start(**values: Any) -> dict[str, Any]:
    """Change what a session says at its start."""
    return {**make_session().start, **values}


def end(**values: Any) -> dict[str, Any]:
    """Change what a session says at its end."""
    return {**make_session().end, **values}


def lost(label: str) -> dict[str, Use]:
    """Give canaries of which one lost its helper: what coverage's sysmon core does to every second context."""
    use = make_session().use
    return {**use, label: Use(executed={"canary.py": {(13, "second")}})}


ranks = {"ranks": 2}
FAULTS: dict[str, tuple[Callable[[Evidence], Evidence], str, str]] = {
    "damaged-journal": (
        lambda e: replace(e, records=replace_records(e.records, damage=["journal-1 line 3 is not a record"])),
        "records-readable",
        "line 3",
    ),
    "killed": (sessions(make_session(end={})), "run-finished", "never ended"),
    "internal-error": (sessions(make_session(end=end(exit=3))), "run-finished", "exit code 3"),
    "stopped-early": (sessions(make_session(end=end(interrupted=True))), "run-finished", "early"),
    "unknown-core": (sessions(make_session(start=start(core="coverage-sysmon"))), "core-known-good", "sysmon"),
    "unknown-core-in-a-child": (
        lambda e: replace(e, records=replace_records(e.records, children=[Child(label="", argv=(), core="pytrace")])),
        "core-known-good",
        "pytrace",
    ),
    "canary-lost": (sessions(make_session(use=lost("canary:start:second"))), "canary", "start:second"),
    "canary-lost-at-the-end": (sessions(make_session(use=lost("canary:end:first"))), "canary", "end:first"),
    "no-canary": (sessions(make_session(use={})), "canary", "start:first"),
    "other-commit": (sessions(make_session(start=start(commit="b" * 40))), "source-commit", "bbbb"),
    "no-commit": (sessions(make_session(start=start(commit=""))), "source-commit", "no commit"),
    "dirty": (lambda e: replace(e, tree=replace(e.tree, modified=("src/a.py",))), "clean-tree", "src/a.py"),
    "file-changed": (lambda e: replace(e, blobs={**e.blobs, "src/a.py": "9" * 40}), "measured-files", "src/a.py"),
    "rank-inventory": (
        sessions(make_session(start=start(**ranks)), make_session(start=start(rank=1, **ranks), collected=NAMES[:2])),
        "same-inventory",
        "test_3",
    ),
    "rank-missing": (sessions(make_session(start=start(**ranks))), "all-ranks", "[0]"),
    "rank-skips-all": (
        sessions(
            make_session(start=start(**ranks)),
            make_session(
                start=start(rank=1, **ranks), tests=[replace(test, outcome="skipped") for test in make_session().tests]
            ),
        ),
        "rank-skipped",
        "rank 1",
    ),
    "not-all-ran": (sessions(make_session(tests=make_session().tests[:1])), "all-tests-ran", "2 collected"),
    "narrowed": (sessions(make_session(end=end(narrowed=["--keyword"]))), "whole-stage", "--keyword"),
    "collection-errors": (sessions(make_session(end=end(collect_errors=2))), "collection", "2"),
    "nothing": (sessions(make_session(collected=(), tests=[])), "not-empty", "no tests"),
    "installed-copy": (sessions(make_session(end=end(elsewhere=["pkg (/site/pkg.py)"]))), "own-code", "/site/pkg.py"),
    "report-misses-one": (
        lambda e: replace(e, totals=Totals(source="junit.xml", outcomes=dict.fromkeys(NAMES[:2], "passed"))),
        "report-totals",
        "2 tests",
    ),
    "report-differs": (
        lambda e: replace(
            e, totals=Totals(source="report.json", outcomes={**dict.fromkeys(NAMES, "passed"), NAMES[1]: "failed"})
        ),
        "report-totals",
        "test_2",
    ),
}


def replace_records(records: Records, **values: Any) -> Records:
    """Give other records."""
    return Records(folder=records.folder, sessions=records.sessions, **values)


@pytest.mark.parametrize("name", list(FAULTS))
def test_every_fault_is_found_by_its_check(name: str, evidence: Evidence) -> None:
    change, check, words = FAULTS[name]
    findings = [finding for finding in check_run(change(evidence)) if finding.check == check]
    assert findings
    assert words in findings[0].found
    assert findings[0].expected
    assert findings[0].hint
    assert not findings[0].is_warning, "it must keep the manifest from being used"


def test_every_check_is_struck_by_some_fault() -> None:
    assert {rule.__name__ for rule in RUN_RULES} == {
        "check_damage",
        "check_finished",
        "check_core",
        "check_canary",
        "check_source",
        "check_measured",
        "check_inventory",
        "check_elsewhere",
        "check_totals",
        "check_skips",
        "check_opaque",
    }


def test_skips_must_be_declared_to_be_published(evidence: Evidence) -> None:
    tests = make_session().tests
    skipped = [replace(tests[0], outcome="skipped", reason="Skipped: needs ClickHouse"), *tests[1:]]
    struck = sessions(make_session(tests=skipped))(evidence)
    assert [finding.check for finding in check_run(struck)] == ["skips-declared"]
    assert check_run(replace(struck, allow_skips=("clickhouse",))) == []
    declared = Totals(
        source="r", outcomes={**dict.fromkeys(NAMES, "passed"), NAMES[0]: "skipped"}, declared=frozenset({NAMES[0]})
    )
    assert (
        check_run(
            replace(
                struck,
                totals=declared,
                manifest=replace(
                    evidence.manifest,
                    tests=(
                        replace(evidence.manifest.tests[0], outcome="skipped"),
                        *evidence.manifest.tests[1:],
                    ),
                ),
            )
        )
        == []
    )


def test_opaque_tests_are_counted_by_reason(evidence: Evidence) -> None:
    tests = (
        replace(evidence.manifest.tests[0], opaque=("child-missing: 0 of 1 reported",)),
        *evidence.manifest.tests[1:],
    )
    (finding,) = check_run(replace(evidence, manifest=replace(evidence.manifest, tests=tests)))
    assert finding.is_warning
    assert "1 of 3" in finding.found
    assert "child-missing 1" in finding.found


@pytest.mark.parametrize(
    "path", ["", "/a", "../a", "a/../../b", "a\\..\\b", "C:a", "~/x", "a\0b", "a\nb", "\\\\host\\a"]
)
def test_unsafe_paths(path: str) -> None:
    assert not is_safe(path)


@pytest.mark.parametrize("path", ["a", "a/b.py", "a..b", ".hidden", "ä/ö ü.py", "a/.../b"])
def test_safe_paths(path: str) -> None:
    assert is_safe(path)


def test_reports_are_read_in_both_forms() -> None:
    found = parse_report(
        {"results": [{"id": "a", "outcome": "passed"}, {"id": "b", "outcome": "skipped", "declared": True}]}, source="r"
    )
    assert found.outcomes == {"a": "passed", "b": "skipped"}
    assert found.declared == {"b"}
    text = (
        '<testsuites><testsuite><testcase classname="tests.sub.test_x.TestY" name="test_z[1]"/>'
        '<testcase classname="tests.test_q" name="test_r"><failure/></testcase>'
        '<testcase classname="tests.test_q" name="test_s"><skipped/></testcase></testsuite></testsuites>'
    )
    assert parse_junit(text, source="j").outcomes == {
        "tests/sub/test_x.py::TestY::test_z[1]": "passed",
        "tests/test_q.py::test_r": "failed",
        "tests/test_q.py::test_s": "skipped",
    }


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (['{"start": {"role": "session"}}', "{half"], "line 2 is not a record"),
        (['{"start": {"role": "session"}}', '{"test": {"id": 1}}'], "wrong form"),
        (['{"start": {"role": "session"}}', '{"a": 1, "b": 2}'], "line 2 is not a record"),
        (['{"start": {"role": "session"}}', '{"context": 7}'], "wrong form"),
    ],
)
def test_damaged_journals_are_values(tmp_path: Path, lines: list[str], words: str) -> None:
    (tmp_path / "journal-1.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "coverage-1.data").write_bytes(b"not a database at all, not even nearly" * 40)
    found = read_records(tmp_path)
    assert any(words in text for text in found.damage), found.damage
    assert any("coverage-1.data is damaged" in text for text in found.damage)
