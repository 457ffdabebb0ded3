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
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from ci.errors import ManifestError
from ci.manifest.model import SCHEMA, Bits, Core, Finding, Header, Library, Manifest, TestRecord
from ci.manifest.packed import Edges, Executed, Files, Relation, Sets, pack_bits, read_text, read_words

APPLICATION = 0x4C4B4754
"""SQLite's application id of a manifest ("LKGT")."""

MARK = b"lockgate-content-hash:"
BLANK = b"0" * 64
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
            id=read_text(name),
            path=read_text(path),
            outcome=read_text(outcome),
            duration=float(duration),
            opaque=read_words(opaque),
        )
        for name, path, outcome, duration, opaque in database.execute(
            "SELECT id, path, outcome, duration, opaque FROM tests ORDER BY number"
        )
    )
    sets = Sets(database, len(tests))
    relations: dict[str, dict[str, int]] = {name: {} for name in RELATIONS}
    for relation, path, place in database.execute("SELECT relation, path, tests FROM relations"):
        relations[relation][read_text(path)] = sets.known(place)
    manifest = Manifest(
        header=header,
        files=Files(database.execute("SELECT path, blob, mode, kind, tracked, blocks FROM files").fetchall()),
        tests=tests,
        executed=Executed(database, sets),
        imported=Relation(relations["imported"], sets),
        opened=Relation(relations["opened"], sets),
        listed=Relation(relations["listed"], sets),
        probed=Relation(relations["probed"], sets),
        listings=dict(database.execute("SELECT folder, digest FROM listings")),
        libraries={
            read_text(path): Library(
                path=path, is_known=bool(known), sources=frozenset(read_words(sources)), tests=sets[place]
            )
            for path, known, sources, place in database.execute("SELECT path, known, sources, tests FROM libraries")
        },
        edges=Edges(database.execute("SELECT path, targets FROM edges").fetchall()),
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


def _with(header: Header, **values: Any) -> Header:
    return Header(**{item.name: getattr(header, item.name) for item in fields(Header)} | values)
