# ruff: noqa: PYI021 - this stub is the contract between two languages, so it says what is promised
"""Types of the native library: ring, drain thread, encoder, ClickHouse client.

The one contract between Python and C++. Times are seconds (float), sizes are
bytes, pointers are plain integers. Arguments of the wrong type raise
`TypeError`, of a wrong value `ValueError`, and nothing is recorded then.

A record's life: `push` accepts it (it gets the next `seq` of the ring), the
drain thread takes it out, encodes it with others into one FORMAT Native block
and hands the block to the sink. At every moment, in one atomic snapshot:

    accepted == written + sum(dropped) + sum(failed) + pending

`accepted` counts every well-formed push, also one that the policy drops at
once: its `seq` is used up, so a gap in `seq` is a loss. After `close`,
`pending` is 0.

A block holds the columns of `COLUMNS`, which `monitoring.rows.COLUMNS` repeats
(a test compares them). `inserted_at` is the time at which the block was encoded.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, final

ABI: int
"""Number of this contract; `monitoring.native` refuses a library with another one."""

COLUMNS: tuple[tuple[str, str], ...]
"""Name and ClickHouse type of each column, in the order of a block."""

ITEM_BYTES: dict[str, int]
"""Bytes per element of each dtype that a slot may have; `monitoring.rows.ITEM_BYTES` repeats it."""

def features() -> dict[str, Any]:
    """Say what was built.

    `{"mode": "cpu"|"cuda", "sanitizer": ""|"thread"|"address", "cuda_archs": [80, 90], "version": "0.1.0", "abi": 1,
    "compiler": "...", "hook_table_version": 1, "hook_table_digest": "..."}`.
    """

def check_hook_table(version: int, digest: str) -> None:
    """Compare the hook table with the one the library was built for; `ImportError` when they differ.

    The build reads `monitoring/hooks/sites.py` (standard library only), which
    must hold `TABLE_VERSION: int` and `table_digest() -> str`.
    """

def cuda_device_count() -> int:
    """Count the CUDA devices; 0 in a CPU build and on a machine without a driver. Never raises."""

def cuda_status() -> str:
    """One sentence about CUDA: not built, no device (with the driver's reason), or the devices."""

class Sink:
    """Where blocks go. Made in Python, used by one ring's drain thread; not for two rings at once."""

    @property
    def target(self) -> str:
        """Where it writes, without credentials: `http://host:8123/database.table`, `callback:NAME`, `null`."""

@final
class HttpSink(Sink):
    """Inserts over HTTP/1.1 with our own client: keep-alive, gather writes, time limits.

    Errors never hold the password. `timeout` limits connecting and one whole
    request, in seconds. `settings` become URL settings (a server refuses the
    ones it does not know). With `deduplicate` each block carries
    `insert_deduplication_token` (servers from 22.2 on).
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        database: str,
        table: str,
        user: str = "default",
        password: str = "",
        timeout: float = 30.0,
        settings: dict[str, str] = ...,
        deduplicate: bool = False,
        path: str = "/",
    ) -> None: ...

@final
class CallbackSink(Sink):
    """Hands each block to `callback(block: bytes, rows: int, token: str)` on the drain thread.

    Returning means written. An exception of a type in `fatal` means that this
    block can never be written (it counts as failed, the next one is tried);
    any other exception means try again later. `token` is the same for every
    attempt of one block, and unique otherwise. The callback is released when
    the ring is closed.
    """

    def __init__(
        self,
        callback: Callable[[bytes, int, str], object],
        *,
        name: str,
        fatal: tuple[type[BaseException], ...] = (),
    ) -> None: ...

@final
class NullSink(Sink):
    """Encodes each block and forgets it; for measuring."""

    def __init__(self) -> None: ...

@final
class Ring:
    """A bounded ring of records with its drain thread.

    - `capacity_bytes`, `capacity_records`: both are enforced; memory is
      allocated and faulted in here.
    - `policy` when full: "block" waits up to `deadline` seconds, then drops
      (reason "deadline"); "drop_newest" refuses the new record; "drop_oldest"
      throws the oldest away; "sample" keeps one in `sample_every` from a fill
      of one half on, and refuses the new record when full.
    - A block is sent when `flush_bytes` or `flush_records` wait (0: chosen
      from the capacity), when the ring is `flush_fill` full, or when the
      oldest record is `flush_seconds` old.
    - A sink that fails is tried again with back-off for `retry_seconds`. Then
      blocks go to files in `spool_dir` ("" for none) up to `spool_bytes`,
      replayed in order when the sink recovers, also by a later process after
      a crash. What fits nowhere counts as failed.
    - `device`: -1 for host memory, else the CUDA device whose tensors are pushed.

    Thread-safe. A push that copies 64 KiB or more, or that waits, releases
    the GIL. After a fork the child's ring is closed and empty. Open rings are
    closed at interpreter exit, with a limit.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        run_id: str,
        model_id: str,
        capacity_bytes: int = 67108864,
        capacity_records: int = 16384,
        policy: Literal["block", "drop_newest", "drop_oldest", "sample"] = "block",
        deadline: float = 5.0,
        sample_every: int = 10,
        flush_bytes: int = 0,
        flush_records: int = 0,
        flush_fill: float = 0.5,
        flush_seconds: float = 1.0,
        retry_seconds: float = 10.0,
        spool_dir: str = "",
        spool_bytes: int = 1073741824,
        device: int = -1,
    ) -> None: ...
    def declare(self, site: str, layer: int, shard_rank: int, dtype: str) -> int:
        """Intern what stays the same over many records; the slot to push with. Same arguments, same slot."""

    def request(self, request_id: str) -> int:
        """Intern a request id; the number to push with. Same id, same number until it is forgotten."""

    def forget(self, request: int) -> None:
        """Let a request's number be used again, once its waiting records are settled."""

    def push(
        self,
        slot: int,
        request: int,
        step: int,
        call: int,
        token_start: int,
        token_end: int,
        shape: tuple[int, ...],
        data_ptr: int,
        nbytes: int,
        stream: int = 0,
        /,
    ) -> bool:
        """Copy one contiguous tensor into the ring; whether it is in.

        False: dropped and counted (see `stats()["dropped"]` and `last_error`).
        `shape` has at most 8 dimensions. `stream` is the CUDA stream that
        computes the tensor (device rings only). A slot or request that was
        never declared raises `ValueError`.
        """

    def plan(self, step: int, rows: Sequence[tuple[int, int, int, int, int]], /) -> int:
        """Describe one forward pass; the number that its `push_rows` calls name.

        Each row is (request, row, first, last, token_start): batch row `row`
        belongs to `request`, its columns [first, last) are real tokens and the
        first of them is token `token_start` of the request. Padding, finished
        requests and rows without tokens are simply not listed. A plan never
        changes; the ring keeps the newest 64, an older number raises `ValueError`.
        """

    def push_rows(
        self,
        slot: int,
        plan: int,
        call: int,
        token_dim: int,
        shape: tuple[int, ...],
        data_ptr: int,
        nbytes: int,
        column: int = 0,
        stream: int = 0,
        /,
    ) -> int:
        """Split one contiguous tensor [b, ...] into one record per row of the plan; how many are in.

        `token_dim` (>= 1) is the dimension of `shape` whose entries are
        columns (1 for [b, q, ...], 2 for [b, heads, q, kv]); `column` is the
        column that its first entry stands for (a model that keeps only the
        last logits). A record holds the row's real tokens alone: its shape has
        no batch dimension and `token_dim` cut to them; other dimensions are
        whole. A row whose columns all lie before `column` yields no record;
        one that needs columns past the end, or a batch row that is not there,
        raises `ValueError` and nothing of the call is recorded.
        """

    def lost(self, reason: Literal["hook", "policy"], records: int = 1, /) -> None:
        """Enter records that never reached a push into the ledger: "hook" as failed, "policy" as dropped."""

    def flush(self, timeout: float) -> bool:
        """Send what was accepted until now; whether all of it is settled in time (not when it waits in the spool)."""

    def close(self, timeout: float) -> bool:
        """Send what is left, stop the drain thread; whether every accepted record was written or dropped by policy.

        Never waits longer than about `timeout`. What could not be sent goes to
        the spool (counted as failed, reason "left_in_spool") or is lost
        (reason "closed"). Closing twice returns the first answer. Afterwards
        `push` drops with the reason "closed".
        """

    @property
    def closed(self) -> bool: ...
    @property
    def last_error(self) -> str:
        """The last problem of the sink, the spool or a push in words, or "". Never holds credentials."""

    def stats(self) -> dict[str, Any]:
        """One consistent snapshot.

        Counts of records: `accepted written pending` (int), `dropped` by
        reason (`deadline newest oldest sample oversize closed device policy`),
        `failed` by reason (`retry fatal spool left_in_spool closed hook`), all
        reasons always present. Bytes of payload: `bytes_accepted
        bytes_written bytes_pending`. Records: `spooled` (now on disk, part of
        pending), `replayed` (written from an earlier process's spool, not
        part of accepted). Counts of events: `blocks retries reconnects`.
        Limits and marks: `capacity_bytes capacity_records peak_bytes
        peak_records seq_end` (one past the last sequence number given). `closed` (bool), `last_error` (str).
        """

@final
class Taps:
    """The short way from a torch hook into a host ring, without a Python frame.

    `exchange` is `torch.Tensor.__dlpack_c_exchange_api__`, `tensor_type` is
    `torch.Tensor`, `count` the number of taps. Each thread enters and leaves
    its own forward passes. Keeps its ring alive.
    """

    def __init__(self, ring: Ring, exchange: object, tensor_type: type, count: int, /) -> None: ...
    def enter(self, plan: int, batch: int, /) -> None:
        """Begin the forward pass `plan` of `batch` rows in this thread; all call numbers start at 0."""

    def leave(self, /) -> None:
        """End this thread's forward pass, if there is one."""

    def bind(self, index: int, slot: int, token_dim: int, dtype_code: int, dtype_bits: int, /) -> None:
        """Let tap `index` record tensors of this DLPack dtype under `slot`, in place of what it was bound to."""

    def take(self, index: int, tensor: object, /) -> int:
        """Record a tensor as `push_rows` does, with this pass's next call number; the records that are in.

        -1: not for this way, and nothing has happened. That is so outside a
        forward pass, for an unbound tap, and for a tensor that is not exactly
        of `tensor_type`, not in host memory, not in C order, of another dtype
        than bound or of another batch, or that the plan does not fit. A lazy
        negative is not seen here: ask `is_neg()` where one can occur. Never raises.
        """

    def call(self, index: int, /) -> int:
        """Take the next call number of tap `index` in this thread's pass; -1 outside of one."""
