"""Reads the record folder of one run: journals and coverage data -> `Records`, damage included as a value."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ci.errors import ManifestError
from ci.manifest.trace.journal import PREFIX

USED = ("opened", "written", "listed", "probed", "loaded", "imported", "opaque")


@dataclass(kw_only=True)
class Use:
    """What one context used, summed over processes; paths are absolute.

    `executed` maps a file to its code objects as (first line, name); `lines` maps
    a file to the lines that ran, as a bit set.
    """

    opened: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    listed: set[str] = field(default_factory=set)
    probed: set[str] = field(default_factory=set)
    loaded: set[str] = field(default_factory=set)
    imported: set[str] = field(default_factory=set)
    opaque: set[str] = field(default_factory=set)
    spawned: int = 0
    executed: dict[str, set[tuple[int, str]]] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Test:
    """One test as its session wrote it down."""

    __test__ = False

    id: str
    path: str
    outcome: str
    reason: str
    duration: float
    opaque: tuple[str, ...]
    isolation: str
    fixtures: tuple[str, ...]


@dataclass(kw_only=True)
class Session:
    """One pytest session (one per rank); `end` is empty when it never ended."""

    start: Mapping[str, Any]
    end: Mapping[str, Any] = field(default_factory=dict)
    collected: tuple[str, ...] = ()
    tests: list[Test] = field(default_factory=list)
    use: dict[str, Use] = field(default_factory=dict)


@dataclass(kw_only=True)
class Child:
    """One child that came up; `has_ended` is false when it was killed before it could write."""

    label: str
    argv: tuple[str, ...]
    core: str
    has_ended: bool = False


@dataclass(kw_only=True)
class Records:
    """Everything that one recorded run left behind."""

    folder: Path
    sessions: list[Session] = field(default_factory=list)
    children: list[Child] = field(default_factory=list)
    use: dict[str, Use] = field(default_factory=dict)
    edges: dict[tuple[str, int, str], set[str]] = field(default_factory=dict)
    damage: list[str] = field(default_factory=list)


def read_records(folder: Path) -> Records:
    """Read all journals and coverage files; raises `ManifestError` when there is nothing to read."""
    journals = sorted(folder.glob(f"{PREFIX}*.jsonl"))
    if not journals:
        raise ManifestError(f"{folder} holds no records", hint="run `lockgate run STAGE --record DIR` first")
    records = Records(folder=folder)
    for path in journals:
        _read_journal(path, records)
    if not records.sessions:
        raise ManifestError(f"{folder} holds records of children, but of no pytest session", hint="record again")
    for path in sorted(folder.glob("coverage-*.data")):
        _read_coverage(path, records)
    records.sessions.sort(key=lambda session: (session.start.get("rank", 0), session.start.get("time", 0)))
    return records


def _entries(path: Path, records: Records) -> Iterator[tuple[str, Any]]:
    try:
        with path.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                try:
                    ((kind, value),) = json.loads(line).items()
                except (ValueError, AttributeError):
                    records.damage.append(f"{path.name} line {number} is not a record")
                    return
                yield kind, value
    except OSError as error:
        records.damage.append(f"{path.name} cannot be read: {error.strerror}")


def _read_journal(path: Path, records: Records) -> None:
    reader = _Reader(records=records)
    try:
        for kind, value in _entries(path, records):
            getattr(reader, f"read_{kind}", reader.skip)(value)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        records.damage.append(f"{path.name} holds a record of a wrong form: {error!r}")


@dataclass(kw_only=True)
class _Reader:
    """Reads the entries of one journal: of a session, or of a child."""

    records: Records
    session: Session | None = None
    child: Child | None = None
    codes: list[tuple[str, int, str]] = field(default_factory=list)

    def skip(self, value: Any) -> None:
        """Leave out what a newer recorder adds."""

    def read_start(self, value: Any) -> None:
        if value["role"] == "session":
            self.session = Session(start=value)
            self.records.sessions.append(self.session)
        else:
            self.child = Child(label=value["label"], argv=tuple(value["argv"]), core=value["core"])
            self.records.children.append(self.child)

    def read_codes(self, value: Any) -> None:
        self.codes = value

    def read_context(self, value: Any) -> None:
        _add(self.records.use.setdefault(value["label"], Use()), value, self.codes)
        if self.session is not None:
            _add(self.session.use.setdefault(value["label"], Use()), value, self.codes)

    def read_edges(self, value: Any) -> None:
        for importer, line, name, targets in value:
            self.records.edges.setdefault((importer, line, name), set()).update(targets)

    def read_collected(self, value: Any) -> None:
        if self.session is not None:
            self.session.collected = tuple(value)

    def read_test(self, value: Any) -> None:
        if self.session is not None:
            words = {name: tuple(value[name]) for name in ("opaque", "fixtures")}
            self.session.tests.append(Test(**{**value, **words}))

    def read_end(self, value: Any) -> None:
        if self.session is not None:
            self.session.end = value
        elif self.child is not None:
            self.child.has_ended = True


def _add(use: Use, value: Mapping[str, Any], codes: list[tuple[str, int, str]]) -> None:
    for name in USED:
        getattr(use, name).update(value.get(name, ()))
    use.spawned += value.get("spawned", 0)
    for place in value.get("ran", ()):
        path, line, name = codes[place]
        use.executed.setdefault(path, set()).add((line, name))


def _read_coverage(path: Path, records: Records) -> None:
    """Read lines by context from a coverage data file, whose tables coverage documents."""
    try:
        database = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        try:
            rows: list[tuple[str, str, int]] = [
                (label, name, int.from_bytes(bits, "little"))
                for label, name, bits in database.execute(
                    "SELECT context.context, file.path, line_bits.numbits FROM line_bits"
                    " JOIN context ON context.id = line_bits.context_id JOIN file ON file.id = line_bits.file_id"
                )
            ]
            for label, name, first, last in database.execute(
                "SELECT context.context, file.path, arc.fromno, arc.tono FROM arc"
                " JOIN context ON context.id = arc.context_id JOIN file ON file.id = arc.file_id"
            ):
                rows.append((label, name, sum({1 << number for number in (first, last) if number > 0})))
        finally:
            database.close()
    except sqlite3.Error as error:
        records.damage.append(f"{path.name} is damaged: {error}")
        return
    sessions = [session for session in records.sessions if path.stem.endswith(session.start.get("uid", "?"))]
    for use in (records.use, *(session.use for session in sessions)):
        for label, name, bits in rows:
            lines = use.setdefault(label, Use()).lines
            lines[name] = lines.get(name, 0) | bits
