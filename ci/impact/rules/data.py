"""Every other file: who opened it, who listed its folder, who asked for it, and what is inert."""

from __future__ import annotations

from ci.impact.changes import Change
from ci.impact.facts import Effect, View, union
from ci.impact.patterns import matches
from ci.impact.reasons import Reason

OPENED_BY_C = (
    "*.arrow", "*.db", "*.duckdb", "*.feather", "*.h5", "*.hdf5", "*.jp2", "*.mdb", "*.mp4", "*.nc", "*.orc",
    "*.parquet", "*.shp", "*.sqlite", "*.sqlite3", "*.tif", "*.tiff", "*.wav",
)  # fmt: skip
"""Kinds that libraries usually open beneath Python, where no audit event tells of it."""

TRACKED = ("*.pyi", "py.typed")
"""Files that nothing executes, and that Python code opens if at all."""


def judge(change: Change, view: View) -> list[Effect]:
    """Judge any file by its recorded users; without any it is inert, declared, or unknown."""
    path = change.path
    if change.is_mode_only:
        return _mode(change, view)
    declared = matches(path, view.policy.stage.data) or matches(path, TRACKED)
    is_documentation = view.policy.is_documentation(path)
    found = [*_readers(change, view), *presence(change, view, lists_content=not is_documentation)]
    if found and matches(path, OPENED_BY_C) and not declared:
        return [Effect(path=path, reason=Reason.INVISIBLE_DATA, detail=str(change))]
    if found:
        return found
    if is_documentation:
        return [Effect(path=path, reason=Reason.DOCUMENTATION, detail=f"{change}; listed as {is_documentation}")]
    if declared:
        return [Effect(path=path, reason=Reason.DATA_UNREAD, detail=f"{change}; listed as {declared}")]
    return [Effect(path=path, reason=Reason.UNKNOWN_FILE, detail=str(change))]


def _readers(change: Change, view: View) -> list[Effect]:
    path = change.path
    library = view.manifest.libraries.get(path)
    pairs = (
        (Reason.TEST_FILE, view.by_file.get(path, 0)),
        (Reason.NATIVE, library.tests if library is not None else 0),
        (Reason.DATA_READ, view.manifest.opened.get(path, 0)),
    )
    return [Effect(path=path, reason=reason, detail=str(change), tests=tests) for reason, tests in pairs if tests]


def presence(change: Change, view: View, *, lists_content: bool = False) -> list[Effect]:
    """Give the tests that listed a folder in which a name appeared or went, or that asked for the name.

    With `lists_content` whoever listed the folder of a changed file counts as
    well: what was listed may have been read unseen.
    """
    path = change.path
    names = view.appeared_or_went(change)
    folders = {name.rpartition("/")[0] for name in names}
    if lists_content and not names:
        folders = {path.rpartition("/")[0]}
    found = []
    for folder in sorted(folders):
        tests = view.manifest.listed.get(folder, 0)
        if tests:
            detail = f"{change}; listed {folder or 'the root folder'}"
            found.append(Effect(path=path, reason=Reason.FOLDER_LISTED, detail=detail, tests=tests))
    tests = union(view.manifest.probed.get(name, 0) for name in names)
    if tests == view.manifest.everything and view.is_test_file(path):
        # Collecting asks for every test file, on behalf of all tests; who comes and goes with it is known by name.
        tests = 0
    if tests:
        found.append(Effect(path=path, reason=Reason.PATH_PROBED, detail=str(change), tests=tests))
    return found


def _mode(change: Change, view: View) -> list[Effect]:
    tests = view.users(change.path)
    if tests:
        return [Effect(path=change.path, reason=Reason.MODE, detail=str(change), tests=tests)]
    pattern = view.policy.is_documentation(change.path)
    if pattern:
        return [Effect(path=change.path, reason=Reason.DOCUMENTATION, detail=f"{change}; listed as {pattern}")]
    return [Effect(path=change.path, reason=Reason.UNKNOWN_FILE, detail=str(change))]
