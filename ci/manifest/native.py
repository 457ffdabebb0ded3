"""Which sources a native library of the repository is built from: dependency files -> objects -> libraries.

Ninja keeps the compilers' dependency lists in `.ninja_deps` and knows which
objects a library is linked from; make-style builds leave `.d` files beside the
objects. Where neither names a library's sources they are unknown, and the
plan takes every native file for one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ci.errors import ProcessError
from ci.process import run

LIMIT = 60.0
LIBRARY = re.compile(r"\.(so(\.[0-9]+)*|pyd|dylib|dll)$")


@dataclass(frozen=True, kw_only=True)
class Native:
    """Sources of each library, by its path in the repository; `notes` say what could not be read."""

    sources: Mapping[str, frozenset[str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def parse_depfile(text: str) -> dict[str, frozenset[str]]:
    """Parse a compiler's `.d` file: target -> prerequisites, with make's escapes undone."""
    found: dict[str, set[str]] = {}
    for line in text.replace("\\\r\n", " ").replace("\\\n", " ").splitlines():
        split = re.search(r"(?<!\\):(?=\s|$)", line)
        if split is None or line.lstrip().startswith("#"):
            continue
        needs = _words(line[split.end() :])
        for target in _words(line[: split.start()]):
            found.setdefault(target, set()).update(needs)
    return {target: frozenset(needs) for target, needs in found.items()}


def _words(text: str) -> list[str]:
    words = re.findall(r"(?:\\.|\$\$|[^\s])+", text)
    return [re.sub(r"\\([\s#:\\])", r"\1", word).replace("$$", "$") for word in words]


def parse_ninja_deps(text: str) -> dict[str, frozenset[str]]:
    """Parse `ninja -t deps`: a line `target: #deps N, ... (VALID)`, then one indented line per file."""
    found: dict[str, set[str]] = {}
    current: set[str] | None = None
    for line in text.splitlines():
        head = re.match(r"^(\S.*): #deps \d+,.*\((VALID|STALE)\)", line)
        if head:
            current = found.setdefault(head.group(1), set())
        elif line.startswith("    ") and current is not None:
            current.add(line.strip())
        else:
            current = None
    return {target: frozenset(needs) for target, needs in found.items()}


def parse_ninja_inputs(text: str) -> frozenset[str]:
    """Parse `ninja -t inputs TARGET`: one path per line."""
    return frozenset(line.strip() for line in text.splitlines() if line.strip())


def link_sources(inputs: Iterable[str], deps: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Follow a library's inputs through its objects to all files that went into it."""
    found: set[str] = set()
    for item in inputs:
        found.add(item)
        found.update(deps.get(item, ()))
    return frozenset(found)


def read_native(root: Path, builds: Iterable[Path], *, environ: Mapping[str, str]) -> Native:
    """Read every build folder; a library that was copied to its package is found by its name and content."""
    sources: dict[str, frozenset[str]] = {}
    notes: list[str] = []
    for build in sorted({path.resolve() for path in builds}):
        if (build / "build.ninja").is_file():
            _read_ninja(root, build, sources, notes, environ)
        else:
            _read_depfiles(root, build, sources, notes)
    return Native(sources=sources, notes=tuple(notes))


def find_builds(root: Path) -> list[Path]:
    """Find build folders: those with a `build.ninja`, and those with `.d` files but none above them."""
    found: list[Path] = []
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(
            name
            for name in folders
            if name not in (".git", ".lockgate", "node_modules", "site-packages", "__pycache__")
        )
        if "build.ninja" in files:
            found.append(Path(folder))
            folders[:] = []
        elif any(name.endswith(".d") for name in files):
            found.append(Path(folder))
    return found


def _read_ninja(
    root: Path, build: Path, sources: dict[str, frozenset[str]], notes: list[str], environ: Mapping[str, str]
) -> None:
    def ninja(*words: str) -> str:
        return run(["ninja", "-C", str(build), *words], cwd=build, environ=environ, limit=LIMIT, capture=True).stdout

    try:
        deps = parse_ninja_deps(ninja("-t", "deps"))
        targets = [line.partition(": ")[0] for line in ninja("-t", "targets", "all").splitlines()]
        for target in targets:
            if not LIBRARY.search(target):
                continue
            inputs = [
                line for line in parse_ninja_inputs(ninja("-t", "inputs", target)) if not line.startswith("ninja:")
            ]
            files = link_sources(inputs, deps)
            objects = [item for item in inputs if item.endswith((".o", ".obj"))]
            if any(item not in deps for item in objects):
                notes.append(f"{build / target}: not every object has a dependency list; build it first")
                continue
            _add(root, build, target, files | {"build.ninja"}, sources)
    except ProcessError as error:
        notes.append(f"{build}: {error.message}")


def _read_depfiles(root: Path, build: Path, sources: dict[str, frozenset[str]], notes: list[str]) -> None:
    """Without ninja nothing tells which objects a library holds: all of its build folder."""
    needs: set[str] = set()
    for path in sorted(build.rglob("*.d")):
        try:
            for files in parse_depfile(path.read_text(encoding="utf-8", errors="replace")).values():
                # A compiler writes names relative to where it was started, which a depfile does not say.
                for item in files:
                    places = (folder / item for folder in (path.parent, build, root))
                    needs.update(str(place) for place in places if place.is_file())
        except OSError as error:
            notes.append(f"{path}: {error.strerror}")
    for path in sorted(build.rglob("*")):
        if needs and LIBRARY.search(path.name) and path.is_file():
            _add(root, build, str(path.relative_to(build)), frozenset(needs), sources)


def _add(root: Path, build: Path, target: str, files: Iterable[str], sources: dict[str, frozenset[str]]) -> None:
    base = os.path.realpath(root)
    inside = base + os.sep
    found = set()
    for item in files:
        place = os.path.realpath(build / item)
        outside_build = not place.startswith(os.path.realpath(build) + os.sep)
        if place.startswith(inside) and outside_build and Path(place).is_file():
            found.add(os.path.relpath(place, base).replace(os.sep, "/"))
    # The files that decide how it is built, from its sources' folders up to the root.
    for item in list(found):
        folder = item.rpartition("/")[0]
        while True:
            name = f"{folder}/CMakeLists.txt" if folder else "CMakeLists.txt"
            if (root / name).is_file():
                found.add(name)
            if not folder:
                break
            folder = folder.rpartition("/")[0]
    library = build / target
    for path in {library.resolve(), *_copies(root, library)}:
        if str(path).startswith(inside):
            key = os.path.relpath(path, base).replace(os.sep, "/")
            sources[key] = sources.get(key, frozenset()) | frozenset(found)


def _copies(root: Path, library: Path) -> list[Path]:
    """Find copies of a built library inside the repository: same name, same content."""
    if not library.is_file():
        return []
    content = library.read_bytes()
    found = []
    for folder, folders, files in os.walk(os.path.realpath(root)):
        folders[:] = [name for name in folders if name not in (".git", ".lockgate", "node_modules", "site-packages")]
        if library.name in files:
            path = Path(folder, library.name)
            if path.stat().st_size == len(content) and path.read_bytes() == content:
                found.append(path)
    return found
