"""Native sources: dependency files say which library, the recording says who loaded it."""

from __future__ import annotations

from ci.impact.changes import Change, is_below
from ci.impact.facts import Effect, View, union
from ci.impact.patterns import matches
from ci.impact.reasons import Reason
from ci.manifest.model import Kind, Library

SOURCES = (
    "*.c", "*.cc", "*.cpp", "*.cu", "*.cuh", "*.cxx", "*.f", "*.f90", "*.h", "*.hh", "*.hpp", "*.hxx", "*.inc",
    "*.inl", "*.ipp", "*.pxd", "*.pxi", "*.pyx", "*.rs", "*.s", "*.S", "*.tcc", "*.asm", "*.ptx", "*.def", "*.lds",
)  # fmt: skip
BUILD_FILES = ("CMakeLists.txt", "*.cmake", "CMakePresets.json", "meson.build", "meson.options", "Makefile", "*.mk")


def judge(change: Change, view: View) -> list[Effect] | None:
    """Judge a native source, header or build file; None for every other path.

    One that tests only read as data, in a repository whose libraries are all
    known, is data.
    """
    path = change.path
    known = view.manifest.files.get(path)
    is_build = bool(matches(path, BUILD_FILES))
    if not (is_build or matches(path, SOURCES) or (known is not None and known.kind is Kind.NATIVE)):
        return None
    libraries = view.manifest.libraries
    holders = [library for library in libraries.values() if path in library.sources]
    if is_build and not holders:
        folder = path.rpartition("/")[0]
        holders = [item for item in libraries.values() if any(is_below(source, folder) for source in item.sources)]
    if not holders:
        is_data = path in view.manifest.opened and all(library.is_known for library in libraries.values())
        return None if is_data else [Effect(path=path, reason=Reason.UNKNOWN_NATIVE, detail=str(change))]
    unknown = [library for library in libraries.values() if not library.is_known and library not in holders]
    found = [_loaded(change, library) for library in (*holders, *unknown)]
    readers = view.manifest.opened.get(path, 0) | view.by_file.get(path, 0)
    if readers:
        found.append(Effect(path=path, reason=Reason.DATA_READ, detail=str(change), tests=readers))
    probers = union(view.manifest.probed.get(one, 0) for one in view.appeared_or_went(change))
    if probers:
        found.append(Effect(path=path, reason=Reason.PATH_PROBED, detail=str(change), tests=probers))
    return found


def _loaded(change: Change, library: Library) -> Effect:
    how = "is built from it" if library.is_known else "has no dependency files, so it may be built from it"
    return Effect(
        path=change.path,
        reason=Reason.NATIVE,
        detail=f"{change}; {library.path} {how}",
        tests=library.tests,
    )
