"""Python files: conftest, packages, test files, modules block by block, and modules that are new."""

from __future__ import annotations

from collections.abc import Iterable

from ci.impact.blocks import MODULE, compile_notes
from ci.impact.changes import Change
from ci.impact.facts import Effect, View, union
from ci.impact.mentions import narrow
from ci.impact.names import added_functions, importable_names
from ci.impact.patterns import matches
from ci.impact.reasons import Reason
from ci.impact.rules import data
from ci.manifest.model import Bits

UNASKED = frozenset({"?"})
"""What a word is mentioned by when nobody looked for it: something."""


def judge(change: Change, view: View) -> list[Effect] | None:
    """Judge a Python file; None for every other path, and for one that only counts as data."""
    if not view.is_python(change):
        return None
    if change.is_mode_only:
        return data.judge(change, view)
    found = [*_readers(change, view), *data.presence(change, view)]
    name = change.path.rpartition("/")[2]
    if name == "conftest.py":
        found += _conftest(change, view)
    elif change.is_added:
        found += _added(change, view)
    elif change.is_removed:
        found += _removed(change, view)
    else:
        found += _changed(change, view)
    if found:
        return found
    pattern = view.policy.is_documentation(change.path)
    if pattern:
        return [Effect(path=change.path, reason=Reason.DOCUMENTATION, detail=f"{change}; listed as {pattern}")]
    return [Effect(path=change.path, reason=Reason.NOT_IMPORTED, detail=str(change))]


def _readers(change: Change, view: View) -> list[Effect]:
    """Whoever read the text of a file sees its comments too."""
    tests = view.manifest.opened.get(change.path, 0)
    if not tests:
        return []
    return [Effect(path=change.path, reason=Reason.SOURCE_READ, detail=str(change), tests=tests)]


def _conftest(change: Change, view: View) -> list[Effect]:
    if _same_blocks(change, view):
        return [_quiet(change)]
    folder = change.path.rpartition("/")[0]
    tests = view.below(folder) | view.importers(change.path)
    files = tuple(path for path in view.by_file if path.startswith(f"{folder}/") or not folder)
    return [Effect(path=change.path, reason=Reason.CONFTEST, detail=str(change), tests=tests, files=files)]


def _same_blocks(change: Change, view: View) -> bool:
    before, after = view.digests(change.path, change.before), view.digests(change.path, change.after)
    return bool(before) and before == after


def _quiet(change: Change) -> Effect:
    return Effect(path=change.path, reason=Reason.SAME_MEANING, detail=f"{change}, comments or layout alone")


def _package(change: Change, view: View) -> list[Effect]:
    """Give the tests at or below the folder of an `__init__.py`, if it is one."""
    folder, _, name = change.path.rpartition("/")
    tests = view.below(folder) if name == "__init__.py" else 0
    if not tests:
        return []
    return [Effect(path=change.path, reason=Reason.PACKAGE_INIT, detail=str(change), tests=tests)]


def _removed(change: Change, view: View) -> list[Effect]:
    found = _package(change, view)
    tests = view.importers(change.path) & ~view.by_file.get(change.path, 0)
    if tests:
        found.append(Effect(path=change.path, reason=Reason.MODULE_LEVEL, detail=str(change), tests=tests))
    return found


def _changed(change: Change, view: View) -> list[Effect]:
    path = change.path
    before, after = view.digests(path, change.before), view.digests(path, change.after)
    if not before or not after:
        detail = f"{change}, and git lacks its content"
        return _module_level(change, view, detail=detail)
    if before == after:
        return [_quiet(change)]
    found = _compiler(change, view)
    if before.get(MODULE) != after.get(MODULE):
        found += _package(change, view)
        found += _narrowed(change, view)
    # A name on one side alone is a header that came or went: its owner's block differs as well.
    for name in sorted(before.keys() & after.keys()):
        if name != MODULE and before[name] != after[name]:
            found += _body(change, view, name)
    return found


def _compiler(change: Change, view: View) -> list[Effect]:
    """Judge what the compiler says of a file only now: it comes up when the module is imported, whoever runs it."""
    before, after = view.span.source(change.before), view.span.source(change.after)
    if after is None:
        return []
    notes = sorted(compile_notes(after) - (compile_notes(before) if before is not None else frozenset()))
    return _module_level(change, view, detail=f"{change}; {notes[0]}") if notes else []


def _body(change: Change, view: View, name: str) -> list[Effect]:
    path = change.path
    qualified = name.partition("#")[0]
    tests = view.manifest.executed.get(path, {}).get(name, 0) | view.by_function.get((path, qualified), 0)
    detail = f"{path}: {qualified}"
    if tests:
        reason = Reason.TEST_CHANGED if path in view.by_file else Reason.BODY
        return [Effect(path=path, reason=reason, detail=detail, tests=tests)]
    pattern = matches(path, view.policy.stage.plain)
    if pattern:
        detail = f"{detail}; {path} is plain by {pattern}"
        return [Effect(path=path, reason=Reason.PLAIN_UNEXECUTED, detail=detail)]
    tests = view.importers(path) | view.by_file.get(path, 0)
    return [Effect(path=path, reason=Reason.NO_EVIDENCE, detail=detail, tests=tests)] if tests else []


def _narrowed(change: Change, view: View) -> list[Effect]:
    """Judge a change at module level: every importer, or fewer where that is certain."""
    path = change.path
    before, after = view.span.source(change.before), view.span.source(change.after)
    if before is not None and after is not None and not view.is_test_file(path):
        unused = added_functions(before, after)
        if unused and not any(view.span.mentions.get(name, UNASKED) for name in unused):
            return _unused(change, view, unused)
        narrowed = narrow(change, view, before=before, after=after) if view.policy.stage.mentioned_names else None
        if narrowed is not None:
            return narrowed
    return _module_level(change, view, detail=str(change))


def _unused(change: Change, view: View, names: Iterable[str]) -> list[Effect]:
    """Judge definitions that nothing names: only code that looks names up dynamically can meet them."""
    dynamic = union(view.importers(path) for path in view.span.dynamic)
    tests = view.importers(change.path) & dynamic
    detail = f"{change.path}: {', '.join(sorted(names))} added, mentioned nowhere"
    if not tests:
        return [Effect(path=change.path, reason=Reason.UNUSED_DEFINITION, detail=detail)]
    users = sorted(path for path in view.span.dynamic if view.importers(path) & tests)
    detail = f"{detail}; names are looked up dynamically in {users[0]}"
    return [Effect(path=change.path, reason=Reason.REFLECTION, detail=detail, tests=tests)]


def _module_level(change: Change, view: View, *, detail: str) -> list[Effect]:
    path = change.path
    found = []
    own = view.by_file.get(path, 0)
    if own or view.is_test_file(path):
        found.append(Effect(path=path, reason=Reason.TEST_FILE, detail=detail, tests=own, files=(path,)))
    tests = view.importers(path)
    if tests & ~own:
        found.append(Effect(path=path, reason=Reason.MODULE_LEVEL, detail=detail, tests=tests))
    return found


def _added(change: Change, view: View) -> list[Effect]:
    shadowed = _shadowed(change, view)
    if shadowed:
        return [Effect(path=change.path, reason=Reason.SHADOWS, detail=f"{change}; shadows {shadowed}")]
    found = _package(change, view)
    if view.is_test_file(change.path):
        found.append(Effect(path=change.path, reason=Reason.NEW_TEST, detail=str(change), files=(change.path,)))
    tests, namers = _namers(change, view)
    if tests:
        detail = f"{change}; named in {namers}"
        found.append(Effect(path=change.path, reason=Reason.NEW_MODULE, detail=detail, tests=tests))
    return found


def new_module_words(path: str) -> frozenset[str]:
    """Give the words by which other files may name a new Python file: its own name, or its package's."""
    parts = path.removesuffix(".pyw").removesuffix(".py").split("/")
    while len(parts) > 1 and parts[-1] in ("__init__", "__main__"):
        parts = parts[:-1]
    return frozenset({parts[-1]})


def _namers(change: Change, view: View) -> tuple[Bits, str]:
    """Find the tests whose closure holds a file that names a new module, and say which files do."""
    tests = 0
    namers = []
    for word in new_module_words(change.path):
        for path in sorted(view.span.mentions.get(word, ())):
            bits = view.importers(path) | view.by_file.get(path, 0) | view.manifest.opened.get(path, 0)
            if path != change.path and bits:
                tests |= bits
                namers.append(path)
    more = f" and {len(namers) - 1} more" if len(namers) > 1 else ""
    return tests, f"{namers[0]}{more}" if namers else ""


def _shadowed(change: Change, view: View) -> str:
    """Say which installed or existing module a new file can be imported instead of, if any."""
    path = change.path
    installed = view.policy.installed | frozenset(view.manifest.header.environment.get("top_level", "").split())
    for folder, name in importable_names(path, view.span.after):
        top = name.partition(".")[0]
        place = f"{folder}/" if folder else ""
        was_there = f"{place}{top}.py" in view.span.before or f"{place}{top}" in view.folders[0]
        if top in installed and not was_there:
            return f"the installed module {top}"
        stem = name.replace(".", "/")
        for other in (f"{stem}.py", f"{stem}/__init__.py"):
            for existing in view.suffixes.get(other, ()):
                if existing != path and existing in view.span.after and view.importers(existing):
                    return existing
    return ""
