"""What a manifest says: the evidence of one full run of one stage, as frozen values.

A set of tests is an integer, `Bits`: bit i stands for `Manifest.tests[i]`. Union
is `|`, and one relation of a hundred thousand tests is 12 KB, so a plan asks per
changed thing, never per test. Mappings of a manifest that was read from a file
decode an entry when it is asked for.

Paths are relative to the repository, with `/`, never absolute and never with
`..`. Contents are identified by the git blob id (see `blob_id`), so that a
manifest can be compared with a tree of any clone, without a baseline commit.

Wider contexts are already credited: what a fixture, an imported module or the
collection executed counts for every test that depends on it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ci.values import Word

SCHEMA = 1
"""Grows whenever an older reader would misread a newer file."""

Bits = int
"""A set of tests: bit i is the test with index i."""


class Core(Word):
    """Which machinery noted the executed code; any other word is refused."""

    MONITORING = "lockgate-monitoring"  # our own sys.monitoring tool, Python >= 3.12
    CTRACE = "coverage-ctrace"  # coverage's C tracer


class Kind(Word):
    """What a file is to a manifest."""

    PYTHON = "python"
    NATIVE = "native"  # a source or header of a native library
    DATA = "data"


@dataclass(frozen=True, kw_only=True)
class Header:
    """Where the evidence comes from and what it may be compared with.

    `source` is the full commit id that was checked out, `started` and `created`
    are seconds since the epoch. `environment` is the fingerprint: python,
    platform, distributions (a digest of what is installed), torch, cuda,
    devices. `pytest_config` is a digest of pytest's effective configuration.
    `isolation` is `fork` (one process per test) or `shared`. `is_complete` says that every
    check of the recording held, `is_publishable` that every skip is declared as
    well; `content_hash` covers the whole file.
    """

    schema: int = SCHEMA
    tool: str
    blocks_version: int
    stage: str
    source: str
    started: float
    created: float
    is_complete: bool
    core: Core
    is_publishable: bool = False
    isolation: str = "fork"
    python: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    runner_profile: str = ""
    ranks: int = 0
    simulated: bool = False
    pytest_config: str = ""
    content_hash: str = ""


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """One file of the recorded tree (or an untracked one that a test used).

    `blob` is its git blob id, `mode` git's (`100644`, `120000` for a link,
    `160000` for a submodule). `blocks` maps qualified names to digests (see
    `ci.impact.blocks`), the module block under `<module>`; only Python files have any.
    """

    path: str
    blob: str
    mode: str = "100644"
    kind: Kind = Kind.DATA
    is_tracked: bool = True
    blocks: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TestRecord:
    """One test: `id` is pytest's node id relative to the repository, `duration` seconds.

    `outcome` is a word of `ci.report.model.Outcome`. `opaque` are the reasons
    why its dependencies are not known; such a test always runs. `path` is the
    file that holds it.
    """

    __test__ = False

    id: str
    path: str
    outcome: str
    duration: float = 0.0
    opaque: tuple[str, ...] = ()

    @property
    def is_skippable(self) -> bool:
        """Whether equal dependencies mean an equal result: it passed and hides nothing."""
        return self.outcome == "passed" and not self.opaque


@dataclass(frozen=True, kw_only=True)
class Library:
    """A native library of the repository: what it is built from, and who loaded it.

    `sources` are files of the repository (sources, headers, build files).
    `is_known` is false when no dependency files name them: then any native file
    may be one of its sources.
    """

    path: str
    sources: frozenset[str] = frozenset()
    is_known: bool = True
    tests: Bits = 0


@dataclass(frozen=True, kw_only=True)
class Atoms:
    """Everything one test depends on, for people and for tests; a plan asks by path instead."""

    blocks: frozenset[tuple[str, str]] = frozenset()
    modules: frozenset[str] = frozenset()
    opened: frozenset[str] = frozenset()
    listed: frozenset[str] = frozenset()
    probed: frozenset[str] = frozenset()
    libraries: frozenset[str] = frozenset()
    opaque: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The evidence itself. Each relation maps a thing to the tests that depend on it.

    `executed[path][name]`: tests that executed a function's body (B).
    `imported[path]`: tests whose import closure holds the module; they depend on its module block (M).
    `opened[path]`: tests that read the file as a file, source text included (R).
    `listed[folder]`: tests that listed the folder ("" is the root); `listings[folder]` is `listing_digest` of
    its tracked entries then (D).
    `probed[path]`: tests that asked whether the path exists, whatever the answer: they depend on its
    presence alone. It holds what was looked for in vain (X).
    `libraries[path]`: native libraries loaded (N).
    `edges[path]`: files that importing the module imports, recorded and static, its packages' `__init__` included.
    """

    header: Header
    files: Mapping[str, SourceFile]
    tests: tuple[TestRecord, ...]
    executed: Mapping[str, Mapping[str, Bits]] = field(default_factory=dict)
    imported: Mapping[str, Bits] = field(default_factory=dict)
    opened: Mapping[str, Bits] = field(default_factory=dict)
    listed: Mapping[str, Bits] = field(default_factory=dict)
    listings: Mapping[str, str] = field(default_factory=dict)
    probed: Mapping[str, Bits] = field(default_factory=dict)
    libraries: Mapping[str, Library] = field(default_factory=dict)
    edges: Mapping[str, frozenset[str]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def everything(self) -> Bits:
        """All tests."""
        return (1 << len(self.tests)) - 1

    @property
    def unskippable(self) -> Bits:
        """Tests that always run: opaque ones, and those that did not pass."""
        return pack(index for index, test in enumerate(self.tests) if not test.is_skippable)

    def ids(self, bits: Bits) -> list[str]:
        """Name the tests of a set, in the manifest's order."""
        return [self.tests[index].id for index in unpack(bits)]

    def index(self) -> dict[str, int]:
        """Map test ids to bit numbers."""
        return {test.id: index for index, test in enumerate(self.tests)}

    def executors(self, path: str) -> Bits:
        """Give the tests that executed any function of a file."""
        found = 0
        for bits in self.executed.get(path, {}).values():
            found |= bits
        return found

    def closure(self, paths: Iterable[str]) -> frozenset[str]:
        """Follow the import edges from some files; the files themselves included."""
        seen: set[str] = set()
        todo = list(paths)
        while todo:
            path = todo.pop()
            if path not in seen:
                seen.add(path)
                todo.extend(self.edges.get(path, ()))
        return frozenset(seen)

    def atoms(self, test: str) -> Atoms:
        """Collect what one test depends on; raises KeyError for an unknown id. Reads the whole manifest."""
        bit = 1 << self.index()[test]
        return Atoms(
            blocks=frozenset(
                (path, name) for path, blocks in self.executed.items() for name, bits in blocks.items() if bits & bit
            ),
            modules=_holders(self.imported, bit),
            opened=_holders(self.opened, bit),
            listed=_holders(self.listed, bit),
            probed=_holders(self.probed, bit),
            libraries=frozenset(path for path, library in self.libraries.items() if library.tests & bit),
            opaque=self.tests[bit.bit_length() - 1].opaque,
        )


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of one named check that did not hold, or warns.

    `found` and `expected` say what is wrong, `hint` what to do next.
    """

    check: str
    found: str
    expected: str
    hint: str
    is_warning: bool = False

    def __str__(self) -> str:
        """Give one line."""
        return f"{self.check}: found {self.found}, expected {self.expected}; {self.hint}"


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why a manifest is not used; the plan runs everything and shows the reasons."""

    path: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True, kw_only=True)
class Expectations:
    """What the reader of a manifest wants of it; an empty field is not compared.

    `now` is seconds since the epoch. `known_commits`
    are commits that exist in this clone; None means that git cannot tell. `max_age_hours` is a
    warning from its half on, and decisive only with `is_age_decisive` (where
    drift cannot be computed).
    """

    now: float
    stage: str = ""
    runner_profile: str = ""
    ranks: int | None = None
    simulated: bool | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    pytest_config: str = ""
    max_age_hours: float = 72.0
    is_age_decisive: bool = False
    known_commits: frozenset[str] | None = None
    content_hash: str = ""


def blob_id(content: bytes) -> str:
    """Give git's id of a file's content, as in `git ls-tree` of a SHA-1 repository."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def listing_digest(names: Iterable[str]) -> str:
    """Digest the direct entries of a folder (names of files and sub-folders), in any order."""
    return hashlib.blake2b("\0".join(sorted(set(names))).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def listings_of(paths: Iterable[str]) -> dict[str, str]:
    """Digest every folder of a tree, given the paths of its files; the root is ""."""
    entries: dict[str, set[str]] = {"": set()}
    for path in paths:
        rest = path
        while rest:
            folder, _, name = rest.rpartition("/")
            known = entries.setdefault(folder, set())
            if name in known:
                break
            known.add(name)
            rest = folder
    return {folder: listing_digest(names) for folder, names in entries.items()}


def pack(indexes: Iterable[int]) -> Bits:
    """Make a set of tests from their numbers."""
    numbers = list(indexes)
    if not numbers:
        return 0
    data = bytearray(max(numbers) // 8 + 1)
    for number in numbers:
        data[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(data, "little")


def unpack(bits: Bits) -> Iterator[int]:
    """Give the numbers of a set in rising order."""
    data = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
    for place, byte in enumerate(data):
        value = byte
        while value:
            low = value & -value
            yield (place << 3) + low.bit_length() - 1
            value ^= low


def count(bits: Bits) -> int:
    """Count the tests of a set."""
    return bits.bit_count()


def _holders(relation: Mapping[str, Bits], bit: Bits) -> frozenset[str]:
    return frozenset(path for path, bits in relation.items() if bits & bit)
