"""Packed values of a manifest file, and the mappings that unpack an entry when it is asked for."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from ci.errors import ManifestError
from ci.manifest.model import Bits, Kind, SourceFile

BIGGEST = 1 << 26
"""No packed value may unpack to more bytes than this."""


def pack_bits(bits: Bits) -> bytes:
    """Compress a set of tests."""
    return zlib.compress(bits.to_bytes((bits.bit_length() + 7) // 8, "little"), 6)


def unpack_bits(data: bytes, *, tests: int) -> Bits:
    """Decompress a set of tests; raises ValueError for one that names more tests than there are."""
    bits = int.from_bytes(inflate(data, tests // 8 + 1), "little")
    if bits >> tests:
        raise ValueError(f"a set names test {bits.bit_length() - 1}, there are {tests}")
    return bits


def inflate(data: bytes, limit: int) -> bytes:
    """Decompress; raises ValueError for a value that is cut short or unpacks to more than `limit` bytes."""
    machine = zlib.decompressobj()
    found = machine.decompress(data, limit)
    if not machine.eof:
        raise ValueError("a packed value is cut short or longer than it may be")
    return found


def read_words(text: str) -> tuple[str, ...]:
    """Parse a JSON list of words; raises ValueError for anything else."""
    value = json.loads(text)
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise ValueError(f"expected a list of words, found {text[:60]!r}")
    return tuple(value)


def read_text(value: object) -> str:
    """Give text as it is; raises ValueError for anything else."""
    if not isinstance(value, str):
        raise ValueError(f"expected text, found {value!r}")  # noqa: TRY004 - a wrong value, not a wrong call
    return value


@contextlib.contextmanager
def readable() -> Iterator[None]:
    """Turn whatever a damaged value does into the one error that callers expect."""
    try:
        yield
    except (sqlite3.Error, ValueError, TypeError, KeyError, AttributeError, zlib.error, RecursionError) as error:
        raise ManifestError(
            f"the manifest holds a value that cannot be read: {error}", hint="record and build a new one"
        ) from error


class Sets:
    """The stored sets of tests, decoded when asked for."""

    def __init__(self, database: sqlite3.Connection, tests: int) -> None:
        """Read the numbers of all sets; `tests` bounds what a set may name."""
        self.database = database
        self.tests = tests
        self.numbers = {number for (number,) in database.execute("SELECT id FROM sets")}
        self.cache: dict[int, Bits] = {}

    def known(self, number: int) -> int:
        """Give a number as it is; raises ValueError for one that names no set."""
        if number not in self.numbers:
            raise ValueError(f"a relation names set {number!r}, which is not there")
        return number

    def __getitem__(self, number: int) -> Bits:
        if number not in self.cache:
            with readable():
                row = self.database.execute("SELECT data FROM sets WHERE id = ?", (self.known(number),)).fetchone()
                self.cache[number] = unpack_bits(row[0], tests=self.tests)
        return self.cache[number]


class Relation(Mapping[str, Bits]):
    """Things and their tests."""

    def __init__(self, places: dict[str, int], sets: Sets) -> None:
        """Map each thing to the number of its set."""
        self.places = places
        self.sets = sets

    def __getitem__(self, path: str) -> Bits:
        return self.sets[self.places[path]]

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


class Executed(Mapping[str, Mapping[str, Bits]]):
    """Files and the blocks of them that tests executed."""

    def __init__(self, database: sqlite3.Connection, sets: Sets) -> None:
        """Read the paths alone."""
        self.database = database
        self.sets = sets
        self.paths = {read_text(path): None for (path,) in database.execute("SELECT DISTINCT path FROM executed")}
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
            with readable():
                rows = self.database.execute("SELECT name, tests FROM executed WHERE path = ?", (path,)).fetchall()
                self.cache[path] = Relation({read_text(name): place for name, place in rows}, self.sets)
        return self.cache[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self.paths)

    def __len__(self) -> int:
        return len(self.paths)


class Files(Mapping[str, SourceFile]):
    """Files by path."""

    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        """Index the rows by path, and check their kinds."""
        self.rows = {read_text(row[0]): row for row in rows}
        self.cache: dict[str, SourceFile] = {}
        for row in rows:
            Kind(row[3])

    def __getitem__(self, path: str) -> SourceFile:
        if path not in self.cache:
            _, blob, mode, kind, tracked, blocks = self.rows[path]
            self.cache[path] = SourceFile(
                path=path, blob=blob, mode=mode, kind=Kind(kind), is_tracked=bool(tracked),
                blocks=Blocks(blocks) if blocks else {},
            )  # fmt: skip
        return self.cache[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


class Blocks(Mapping[str, str]):
    """Digests of a file's blocks by name."""

    def __init__(self, data: bytes) -> None:
        """Keep the packed value."""
        self.data = data
        self.blocks: dict[str, str] | None = None

    def _read(self) -> dict[str, str]:
        if self.blocks is None:
            with readable():
                found = json.loads(inflate(self.data, BIGGEST))
                self.blocks = {read_text(name): read_text(digest) for name, digest in found.items()}
        return self.blocks

    def __getitem__(self, name: str) -> str:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())


class Edges(Mapping[str, frozenset[str]]):
    """Import edges by file."""

    def __init__(self, rows: list[tuple[str, str]]) -> None:
        """Index the rows by path."""
        self.rows = {read_text(path): read_text(targets) for path, targets in rows}

    def __getitem__(self, path: str) -> frozenset[str]:
        targets = self.rows[path]
        with readable():
            return frozenset(read_words(targets))

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)
