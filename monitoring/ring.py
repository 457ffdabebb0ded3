"""The native ring's Python face: tensors in, checked; the ledger out, typed.

tensor -> `describe` (device, layout, contiguity, lazy bits, bytes) -> native ring -> drain -> sink

Hooks call the native ring themselves, with checks of their own; this face is
for everyone else: tests, benchmarks, and programs that push tensors directly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from monitoring.errors import CaptureError
from monitoring.native import load_native

if TYPE_CHECKING:
    import torch

BackpressureWord = Literal["block", "drop_newest", "drop_oldest", "sample"]

DEALLOC_LIMIT = 10.0
"""Seconds that leaving a `with` block gives the drain."""


@dataclass(frozen=True, kw_only=True)
class TensorView:
    """Where a tensor's bytes lie; valid as long as the tensor is kept and not resized."""

    data_ptr: int
    nbytes: int
    shape: tuple[int, ...]
    dtype: str
    device: int
    """-1: host memory, else the CUDA device's number."""


@dataclass(frozen=True, kw_only=True)
class RingStats:
    """One consistent snapshot of a ring's ledger: `accepted == written + dropped + failed + pending`."""

    accepted: int
    written: int
    pending: int
    dropped: Mapping[str, int]
    failed: Mapping[str, int]
    bytes_accepted: int
    bytes_written: int
    bytes_pending: int
    spooled: int
    replayed: int
    blocks: int
    retries: int
    reconnects: int
    capacity_bytes: int
    capacity_records: int
    peak_bytes: int
    peak_records: int
    seq_end: int
    closed: bool
    last_error: str

    @property
    def lost(self) -> int:
        """Records that were dropped or failed."""
        return sum(self.dropped.values()) + sum(self.failed.values())

    @property
    def balanced(self) -> bool:
        """Whether every accepted record is accounted for."""
        return self.accepted == self.written + self.lost + self.pending


def describe(tensor: torch.Tensor) -> TensorView:
    """Check that a tensor's memory holds exactly its values, in C order, and say where.

    Raises `CaptureError` for what raw bytes would get wrong: a sparse or
    quantized layout, a lazy conjugate or negative, another stride, a device
    that is neither the host nor CUDA.
    """
    import torch

    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise CaptureError(f"the tensor's layout is {tensor.layout}, expected dense", hint="push tensor.to_dense()")
    if tensor.is_conj() or tensor.is_neg():
        lazy = "conjugate" if tensor.is_conj() else "negative"
        hint = "push tensor.resolve_conj().resolve_neg()"
        raise CaptureError(f"the tensor is a lazy {lazy}: its memory does not hold its values", hint=hint)
    if not tensor.is_contiguous():
        message = f"the tensor's strides are {tensor.stride()} for shape {tuple(tensor.shape)}, expected C order"
        raise CaptureError(message, hint="push tensor.contiguous()")
    if tensor.device.type not in {"cpu", "cuda"}:
        raise CaptureError(f"the tensor is on {tensor.device}, expected cpu or cuda", hint="push tensor.cpu()")
    return TensorView(
        data_ptr=tensor.data_ptr(),
        nbytes=tensor.nbytes,
        shape=tuple(tensor.shape),
        dtype=dtype_name(tensor.dtype),
        device=-1 if tensor.device.type == "cpu" else int(tensor.device.index),
    )


def dtype_name(dtype: torch.dtype) -> str:
    """Give torch's name of an element type, without `torch.`."""
    return str(dtype).removeprefix("torch.")


class Ring:
    """A native ring with one sink; a context manager that drains and closes.

    Keyword arguments are those of `monitoring._native.Ring`. Thread-safe.
    """

    def __init__(self, sink: Any, *, run_id: str, model_id: str = "", device: int = -1, **options: Any) -> None:
        """Start the drain thread; raises `NativeUnavailable` without the library, `ValueError` for bad options."""
        self._device = device
        self._native = load_native().Ring(sink, run_id=run_id, model_id=model_id, device=device, **options)
        self._slots: dict[tuple[str, int, int, str], int] = {}

    @property
    def native(self) -> Any:
        """The ring itself, for callers that count nanoseconds."""
        return self._native

    def push(  # noqa: PLR0913 - the columns of a row
        self,
        tensor: torch.Tensor,
        *,
        site: str,
        request: str,
        layer: int = -1,
        shard_rank: int = 0,
        step: int = 0,
        call: int = 0,
        tokens: tuple[int, int] = (0, 0),
    ) -> bool:
        """Copy one tensor into the ring as one record; whether it is in (else it is counted as dropped)."""
        view = self._view(tensor)
        slot = self._slot(site, layer, shard_rank, view.dtype)
        number = self._native.request(request)
        stream = self._stream()
        return bool(
            self._native.push(slot, number, step, call, *tokens, view.shape, view.data_ptr, view.nbytes, stream)
        )

    def push_rows(  # noqa: PLR0913 - the columns of a row
        self,
        tensor: torch.Tensor,
        rows: Sequence[tuple[str, int, int, int, int]],
        *,
        site: str,
        layer: int = -1,
        shard_rank: int = 0,
        step: int = 0,
        call: int = 0,
        token_dim: int = 1,
        column: int = 0,
    ) -> int:
        """Split a batched tensor into one record per row; how many are in.

        Each row is (request id, batch row, first column, end column, first token).
        """
        view = self._view(tensor)
        slot = self._slot(site, layer, shard_rank, view.dtype)
        plan = self._native.plan(step, [(self._native.request(name), *rest) for name, *rest in rows])
        return int(
            self._native.push_rows(
                slot, plan, call, token_dim, view.shape, view.data_ptr, view.nbytes, column, self._stream()
            )
        )

    def stats(self) -> RingStats:
        """Give the ledger as it is now."""
        return RingStats(**self._native.stats())

    def flush(self, timeout: float) -> bool:
        """Send what was pushed until now; whether all of it is settled within `timeout` seconds."""
        return bool(self._native.flush(timeout))

    def close(self, timeout: float = DEALLOC_LIMIT) -> bool:
        """Drain and stop within about `timeout` seconds; whether nothing failed."""
        return bool(self._native.close(timeout))

    def __enter__(self) -> Ring:  # noqa: PYI034 - typing.Self needs Python 3.11
        """Give the ring."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the ring."""
        self.close()

    def _view(self, tensor: torch.Tensor) -> TensorView:
        view = describe(tensor)
        if view.device != self._device:
            found, expected = (
                "the host" if number < 0 else f"CUDA device {number}" for number in (view.device, self._device)
            )
            raise CaptureError(f"the tensor is on {found}, the ring on {expected}", hint="use one ring per device")
        return view

    def _slot(self, site: str, layer: int, shard_rank: int, dtype: str) -> int:
        key = (site, layer, shard_rank, dtype)
        if key not in self._slots:
            self._slots[key] = self._native.declare(*key)
        return self._slots[key]

    def _stream(self) -> int:
        if self._device < 0:
            return 0
        import torch

        return int(torch.cuda.current_stream(self._device).cuda_stream)
