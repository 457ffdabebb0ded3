"""The named checks: of a run before its manifest may be published, of a manifest before it may be used.

Each finding says what was found, what was expected and what to do next.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ci.impact.blocks import BLOCKS_VERSION
from ci.manifest.model import Core, Expectations, Finding, Header, Manifest
from ci.manifest.records import Records
from ci.manifest.tree import Tree

AGAIN = "record the stage again: `lockgate run STAGE --record DIR`"
CANARIES = tuple(f"canary:{when}:{test}" for when in ("start", "end") for test in ("first", "second"))
FUTURE = 600.0
"""Seconds that a clock may run ahead of ours."""


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Counts of a JUnit or JSON report; `outcomes` maps a test id to its outcome, `declared` are allowed skips."""

    source: str = ""
    outcomes: Mapping[str, str] = field(default_factory=dict)
    declared: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All that the checks of a run look at; `blobs` are the ids of the files as they lie in the folder now."""

    stage: str
    records: Records
    tree: Tree
    manifest: Manifest
    blobs: Mapping[str, str]
    allow_skips: Collection[str] = ()
    totals: Totals = Totals()


Rule = Callable[[Evidence], Iterator[Finding]]


def check_run(evidence: Evidence) -> list[Finding]:
    """Apply every check of a run; without a finding that is more than a warning the manifest is complete."""
    return [finding for rule in RUN_RULES for finding in rule(evidence)]


def _finding(check: str, found: object, expected: str, hint: str = AGAIN, *, is_warning: bool = False) -> Finding:
    return Finding(check=check, found=str(found), expected=expected, hint=hint, is_warning=is_warning)


def check_damage(evidence: Evidence) -> Iterator[Finding]:
    """Every record can be read."""
    for text in evidence.records.damage:
        yield _finding("records-readable", text, "whole records")


def check_finished(evidence: Evidence) -> Iterator[Finding]:
    """Every session ended by itself, and pytest answered 0 or 1."""
    for session in evidence.records.sessions:
        rank = session.start.get("rank", 0)
        if not session.end:
            yield _finding("run-finished", f"the session of rank {rank} never ended", "a run that ended")
        elif session.end.get("exit") not in (0, 1):
            yield _finding("run-finished", f"pytest's exit code {session.end.get('exit')}", "0 or 1 (tests failed)")
        elif session.end.get("interrupted"):
            yield _finding(
                "run-finished", "a run that stopped early", "a run of all tests", "leave out -x and --maxfail"
            )


def check_core(evidence: Evidence) -> Iterator[Finding]:
    """Every process was recorded by a core that is known to be good, and all by the same."""
    cores = {str(session.start.get("core")) for session in evidence.records.sessions}
    cores |= {child.core for child in evidence.records.children}
    known = {core.value for core in Core}
    for core in sorted(cores - known):
        yield _finding("core-known-good", core, f"one of {', '.join(sorted(known))}")


def check_canary(evidence: Evidence) -> Iterator[Finding]:
    """Two planted tests share a helper; both own it, at the start and at the end."""
    for session in evidence.records.sessions:
        for label in CANARIES:
            use = session.use.get(label)
            names = {name for codes in use.executed.values() for _, name in codes} if use else set()
            lines = sum(bits.bit_count() for bits in use.lines.values()) if use else 0
            # With lines: one of the test's own body and one of the helper's.
            if "helper" not in names and lines < 2:
                yield _finding(
                    "canary",
                    f"{label} does not own its helper",
                    "both planted tests own it",
                    "the recorder loses contexts here; see LOCKGATE_RECORD_CORE",
                )


def check_source(evidence: Evidence) -> Iterator[Finding]:
    """Hold the run, the records and the tree to one commit, from which nothing differs."""
    for commit in {str(session.start.get("commit", "")) for session in evidence.records.sessions}:
        if commit != evidence.tree.commit:
            yield _finding(
                "source-commit",
                f"a run of {commit[:12] or 'no commit'}",
                f"the commit {evidence.tree.commit[:12]}",
                "build the manifest where the run was made, before anything else is checked out",
            )
    if evidence.tree.modified:
        names = ", ".join(evidence.tree.modified[:5])
        count = len(evidence.tree.modified)
        yield _finding(
            "clean-tree",
            f"{count} tracked file(s) that differ from the commit: {names}",
            "a clean tree",
            "commit or restore them, then record again",
        )


def check_measured(evidence: Evidence) -> Iterator[Finding]:
    """Every file that a test used is, in the folder, what the commit holds."""
    for path, blob in evidence.blobs.items():
        entry = evidence.tree.files.get(path)
        if entry is not None and entry.blob != blob:
            yield _finding("measured-files", f"{path} as {blob[:12]}", f"{entry.blob[:12]}, as in the commit")


def check_inventory(evidence: Evidence) -> Iterator[Finding]:
    """Every rank collected the same tests, all were run, and the run left nothing out."""
    sessions = evidence.records.sessions
    first = set(sessions[0].collected)
    for session in sessions:
        rank = session.start.get("rank", 0)
        other = set(session.collected)
        if other != first:
            names = ", ".join(sorted(other ^ first)[:3])
            yield _finding(
                "same-inventory",
                f"rank {rank} differs in {len(other ^ first)} test(s): {names}",
                "the same tests on every rank",
            )
        if session.end.get("narrowed"):
            yield _finding(
                "whole-stage",
                f"a run narrowed by {', '.join(session.end['narrowed'])}",
                "a run of the whole stage",
                "record without -k, --lf, --deselect and single test ids",
            )
        if session.end.get("collect_errors"):
            yield _finding(
                "collection", f"{session.end['collect_errors']} collection error(s)", "none", "repair the collection"
            )
        if session.tests and all(test.outcome == "skipped" for test in session.tests) and len(sessions) > 1:
            yield _finding("rank-skipped", f"rank {rank} skipped every test", "no rank that skips everything")
    if not first:
        yield _finding("not-empty", "no tests", "at least one test", "check the stage's `select` and `paths`")
    missing = first - {test.id for session in sessions for test in session.tests}
    if missing:
        names = ", ".join(sorted(missing)[:3])
        yield _finding(
            "all-tests-ran", f"{len(missing)} collected test(s) without a record: {names}", "a record of each"
        )
    ranks = max(int(session.start.get("ranks", 0)) for session in sessions)
    seen = {int(session.start.get("rank", 0)) for session in sessions if int(session.start.get("ranks", 0)) == ranks}
    if ranks > 1 and seen != set(range(ranks)):
        yield _finding("all-ranks", f"sessions of the ranks {sorted(seen)}", f"sessions of all {ranks} ranks")


def check_elsewhere(evidence: Evidence) -> Iterator[Finding]:
    """Hold the code that ran to the tree's own, not an installed copy of it."""
    names = sorted({name for session in evidence.records.sessions for name in session.end.get("elsewhere", ())})
    if names:
        yield _finding(
            "own-code",
            f"{', '.join(names[:3])} loaded from outside the repository",
            "the repository's own files",
            "install the project in editable form, or put its source on the path",
        )


def check_totals(evidence: Evidence) -> Iterator[Finding]:
    """Hold the report of the run to the same outcomes of the same tests."""
    totals = evidence.totals
    if not totals.source:
        return
    ours = {test.id: test.outcome for test in evidence.manifest.tests}
    missing, extra = set(ours) - set(totals.outcomes), set(totals.outcomes) - set(ours)
    if missing or extra:
        names = ", ".join(sorted(missing | extra)[:3])
        yield _finding(
            "report-totals",
            f"{len(totals.outcomes)} tests in {totals.source}, {len(ours)} recorded; {names}",
            "the same tests",
        )
    other = sorted(
        name for name in set(ours) & set(totals.outcomes) if _kind(ours[name]) != _kind(totals.outcomes[name])
    )
    if other:
        name = other[0]
        yield _finding(
            "report-totals",
            f"{name}: {ours[name]} recorded, {totals.outcomes[name]} in {totals.source}",
            "equal outcomes",
        )


def _kind(outcome: str) -> str:
    return "passed" if outcome == "passed" else "skipped" if outcome in ("skipped", "xfailed") else "other"


def check_skips(evidence: Evidence) -> Iterator[Finding]:
    """Every skip is declared: an xfail, a skip that the report calls declared, or a capability of the row."""
    undeclared: dict[str, str] = {}
    for session in evidence.records.sessions:
        for test in session.tests:
            if test.outcome != "skipped" or test.id in evidence.totals.declared:
                continue
            if not any(word.lower() in test.reason.lower() for word in evidence.allow_skips):
                undeclared[test.id] = test.reason
    if undeclared:
        name, reason = next(iter(undeclared.items()))
        yield _finding(
            "skips-declared",
            f"{len(undeclared)} undeclared skip(s), such as {name}: {reason}",
            "skips that the stage row allows",
            "add their class to `allow_skips`, or provide what they lack",
            is_warning=True,
        )


def check_opaque(evidence: Evidence) -> Iterator[Finding]:
    """Say how many tests are opaque: they always run, so they cost precision, never safety."""
    opaque = [test for test in evidence.manifest.tests if test.opaque]
    if opaque:
        reasons: dict[str, int] = {}
        for test in opaque:
            for reason in test.opaque:
                word = reason.partition(":")[0]
                reasons[word] = reasons.get(word, 0) + 1
        words = ", ".join(f"{word} {number}" for word, number in sorted(reasons.items(), key=lambda item: -item[1]))
        yield _finding(
            "opaque-tests",
            f"{len(opaque)} of {len(evidence.manifest.tests)} tests ({words})",
            "few",
            "`lockgate manifest show FILE --test ID` names the reason of one",
            is_warning=True,
        )


RUN_RULES: tuple[Rule, ...] = (
    check_damage,
    check_finished,
    check_core,
    check_canary,
    check_source,
    check_measured,
    check_inventory,
    check_elsewhere,
    check_totals,
    check_skips,
    check_opaque,
)

UNPUBLISHABLE_WARNINGS = frozenset({"skips-declared"})
"""Warnings that a plan can live with, but that keep a manifest from being published."""


def check_manifest(manifest: Manifest, problems: Sequence[Finding], wanted: Expectations) -> list[Finding]:
    """Apply every check of a manifest that was read; a finding that is no warning refuses it."""
    header = manifest.header
    found = list(_check_identity(manifest, problems, wanted))
    found += _check_age(manifest, wanted)
    bad = [path for path in _paths(manifest) if not is_safe(path)]
    if bad:
        found.append(_finding("safe-paths", repr(bad[0])[:80], "paths relative to the repository", "refuse its source"))
    if len({test.id for test in manifest.tests}) != len(manifest.tests):
        found.append(_finding("unique-tests", "a test id that occurs twice", "each test once"))
    if not manifest.tests:
        found.append(_finding("not-empty", "no tests", "at least one test"))
    if header.core not in tuple(Core):
        found.append(_finding("core-known-good", header.core, "a known core"))
    return found


def _check_identity(manifest: Manifest, problems: Sequence[Finding], wanted: Expectations) -> Iterator[Finding]:
    header = manifest.header
    if header.blocks_version != BLOCKS_VERSION:
        yield _finding("blocks-version", header.blocks_version, str(BLOCKS_VERSION))
    if not header.is_complete:
        yield _finding("complete", "an incomplete recording", "one whose every check held")
        yield from (problem for problem in problems if not problem.is_warning)
    yield from _check_wishes(header, wanted)
    if len(header.source) not in (40, 64) or set(header.source) - set("0123456789abcdef"):
        yield _finding("source-commit", repr(header.source)[:80], "a full commit id")
    elif wanted.known_commits is not None and header.source not in wanted.known_commits:
        yield _finding(
            "source-known",
            f"commit {header.source[:12]}, unknown in this clone",
            "a commit of this repository",
            "fetch more history (`git fetch --unshallow`); contents are compared all the same",
            is_warning=True,
        )


def _check_wishes(header: Header, wanted: Expectations) -> Iterator[Finding]:
    if wanted.stage and header.stage != wanted.stage:
        yield _finding("stage", header.stage, wanted.stage, "pass the manifest of this stage")
    if wanted.runner_profile and header.runner_profile != wanted.runner_profile:
        yield _finding("runner-profile", header.runner_profile or "none", wanted.runner_profile)
    if wanted.ranks is not None and header.ranks != wanted.ranks:
        yield _finding("ranks", header.ranks, str(wanted.ranks))
    if wanted.simulated is not None and header.simulated != wanted.simulated:
        kinds = {True: "recorded on simulated devices", False: "recorded on real devices"}
        yield _finding("simulated", kinds[header.simulated], kinds[wanted.simulated])
    if wanted.content_hash and header.content_hash != wanted.content_hash:
        yield _finding("content-hash", header.content_hash[:16], wanted.content_hash[:16], "fetch it again")
    if wanted.pytest_config and header.pytest_config != wanted.pytest_config:
        yield _finding("pytest-config", "another pytest configuration", "the present one")
    for key, value in wanted.environment.items():
        if header.environment.get(key, "") != value:
            yield _finding("environment", f"{key} {header.environment.get(key, '') or 'unknown'}", value)


def _check_age(manifest: Manifest, wanted: Expectations) -> Iterator[Finding]:
    hours = (wanted.now - manifest.header.started) / 3600
    if hours < -FUTURE / 3600:
        yield _finding("age", f"a run that starts {-hours:.1f} h from now", "a run of the past", "check both clocks")
    elif hours > wanted.max_age_hours:
        yield _finding(
            "age",
            f"{hours:.0f} h",
            f"at most {wanted.max_age_hours:.0f} h",
            "check why the nightly did not publish",
            is_warning=not wanted.is_age_decisive,
        )
    elif hours > wanted.max_age_hours / 2:
        yield _finding(
            "age",
            f"{hours:.0f} h",
            f"less than {wanted.max_age_hours / 2:.0f} h",
            "it costs precision, not safety",
            is_warning=True,
        )


def _paths(manifest: Manifest) -> Iterator[str]:
    yield from manifest.files
    for relation in (manifest.executed, manifest.imported, manifest.opened, manifest.probed, manifest.libraries):
        yield from relation
    yield from (folder for folder in manifest.listed if folder)
    yield from (test.path for test in manifest.tests)


def is_safe(path: str) -> bool:
    """Whether a path stays within the repository on every platform."""
    if not path or path.startswith(("/", "\\", "~")) or "\0" in path or (len(path) > 1 and path[1] == ":"):
        return False
    return ".." not in path.replace("\\", "/").split("/") and not any(ord(letter) < 32 for letter in path)
