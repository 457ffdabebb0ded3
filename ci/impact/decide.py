"""The decision: Facts in, Plan out. Pure; every step is visible in `decide`.

The change's own effects name tests. Drift (what happened since the manifest
was recorded) goes through the same rules: whom it touches has dependencies
that may be others by now, and gets its whole import closure instead.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ci.impact.changes import Change
from ci.impact.facts import Effect, Facts, Span, View, union
from ci.impact.names import module_suffixes, parse_imports, parse_tests, resolve_imports
from ci.impact.patterns import matches
from ci.impact.plan import Cause, Decision, Identity, Plan, Selected
from ci.impact.reasons import Reason, Scope
from ci.impact.rules import effects_of
from ci.impact.rules.python import new_module_words
from ci.manifest.model import Bits, count, unpack
from ci.stages.model import Stage

ORDER = {reason: place for place, reason in enumerate(Reason)}
"""The order of the rules is the order of the reasons."""

WITHOUT_CODE = frozenset({Reason.DOCUMENTATION, Reason.OTHER_WORKFLOW})
"""What even an opaque test cannot see."""

UNTRACKED = ("_version.py", "**/*.egg-info/**", "**/*.dist-info/**", "**/__pycache__/**", ".git/**")
"""Generated files that say which version this is; declare others under the row's `data`."""


def decide(facts: Facts) -> Plan:
    """Decide what a change needs: everything, some tests or none, each with its reason."""
    view = View(manifest=facts.manifest, policy=facts.policy, span=facts.own)
    effects = sort_effects(effect for change in facts.own.changes for effect in effects_of(change, view))
    sweeping = [effect for effect in effects if effect.reason.scope is Scope.EVERYTHING]
    if sweeping:
        return _all(facts, effects, sweeping)
    if any(effect.reason not in WITHOUT_CODE for effect in effects):
        effects += drift_effects(facts, effects)
        effects += standing_effects(facts)
    chosen = choose(effects)
    return _some(facts, view, effects, chosen)


def sort_effects(effects: Iterable[Effect]) -> list[Effect]:
    """Put effects into the order of the rules; within a rule the order of paths stays."""
    return sorted(effects, key=lambda effect: ORDER[effect.reason])


def choose(effects: Sequence[Effect]) -> dict[int, Effect]:
    """Give each selected test the first effect that names it."""
    chosen: dict[int, Effect] = {}
    seen = 0
    for effect in effects:
        fresh = effect.tests & ~seen
        if fresh:
            chosen.update((index, effect) for index in unpack(fresh))
            seen |= fresh
    return chosen


def standing_effects(facts: Facts) -> list[Effect]:
    """Give the tests that run whenever anything but documentation changed."""
    found: dict[tuple[Reason, str], int] = {}
    for index, test in enumerate(facts.manifest.tests):
        if test.opaque:
            key = (Reason.OPAQUE, "; ".join(test.opaque))
        elif not test.is_skippable:
            key = (Reason.NOT_PASSED, f"recorded outcome: {test.outcome}")
        else:
            continue
        found[key] = found.get(key, 0) | 1 << index
    for index in unpack(_readers_of_untracked(facts)):
        key = (Reason.OPAQUE, "reads files that git does not track")
        found[key] = found.get(key, 0) | 1 << index
    return [Effect(path="", reason=reason, detail=detail, tests=tests) for (reason, detail), tests in found.items()]


def _readers_of_untracked(facts: Facts) -> Bits:
    """Find who read files that no tree holds: their content at head is not known."""
    manifest = facts.manifest
    exempt = (*UNTRACKED, *facts.policy.stage.data, *facts.policy.stage.documentation)
    paths = [
        path
        for path, file in manifest.files.items()
        if not file.is_tracked and path not in manifest.libraries and not matches(path, exempt)
    ]
    return union(manifest.opened.get(path, 0) | manifest.imported.get(path, 0) for path in paths)


def drift_effects(facts: Facts, effects: Sequence[Effect]) -> list[Effect]:
    """Give the tests whose dependencies drifted and that the change may touch by now."""
    if not facts.drift.changes:
        return []
    manifest = facts.manifest
    view = View(manifest=manifest, policy=facts.policy, span=facts.drift)
    drifted: dict[str, int] = {}
    for change in facts.drift.changes:
        for effect in effects_of(change, view):
            everything = effect.reason.scope is Scope.EVERYTHING
            tests = manifest.everything if everything else effect.tests
            if tests:
                drifted[change.path] = drifted.get(change.path, 0) | tests
    unknown = _unknown_tests(facts)
    if not drifted:
        return unknown
    importers = importers_at_base(facts.drift, manifest.edges)
    quiet = {effect.path for effect in effects if effect.reason in WITHOUT_CODE}
    found = []
    for change in facts.own.changes:
        tests = 0 if change.path in quiet else _drifted_users(change, facts, view, drifted, importers)
        if tests:
            first = next(path for path, bits in drifted.items() if bits & tests)
            detail = f"{change}, and {first} changed since the manifest"
            found.append(Effect(path=change.path, reason=Reason.DRIFTED, detail=detail, tests=tests))
    return found + unknown


def _drifted_users(
    change: Change, facts: Facts, view: View, drifted: Mapping[str, Bits], importers: Mapping[str, list[str]]
) -> Bits:
    """Give the drifted tests that a change may touch: through their closure as recorded, or as it is at base.

    What is not Python may be read by whoever drifted. A new module touches
    those that name it.
    """
    anyone = union(drifted.values())
    if not view.is_python(change):
        return anyone
    names = new_module_words(change.path) if change.is_added else ()
    paths = {change.path, *(path for name in names for path in facts.own.mentions.get(name, ()))}
    tests = anyone & union(view.users(path) for path in paths)
    reaching = who_reaches(paths, importers)
    return tests | union(bits for path, bits in drifted.items() if path in reaching)


def _unknown_tests(facts: Facts) -> list[Effect]:
    """Name test files that changed since the manifest: they may hold tests that it does not know."""
    view = View(manifest=facts.manifest, policy=facts.policy, span=facts.drift)
    paths = [change.path for change in facts.drift.changes if change.path in facts.own.after]
    return [
        Effect(path=path, reason=Reason.NEW_TEST, detail=f"{path} changed since the manifest", files=(path,))
        for path in paths
        if view.is_test_file(path)
    ]


def importers_at_base(span: Span, edges: Mapping[str, frozenset[str]]) -> dict[str, list[str]]:
    """Say by which files each file is imported at base.

    Files that did not drift keep their recorded edges; drifted ones are read
    again. One that git lacks may import everything.
    """
    suffixes = module_suffixes(span.after)
    graph = dict(edges.items())
    for change in span.changes:
        if change.after is not None and change.path.endswith(".py"):
            source = span.source(change.after)
            graph[change.path] = (
                frozenset(span.after)
                if source is None
                else frozenset(resolve_imports(change.path, parse_imports(source), suffixes))
            )
    importers: dict[str, list[str]] = {}
    for path, imported in graph.items():
        for one in imported:
            importers.setdefault(one, []).append(path)
    return importers


def who_reaches(targets: Iterable[str], importers: Mapping[str, list[str]]) -> frozenset[str]:
    """Find the files whose import closure holds one of some files, these included."""
    seen: set[str] = set()
    todo = list(targets)
    while todo:
        path = todo.pop()
        if path not in seen:
            seen.add(path)
            todo.extend(importers.get(path, ()))
    return frozenset(seen)


def policy_hash(stage: Stage) -> str:
    """Identify the row that a plan was made with."""
    return hashlib.blake2b(repr(stage).encode(), digest_size=16).hexdigest()


def _identified(plan: Plan, facts: Facts, effects: Sequence[Effect]) -> Plan:
    header = facts.manifest.header
    tests = facts.manifest.tests
    causes = tuple(
        Cause(
            path=effect.path,
            reason=effect.reason,
            detail=effect.detail,
            tests=None if effect.reason.scope is Scope.EVERYTHING else count(effect.tests),
        )
        for effect in effects
    )
    return replace(
        plan,
        causes=causes,
        base=facts.base,
        head=facts.head,
        merge_base=facts.merge_base,
        manifest=Identity(source=header.source, age_hours=facts.age_hours, content_hash=header.content_hash),
        policy_hash=policy_hash(facts.policy.stage),
        warnings=facts.warnings,
        known=len(tests),
        total_seconds=sum(test.duration for test in tests),
    )


def _all(facts: Facts, effects: Sequence[Effect], sweeping: Sequence[Effect]) -> Plan:
    first = sweeping[0]
    plan = Plan(
        stage=facts.policy.stage.name,
        decision=Decision.ALL,
        explanation=f"everything runs: {first.reason} ({first.detail})",
        reasons=dict(Counter(str(effect.reason) for effect in sweeping)),
        selected=len(facts.manifest.tests),
        seconds=sum(test.duration for test in facts.manifest.tests),
    )
    return _identified(plan, facts, effects)


def _some(facts: Facts, view: View, effects: Sequence[Effect], chosen: dict[int, Effect]) -> Plan:
    tests = facts.manifest.tests
    gone = {index for index, test in enumerate(tests) if test.path not in facts.own.after}
    selected = [
        Selected(id=tests[index].id, reason=effect.reason, detail=effect.detail)
        for index, effect in sorted(chosen.items())
        if index not in gone
    ]
    selected += _whole_files(facts, view, effects, chosen)
    skipped = tuple(test.id for index, test in enumerate(tests) if index not in chosen and index not in gone)
    seconds = sum(tests[index].duration for index in chosen)
    if selected:
        decision = Decision.SUBSET
        explanation = f"{len(chosen)} of {len(tests)} known tests run"
    else:
        decision = Decision.NONE
        explanation = f"nothing runs: no test depends on what changed ({_paths(facts.own.changes)})"
    plan = Plan(
        stage=facts.policy.stage.name,
        decision=decision,
        explanation=explanation,
        tests=tuple(selected),
        skipped=skipped,
        reasons=dict(Counter(str(item.reason) for item in selected)),
        selected=len(chosen),
        seconds=seconds,
    )
    return _identified(plan, facts, effects)


def _whole_files(facts: Facts, view: View, effects: Sequence[Effect], chosen: dict[int, Effect]) -> list[Selected]:
    """Name test files that may hold tests which the manifest does not know, and the new tests in them.

    These are the files that an effect names, and those whose known tests all
    run: what changed for all of them may have given them company.
    """
    known = {test.id.partition("[")[0] for test in facts.manifest.tests}
    reasons: dict[str, Effect] = {}
    for effect in effects:
        for path in effect.files:
            reasons.setdefault(path, effect)
    for path, bits in view.by_file.items():
        if path not in reasons and all(index in chosen for index in unpack(bits)):
            reasons[path] = chosen[next(unpack(bits))]
    found = []
    for path, effect in reasons.items():
        entry = facts.own.after.get(path)
        if entry is None:
            continue
        found.append(Selected(id=path, reason=effect.reason, detail=effect.detail))
        source = facts.own.source(entry) or facts.drift.source(entry) or b""
        fresh = [f"{path}::{name}" for name in parse_tests(source) if f"{path}::{name}" not in known]
        found += [Selected(id=name, reason=Reason.NEW_TEST, detail=effect.detail) for name in fresh]
    return found


def _paths(changes: Sequence[Change]) -> str:
    shown = ", ".join(change.path for change in changes[:3])
    return (f"{shown} and {len(changes) - 3} more" if len(changes) > 3 else shown) or "no change"
