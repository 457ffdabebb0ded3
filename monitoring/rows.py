"""The one row layout: what the drain writes, the stores keep and the reader reads.

`COLUMNS` is the truth for the native encoder too (a test compares them). One
row of `captures` is one tensor: the tokens `[token_start, token_end)` of one
request at one site and layer, one call of one forward pass, one shard. Padding
is never stored. A shape has its token axis where the hook table says: hidden
`[tokens, H]`, q, k, v, z `[tokens, heads, d]`, scores and pattern
`[heads, tokens, kv]`, token_ids `[tokens]`, logits `[tokens, vocabulary]`,
router `[tokens, experts]`, top-k `[tokens, k]`. Rows of `module:<name>` sites
hold a module's whole output and have no token axis.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from operator import attrgetter
from typing import Any

from monitoring.blocks import Block, BlockError, decode_blocks, encode_block

SCHEMA_VERSION = 1
"""Of both tables; a store that holds another one is refused (`SchemaError`)."""

NO_LAYER = -1
"""`CaptureRow.layer` of a site that exists once per model (embed, final_ln, logits)."""

MODULE_PREFIX = "module:"
"""What the site of a module capture begins with; the qualified module name follows."""

COLUMNS: tuple[tuple[str, str], ...] = (
    ("run_id", "String"),
    ("model_id", "String"),
    ("request_id", "String"),
    ("site", "String"),
    ("layer", "Int16"),
    ("shard_rank", "UInt16"),
    ("step", "UInt64"),
    ("seq", "UInt64"),
    ("call", "UInt16"),
    ("token_start", "UInt32"),
    ("token_end", "UInt32"),
    ("dtype", "String"),
    ("shape", "Array(UInt32)"),
    ("data", "String"),
    ("inserted_at", "UInt64"),
)
"""Name and ClickHouse type of each column of `captures`, in the encoder's order."""

SORTING_KEY = ("run_id", "request_id", "site", "layer", "shard_rank", "token_start", "call", "step", "seq")
"""What tells two records apart: `seq` is unique in a run's shard, so only a re-sent row repeats a key."""

RUN_COLUMNS: tuple[tuple[str, str], ...] = (
    ("run_id", "String"),
    ("shard_rank", "UInt16"),
    ("shard_count", "UInt16"),
    ("model_id", "String"),
    ("state", "String"),
    ("started_at", "UInt64"),
    ("finished_at", "UInt64"),
    ("expected", "String"),
    ("seq_end", "UInt64"),
    ("accepted", "UInt64"),
    ("written", "UInt64"),
    ("dropped", "UInt64"),
    ("failed", "UInt64"),
    ("bytes", "UInt64"),
    ("losses", "String"),
    ("details", "String"),
    ("schema_version", "UInt32"),
    ("updated_at", "UInt64"),
)
"""Columns of `runs`; `expected`, `losses` and `details` are JSON."""

RUN_SORTING_KEY = ("run_id", "shard_rank")

OPEN = "open"
CLOSED = "closed"

ITEM_BYTES: Mapping[str, int] = {
    "bool": 1, "uint8": 1, "int8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1, "uint16": 2, "int16": 2, "float16": 2, "bfloat16": 2,
    "uint32": 4, "int32": 4, "float32": 4, "uint64": 8, "int64": 8, "float64": 8, "complex32": 4,
    "complex64": 8, "complex128": 16,
}  # fmt: skip
"""Bytes per element of every `dtype` a row may name (torch's names, without `torch.`)."""


@dataclass(frozen=True, kw_only=True)
class CaptureRow:
    """One stored tensor.

    `data` holds its elements in C order, little endian, so
    `len(data) == ITEM_BYTES[dtype] * product(shape)`. `step` counts forward
    passes of the run, `seq` the records of this shard (a gap is a loss), `call`
    the calls of one module within one forward pass. `inserted_at` is in
    nanoseconds since the epoch, when the row's block was encoded.
    """

    run_id: str
    request_id: str
    site: str
    seq: int
    dtype: str
    shape: tuple[int, ...]
    data: bytes
    model_id: str = ""
    layer: int = NO_LAYER
    shard_rank: int = 0
    step: int = 0
    call: int = 0
    token_start: int = 0
    token_end: int = 0
    inserted_at: int = 0

    @property
    def key(self) -> tuple[Any, ...]:
        """Identity of the record: two rows with one key are one record sent twice."""
        key: tuple[Any, ...] = _KEY(self)
        return key

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> CaptureRow:
        """Make a row of column values, the others at their defaults; a run has hundreds of thousands of rows.

        Three times faster than the constructor, which sets a frozen instance attribute by attribute.
        """
        row = object.__new__(cls)
        row.__dict__.update(_DEFAULTS)
        row.__dict__.update(values)
        row.__dict__["shape"] = tuple(values["shape"])
        return row

    def check(self) -> None:
        """Raise `BlockError` unless dtype, shape and bytes agree."""
        size = ITEM_BYTES.get(self.dtype)
        where = f"row {self.site} layer {self.layer} seq {self.seq} of run {self.run_id}"
        if size is None:
            raise BlockError(f"{where} has dtype {self.dtype!r}, expected one of: {', '.join(ITEM_BYTES)}")
        for extent in self.shape:
            size *= extent
        if size != len(self.data):
            raise BlockError(
                f"{where} holds {len(self.data)} bytes, expected {size} for {self.dtype}{list(self.shape)}"
            )


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What one process (shard) of a run promised and did; written at its start and at its end.

    `expected` lists the (site, layer) pairs that every captured forward pass
    yields at least one row of. `seq_end` is one past the last sequence number
    given. At the end `accepted == written + dropped + failed`; `losses` counts
    dropped and failed by reason. Times are nanoseconds since the epoch. A run
    whose record is still `open` was not closed: its process runs, or died.
    """

    run_id: str
    model_id: str = ""
    shard_rank: int = 0
    shard_count: int = 1
    state: str = OPEN
    started_at: int = 0
    finished_at: int = 0
    expected: tuple[tuple[str, int], ...] = ()
    seq_end: int = 0
    accepted: int = 0
    written: int = 0
    dropped: int = 0
    failed: int = 0
    bytes: int = 0
    losses: Mapping[str, int] = field(default_factory=dict)
    details: Mapping[str, str] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION
    updated_at: int = 0

    def __post_init__(self) -> None:
        """Refuse a state that no reader would understand."""
        if self.state not in (OPEN, CLOSED):
            raise ValueError(f"state is {self.state!r}, expected {OPEN!r} or {CLOSED!r}")


def encode_rows(rows: Sequence[CaptureRow]) -> bytes:
    """Encode rows as one FORMAT Native block, byte for byte as the native encoder does."""
    columns = {name: [getattr(row, name) for row in rows] for name, _ in COLUMNS}
    return encode_block(Block(names=_names(COLUMNS), types=_types(COLUMNS), columns=tuple(columns.values())))


def decode_rows(data: bytes | bytearray | memoryview) -> Iterator[CaptureRow]:
    """Decode `captures` blocks, in any column order; raises `BlockError` for anything else.

    A missing column takes the field's default; a row whose bytes do not fit its
    dtype and shape is an error, never a tensor.
    """
    for block in decode_blocks(data):
        _check_columns(block, COLUMNS, needed=_NEEDED, what="captures")
        for values in zip(*block.columns, strict=True):
            row = CaptureRow.of(dict(zip(block.names, values, strict=True)))
            row.check()
            yield row


def encode_runs(records: Iterable[RunRecord]) -> bytes:
    """Encode run records as one FORMAT Native block."""
    plain = [_plain(record) for record in records]
    columns = tuple([row[name] for row in plain] for name, _ in RUN_COLUMNS)
    return encode_block(Block(names=_names(RUN_COLUMNS), types=_types(RUN_COLUMNS), columns=columns))


def decode_runs(data: bytes | bytearray | memoryview) -> Iterator[RunRecord]:
    """Decode `runs` blocks; raises `BlockError` when they are not that."""
    for block in decode_blocks(data):
        _check_columns(block, RUN_COLUMNS, needed={name for name, _ in RUN_COLUMNS}, what="runs")
        for values in zip(*block.columns, strict=True):
            row = dict(zip(block.names, values, strict=True))
            try:
                row["expected"] = tuple((str(site), int(layer)) for site, layer in json.loads(row["expected"]))
                row["losses"] = {str(key): int(value) for key, value in json.loads(row["losses"]).items()}
                row["details"] = {str(key): str(value) for key, value in json.loads(row["details"]).items()}
                yield RunRecord(**row)
            except (ValueError, TypeError, AttributeError, RecursionError) as error:
                raise BlockError(f"the record of run {row['run_id']!r} is damaged: {error}") from error


def payload_bytes(row: CaptureRow) -> int:
    """Give the bytes of data that a row's dtype and shape promise."""
    size = ITEM_BYTES.get(row.dtype, 1)
    for extent in row.shape:
        size *= extent
    return size


def deduplicate(rows: Iterable[CaptureRow]) -> Iterator[CaptureRow]:
    """Give each record once, the first time it comes."""
    seen: set[tuple[Any, ...]] = set()
    for row in rows:
        if row.key not in seen:
            seen.add(row.key)
            yield row


def latest_runs(records: Iterable[RunRecord]) -> tuple[RunRecord, ...]:
    """Keep the newest record of each (run, shard), oldest run first; closed wins over open."""
    newest: dict[tuple[str, int], RunRecord] = {}
    for record in records:
        key = (record.run_id, record.shard_rank)
        held = newest.get(key)
        if held is None or _age(record) >= _age(held):
            newest[key] = record
    started: dict[str, int] = {}
    for record in newest.values():
        started[record.run_id] = min(record.started_at, started.get(record.run_id, record.started_at))
    return tuple(sorted(newest.values(), key=lambda one: (started[one.run_id], one.run_id, one.shard_rank)))


_KEY = attrgetter(*SORTING_KEY)
_DEFAULTS = {item.name: item.default for item in fields(CaptureRow) if item.default is not MISSING}
_NEEDED = {item.name for item in fields(CaptureRow) if item.default is MISSING}


def _age(record: RunRecord) -> tuple[bool, int]:
    return record.state == CLOSED, record.updated_at


def _plain(record: RunRecord) -> dict[str, Any]:
    row = {name: getattr(record, name) for name, _ in RUN_COLUMNS}
    for name in ("expected", "losses", "details"):
        value = row[name]
        row[name] = json.dumps(dict(value) if isinstance(value, Mapping) else value, sort_keys=True)
    return row


def _check_columns(block: Block, layout: tuple[tuple[str, str], ...], *, needed: set[str], what: str) -> None:
    kinds = dict(layout)
    wrong = [f"{name} {kind}" for name, kind in zip(block.names, block.types, strict=True) if kinds.get(name) != kind]
    missing = sorted(needed - set(block.names))
    if wrong or missing or len(set(block.names)) != len(block.names):
        found = ", ".join(f"{name} {kind}" for name, kind in zip(block.names, block.types, strict=True))
        raise BlockError(
            f"a block of {what} has the columns ({found}), expected {', '.join(f'{n} {k}' for n, k in layout)}"
        )


def _names(layout: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    return tuple(name for name, _ in layout)


def _types(layout: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    return tuple(kind for _, kind in layout)
