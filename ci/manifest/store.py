"""A manifest as one SQLite file: written to a temp file, hashed as a whole, renamed.

Every set of tests is stored once, compressed, and decoded when it is asked for;
a value that cannot be decoded then raises `ManifestError`.
The content hash covers every byte of the file: it is computed with its own
place blank, so damage is found before SQLite looks at the file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from ci.errors import ManifestError
from ci.manifest.model import SCHEMA, Bits, Core, Finding, Header, Kind, Library, Manifest, SourceFile, TestRecord

APPLICATION = 0x4C4B4754
"""SQLite's application id of a manifest ("LKGT")."""

MARK = b"lockgate-content-hash:"
BLANK = b"0" * 64
BIGGEST = 1 << 26
"""No packed value may unpack to more bytes than this."""

TABLES = """
CREATE TABLE seal (hash TEXT NOT NULL);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE sets (id INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE files (path TEXT PRIMARY KEY, blob TEXT NOT NULL, mode TEXT NOT NULL, kind TEXT NOT NULL,
  tracked INTEGER NOT NULL, blocks BLOB) WITHOUT ROWID;
CREATE TABLE tests (number INTEGER PRIMARY KEY, id TEXT NOT NULL, path TEXT NOT NULL, outcome TEXT NOT NULL,
  duration REAL NOT NULL, opaque TEXT NOT NULL);
CREATE TABLE executed (path TEXT NOT NULL, name TEXT NOT NULL, tests INTEGER NOT NULL, PRIMARY KEY (path, name))
  WITHOUT ROWID;
CREATE TABLE relations (relation TEXT NOT NULL, path TEXT NOT NULL, tests INTEGER NOT NULL,
  PRIMARY KEY (relation, path)) WITHOUT ROWID;
CREATE TABLE listings (folder TEXT PRIMARY KEY, digest TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE libraries (path TEXT PRIMARY KEY, known INTEGER NOT NULL, sources TEXT NOT NULL, tests INTEGER NOT NULL)
  WITHOUT ROWID;
CREATE TABLE edges (path TEXT PRIMARY KEY, targets TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE problems (number INTEGER PRIMARY KEY, finding TEXT NOT NULL);
"""

RELATIONS = ("imported", "opened", "listed", "probed")


class Damaged(Exception):  # noqa: N818 - says what a file is, and is caught at its reader
    """The file is not a manifest that this version can read; the text says what is wrong."""


def write_manifest(manifest: Manifest, path: Path, *, problems: Iterable[Finding] = ()) -> Header:
    """Write a manifest, whole or not at all; gives its header with the content hash.

    Raises `ManifestError` where the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(temporary, isolation_level=None)) as database:
            _fill(database, manifest, list(problems))
        digest = _seal(temporary)
        temporary.replace(path)
    except (OSError, sqlite3.Error) as error:
        raise ManifestError(f"{path} cannot be written: {error}", hint="check the folder and the free space") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return _with(manifest.header, content_hash=digest)


def load_manifest(path: Path) -> tuple[Manifest, tuple[Finding, ...]]:
    """Read a manifest and the problems stored with it; raises `Damaged` or `FileNotFoundError`.

    Nothing here says whether the manifest may be used: see `ci.manifest.checks`.
    """
    try:
        digest = check_seal(path)
        database = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False)
        try:
            return _load(database, digest)
        except BaseException:
            database.close()
            raise
    except FileNotFoundError:
        raise
    except ManifestError as error:
        raise Damaged(error.message) from error
    except OSError as error:
        raise Damaged(f"it cannot be read: {error.strerror or error}") from error
    except sqlite3.Error as error:
        raise Damaged(f"it is not a sound SQLite file: {error}") from error
    except (ValueError, TypeError, KeyError, zlib.error, OverflowError, RecursionError) as error:
        raise Damaged(f"it holds values of a wrong kind: {error}") from error


def check_seal(path: Path) -> str:
    """Compare the content hash in a file with its content; give it. Raises `Damaged`."""
    with path.open("rb") as stream:
        if os.fstat(stream.fileno()).st_size == 0:
            raise Damaged("it is empty")
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data[:16] != b"SQLite format 3\0":
                raise Damaged("it is not an SQLite file")
            place = data.find(MARK)
            if place < 0:
                raise Damaged("it holds no content hash")
            place += len(MARK)
            stored = data[place : place + 64]
            found = _digest(data, place)
            if stored.decode("ascii", "replace") != found:
                raise Damaged(
                    f"its content hash is {found[:16]}..., the file says {stored[:16].decode('ascii', 'replace')}..."
                )
            return found


def pack_bits(bits: Bits) -> bytes:
    """Compress a set of tests."""
    return zlib.compress(bits.to_bytes((bits.bit_length() + 7) // 8, "little"), 6)


def unpack_bits(data: bytes, *, tests: int) -> Bits:
    """Decompress a set of tests; raises ValueError for one that names more tests than there are."""
    bits = int.from_bytes(_inflate(data, tests // 8 + 1), "little")
    if bits >> tests:
        raise ValueError(f"a set names test {bits.bit_length() - 1}, there are {tests}")
    return bits


def _inflate(data: bytes, limit: int) -> bytes:
    machine = zlib.decompressobj()
    found = machine.decompress(data, limit)
    if not machine.eof:
        raise ValueError("a packed value is cut short or longer than it may be")
    return found


def _digest(data: mmap.mmap, place: int) -> str:
    machine = hashlib.blake2b(digest_size=32)
    view = memoryview(data)
    try:
        machine.update(view[:place])
        machine.update(BLANK)
        machine.update(view[place + 64 :])
    finally:
        view.release()
    return machine.hexdigest()


def _seal(path: Path) -> str:
    with path.open("r+b") as stream:
        with mmap.mmap(stream.fileno(), 0) as data:
            place = data.find(MARK) + len(MARK)
            digest = _digest(data, place)
            data[place : place + 64] = digest.encode()
            data.flush()
        os.fsync(stream.fileno())
    return digest


def _fill(database: sqlite3.Connection, manifest: Manifest, problems: list[Finding]) -> None:
    database.execute("PRAGMA journal_mode = OFF")
    database.execute("PRAGMA synchronous = OFF")
    database.execute(f"PRAGMA application_id = {APPLICATION}")
    database.execute(f"PRAGMA user_version = {manifest.header.schema}")
    database.executescript(TABLES)
    database.execute("BEGIN")
    # The first table has the first page of its own, so no other text can be taken for the mark.
    database.execute("INSERT INTO seal VALUES (?)", [(MARK + BLANK).decode()])
    header = {item.name: getattr(manifest.header, item.name) for item in fields(Header) if item.name != "content_hash"}
    database.executemany("INSERT INTO meta VALUES (?, ?)", [(key, json.dumps(value)) for key, value in header.items()])
    sets: dict[Bits, int] = {}

    def number(bits: Bits) -> int:
        if bits not in sets:
            sets[bits] = len(sets)
            database.execute("INSERT INTO sets VALUES (?, ?)", (sets[bits], pack_bits(bits)))
        return sets[bits]

    for file in manifest.files.values():
        blocks = zlib.compress(json.dumps(dict(file.blocks)).encode()) if file.blocks else None
        row = (file.path, file.blob, file.mode, file.kind.value, int(file.is_tracked), blocks)
        database.execute("INSERT INTO files VALUES (?, ?, ?, ?, ?, ?)", row)
    database.executemany(
        "INSERT INTO tests VALUES (?, ?, ?, ?, ?, ?)",
        [
            (place, test.id, test.path, test.outcome, test.duration, json.dumps(test.opaque))
            for place, test in enumerate(manifest.tests)
        ],
    )
    for path, names in manifest.executed.items():
        rows = [(path, name, number(bits)) for name, bits in names.items()]
        database.executemany("INSERT INTO executed VALUES (?, ?, ?)", rows)
    for relation in RELATIONS:
        rows = [(relation, path, number(bits)) for path, bits in getattr(manifest, relation).items()]
        database.executemany("INSERT INTO relations VALUES (?, ?, ?)", rows)
    database.executemany("INSERT INTO listings VALUES (?, ?)", list(manifest.listings.items()))
    for library in manifest.libraries.values():
        values = (library.path, int(library.is_known), json.dumps(sorted(library.sources)), number(library.tests))
        database.execute("INSERT INTO libraries VALUES (?, ?, ?, ?)", values)
    edges = [(path, json.dumps(sorted(targets))) for path, targets in manifest.edges.items()]
    database.executemany("INSERT INTO edges VALUES (?, ?)", edges)
    texts = [(place, json.dumps(vars(finding))) for place, finding in enumerate(problems)]
    database.executemany("INSERT INTO problems VALUES (?, ?)", texts)
    database.execute("COMMIT")


def _load(database: sqlite3.Connection, digest: str) -> tuple[Manifest, tuple[Finding, ...]]:
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if database.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        raise Damaged("it is an SQLite file, but not a manifest")
    if version != SCHEMA:
        raise Damaged(f"its schema is {version}, this version reads {SCHEMA}")
    header = _read_header(dict(database.execute("SELECT key, value FROM meta")), digest)
    tests = tuple(
        TestRecord(
            id=_text(name), path=_text(path), outcome=_text(outcome), duration=float(duration), opaque=_words(opaque)
        )
        for name, path, outcome, duration, opaque in database.execute(
            "SELECT id, path, outcome, duration, opaque FROM tests ORDER BY number"
        )
    )
    sets = _Sets(database, len(tests))
    relations: dict[str, dict[str, int]] = {name: {} for name in RELATIONS}
    for relation, path, place in database.execute("SELECT relation, path, tests FROM relations"):
        relations[relation][_text(path)] = sets.known(place)
    manifest = Manifest(
        header=header,
        files=_Files(database.execute("SELECT path, blob, mode, kind, tracked, blocks FROM files").fetchall()),
        tests=tests,
        executed=_Executed(database, sets),
        imported=_Relation(relations["imported"], sets),
        opened=_Relation(relations["opened"], sets),
        listed=_Relation(relations["listed"], sets),
        probed=_Relation(relations["probed"], sets),
        listings=dict(database.execute("SELECT folder, digest FROM listings")),
        libraries={
            _text(path): Library(path=path, is_known=bool(known), sources=frozenset(_words(sources)), tests=sets[place])
            for path, known, sources, place in database.execute("SELECT path, known, sources, tests FROM libraries")
        },
        edges=_Edges(database.execute("SELECT path, targets FROM edges").fetchall()),
    )
    problems = [_finding(text) for (text,) in database.execute("SELECT finding FROM problems ORDER BY number")]
    return manifest, tuple(problems)


def _read_header(meta: Mapping[str, Any], digest: str) -> Header:
    values: dict[str, Any] = {}
    defaults = Header(
        tool="", blocks_version=0, stage="", source="", started=0.0, created=0.0, is_complete=False, core=Core.CTRACE
    )
    for item in fields(Header):
        if item.name == "content_hash":
            continue
        value, default = json.loads(meta[item.name]), getattr(defaults, item.name)
        wanted = str if isinstance(default, Core) else dict if isinstance(default, Mapping) else type(default)
        if wanted is float and type(value) is int:
            value = float(value)
        if type(value) is not wanted:
            raise ValueError(f"{item.name} is {value!r}")
        values[item.name] = value
    try:
        values["core"] = Core(values["core"])
    except ValueError:
        raise Damaged(f"it was recorded with the core {values['core']!r}, which is not known to be good") from None
    values["environment"] = {str(key): str(value) for key, value in values["environment"].items()}
    return Header(**values, content_hash=digest)


def _finding(text: str) -> Finding:
    value = json.loads(text)
    return Finding(**{item.name: value[item.name] for item in fields(Finding)})


def _words(text: str) -> tuple[str, ...]:
    value = json.loads(text)
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise ValueError(f"expected a list of words, found {text[:60]!r}")
    return tuple(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected text, found {value!r}")  # noqa: TRY004 - a wrong value, not a wrong call
    return value


def _with(header: Header, **values: Any) -> Header:
    return Header(**{item.name: getattr(header, item.name) for item in fields(Header)} | values)


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """Turn whatever a damaged value does into the one error that callers expect."""
    try:
        yield
    except (sqlite3.Error, ValueError, TypeError, KeyError, AttributeError, zlib.error, RecursionError) as error:
        raise ManifestError(
            f"the manifest holds a value that cannot be read: {error}", hint="record and build a new one"
        ) from error


class _Sets:
    """The stored sets of tests, decoded when asked for."""

    def __init__(self, database: sqlite3.Connection, tests: int) -> None:
        self.database = database
        self.tests = tests
        self.numbers = {number for (number,) in database.execute("SELECT id FROM sets")}
        self.cache: dict[int, Bits] = {}

    def known(self, number: int) -> int:
        if number not in self.numbers:
            raise ValueError(f"a relation names set {number!r}, which is not there")
        return number

    def __getitem__(self, number: int) -> Bits:
        if number not in self.cache:
            with _readable():
                row = self.database.execute("SELECT data FROM sets WHERE id = ?", (self.known(number),)).fetchone()
                self.cache[number] = unpack_bits(row[0], tests=self.tests)
        return self.cache[number]


class _Relation(Mapping[str, Bits]):
    def __init__(self, places: dict[str, int], sets: _Sets) -> None:
        self.places = places
        self.sets = sets

    def __getitem__(self, path: str) -> Bits:
        return self.sets[self.places[path]]

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


class _Executed(Mapping[str, Mapping[str, Bits]]):
    def __init__(self, database: sqlite3.Connection, sets: _Sets) -> None:
        self.database = database
        self.sets = sets
        self.paths = {_text(path): None for (path,) in database.execute("SELECT DISTINCT path FROM executed")}
        self.cache: dict[str, Mapping[str, Bits]] = {}
        broken = database.execute(
            "SELECT tests FROM executed WHERE tests NOT IN (SELECT id FROM sets) LIMIT 1"
        ).fetchone()
        if broken:
            sets.known(broken[0])

    def __getitem__(self, path: str) -> Mapping[str, Bits]:
        if path not in self.paths:
            raise KeyError(path)
        if path not in self.cache:
            with _readable():
                rows = self.database.execute("SELECT name, tests FROM executed WHERE path = ?", (path,)).fetchall()
                self.cache[path] = _Relation({_text(name): place for name, place in rows}, self.sets)
        return self.cache[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self.paths)

    def __len__(self) -> int:
        return len(self.paths)


class _Files(Mapping[str, SourceFile]):
    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        self.rows = {_text(row[0]): row for row in rows}
        self.cache: dict[str, SourceFile] = {}
        for row in rows:
            Kind(row[3])

    def __getitem__(self, path: str) -> SourceFile:
        if path not in self.cache:
            _, blob, mode, kind, tracked, blocks = self.rows[path]
            self.cache[path] = SourceFile(
                path=path, blob=blob, mode=mode, kind=Kind(kind), is_tracked=bool(tracked),
                blocks=_Blocks(blocks) if blocks else {},
            )  # fmt: skip
        return self.cache[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


class _Blocks(Mapping[str, str]):
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.blocks: dict[str, str] | None = None

    def _read(self) -> dict[str, str]:
        if self.blocks is None:
            with _readable():
                found = json.loads(_inflate(self.data, BIGGEST))
                self.blocks = {_text(name): _text(digest) for name, digest in found.items()}
        return self.blocks

    def __getitem__(self, name: str) -> str:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())


class _Edges(Mapping[str, frozenset[str]]):
    def __init__(self, rows: list[tuple[str, str]]) -> None:
        self.rows = {_text(path): _text(targets) for path, targets in rows}

    def __getitem__(self, path: str) -> frozenset[str]:
        targets = self.rows[path]
        with _readable():
            return frozenset(_words(targets))

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)
