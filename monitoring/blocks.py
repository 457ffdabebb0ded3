"""ClickHouse FORMAT Native in plain Python: bytes <-> blocks of columns.

The decoder reads what servers, chDB and the native encoder write, and refuses
anything truncated, oversized or unknown with a `BlockError`; it allocates in
proportion to the bytes it was given, never to a length found in them. The
encoder serves the memory store's tests and the spool's; the drain has its own.
"""

from __future__ import annotations

import itertools
import re
import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from monitoring.errors import StoreError

NUMBERS = {
    "UInt8": "B", "UInt16": "H", "UInt32": "I", "UInt64": "Q", "Int8": "b", "Int16": "h", "Int32": "i",
    "Int64": "q", "Float32": "f", "Float64": "d", "Bool": "?", "Date": "H", "DateTime": "I",
}  # fmt: skip
"""Fixed-width types and their `struct` codes; dates stay numbers (days, seconds since the epoch)."""

MAX_COLUMNS = 4096
MAX_NAME = 65536
MAX_DEPTH = 8
"""Of nested type names such as `Array(Array(...))`."""

WRAPPED = re.compile(r"(Array|Nullable)\((.*)\)", re.DOTALL)
SCALAR = re.compile(r"(DateTime64|DateTime|Enum8|Enum16|FixedString)\((.*)\)", re.DOTALL)
SCALAR_CODES = {"DateTime64": "q", "DateTime": "I", "Enum8": "b", "Enum16": "h"}


class BlockError(StoreError):
    """Bytes are not a FORMAT Native block, or not one of the layout expected."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """Columns of equal length with their names and ClickHouse types."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    columns: tuple[Sequence[Any], ...]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.columns[0]) if self.columns else 0


class Reader:
    """A position in a buffer; every read is bounds-checked."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        """Look at `data` as bytes, without copying it."""
        self.view = memoryview(data).cast("B")
        self.at = 0

    @property
    def left(self) -> int:
        """Bytes not yet read."""
        return len(self.view) - self.at

    def take(self, count: int, what: str) -> memoryview:
        """Read `count` bytes; `what` names them in the error."""
        if count > self.left:
            raise BlockError(
                f"a block ends early: {what} needs {count} bytes at offset {self.at}, {self.left} are left"
            )
        part = self.view[self.at : self.at + count]
        self.at += count
        return part

    def varint(self, what: str) -> int:
        """Read a LEB128 number of at most 64 bits."""
        value = 0
        for shift in range(0, 70, 7):
            byte = self.take(1, what)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> 64:
                    break
                return value
        raise BlockError(f"{what} before offset {self.at} is no number of 64 bits")

    def text(self, what: str) -> str:
        """Read a short UTF-8 string (a name or a type)."""
        size = self.varint(f"the length of {what}")
        if size > MAX_NAME:
            raise BlockError(f"{what} at offset {self.at} claims {size} bytes, expected at most {MAX_NAME}")
        try:
            return str(self.take(size, what), "utf-8")
        except UnicodeDecodeError as error:
            raise BlockError(f"{what} before offset {self.at} is not UTF-8") from error


def decode_blocks(
    data: bytes | bytearray | memoryview, *, binary: frozenset[str] = frozenset({"data"})
) -> Iterator[Block]:
    """Decode concatenated blocks; blocks without rows are skipped.

    `String` columns become `str` (undecodable bytes escaped as surrogates, so
    that nothing is lost) except those named in `binary`, which stay `bytes`.
    """
    reader = Reader(data)
    while reader.left:
        columns = reader.varint("the number of columns")
        rows = reader.varint("the number of rows")
        if columns > MAX_COLUMNS:
            raise BlockError(
                f"a block claims {columns} columns, expected at most {MAX_COLUMNS}: these bytes are not FORMAT Native"
            )
        if rows and not columns:
            raise BlockError(f"a block claims {rows} rows and no columns")
        names, types, values = [], [], []
        for _ in range(columns):
            name = reader.text("a column name")
            kind = reader.text(f"the type of column {name!r}")
            names.append(name)
            types.append(kind)
            values.append(_decode(reader, kind, rows, name=name, binary=name in binary, depth=0))
        if rows:
            yield Block(names=tuple(names), types=tuple(types), columns=tuple(values))


def encode_block(block: Block) -> bytes:
    """Encode one block; `BlockError` when a value does not fit its type."""
    out = bytearray()
    _put_varint(out, len(block.columns))
    _put_varint(out, block.rows)
    for name, kind, values in zip(block.names, block.types, block.columns, strict=True):
        if len(values) != block.rows:
            raise BlockError(f"column {name} has {len(values)} values, expected {block.rows}")
        _put_string(out, name)
        _put_string(out, kind)
        try:
            _encode(out, kind, values, name=name)
        except (struct.error, OverflowError, TypeError, AttributeError) as error:
            raise BlockError(f"column {name} holds a value that is no {kind}: {error}") from error
    return bytes(out)


def _decode(reader: Reader, kind: str, rows: int, *, name: str, binary: bool, depth: int) -> Sequence[Any]:
    if kind in NUMBERS:
        return _numbers(reader, NUMBERS[kind], rows, name=name)
    if kind == "String":
        return _strings(reader, rows, name=name, binary=binary)
    if depth < MAX_DEPTH and (match := WRAPPED.fullmatch(kind)):
        outer, inner = match.groups()
        if outer == "Nullable":
            nulls = _numbers(reader, "B", rows, name=name)
            values = _decode(reader, inner, rows, name=name, binary=binary, depth=depth + 1)
            return [None if null else value for null, value in zip(nulls, values, strict=True)]
        ends = _numbers(reader, "Q", rows, name=name)
        if any(end < start for start, end in itertools.pairwise(ends)):
            raise BlockError(f"the offsets of column {name} run backwards")
        flat = _decode(reader, inner, ends[-1] if rows else 0, name=name, binary=binary, depth=depth + 1)
        return [flat[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    if match := SCALAR.fullmatch(kind):
        outer, inner = match.groups()
        if outer != "FixedString":
            return _numbers(reader, SCALAR_CODES[outer], rows, name=name)
        if inner.isdecimal() and len(inner) <= len(str(MAX_NAME)):
            width = int(inner)
            part = bytes(reader.take(width * rows, f"column {name}")) if width else b""
            return [
                _text(part[width * row : width * row + width], binary=binary)
                for row in range(_bounded(reader, rows, width))
            ]
    raise BlockError(
        f"column {name} has type {kind[:80]!r}, which is not read here", hint="cast it in SQL, say with toString()"
    )


def _bounded(reader: Reader, rows: int, width: int) -> int:
    if not width and rows > len(reader.view):
        raise BlockError(f"a block claims {rows} rows, more than it has bytes")
    return rows


def _numbers(reader: Reader, code: str, rows: int, *, name: str) -> list[Any]:
    width = struct.calcsize(f"<{code}")
    part = reader.take(width * rows, f"column {name}")
    return list(struct.unpack(f"<{rows}{code}", part))


def _strings(reader: Reader, rows: int, *, name: str, binary: bool) -> list[Any]:
    if rows > reader.left:  # every string has at least its length byte
        raise BlockError(f"a block ends early: column {name} needs {rows} strings, {reader.left} bytes are left")
    what = f"column {name}"
    view, end, at = reader.view, len(reader.view), reader.at
    values: list[Any] = []
    texts: dict[bytes, str] = {}  # run ids, sites and dtypes come again and again
    for _ in range(rows):
        # The common case by hand: this loop runs several times for each row of a run.
        if at < end and (size := view[at]) < 0x80:
            at += 1
        else:
            reader.at = at
            size = reader.varint(what)
            at = reader.at
        stop = at + size
        if stop > end:
            raise BlockError(f"a block ends early: {what} needs {size} bytes at offset {at}, {end - at} are left")
        raw = bytes(view[at:stop])
        at = stop
        if binary:
            values.append(raw)
        else:
            values.append(texts.get(raw) or texts.setdefault(raw, raw.decode("utf-8", "surrogateescape")))
    reader.at = at
    return values


def _text(value: bytes, *, binary: bool) -> Any:
    return value if binary else value.decode("utf-8", "surrogateescape")


def _encode(out: bytearray, kind: str, values: Sequence[Any], *, name: str) -> None:
    if kind in NUMBERS:
        out += struct.pack(f"<{len(values)}{NUMBERS[kind]}", *values)
    elif kind == "String":
        for value in values:
            _put_string(out, value)
    elif kind.startswith("Array("):
        ends = array("Q")
        total = 0
        for value in values:
            total += len(value)
            ends.append(total)
        out += struct.pack(f"<{len(ends)}Q", *ends)
        _encode(out, kind[len("Array(") : -1], [item for value in values for item in value], name=name)
    else:
        raise BlockError(f"column {name} has type {kind!r}, which is not written here")


def _put_varint(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _put_string(out: bytearray, value: str | bytes | bytearray | memoryview) -> None:
    raw = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    _put_varint(out, len(raw))
    out += raw
