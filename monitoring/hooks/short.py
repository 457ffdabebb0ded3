"""The short way of a plain tensor into a host ring: one native call, no attribute of the tensor read in Python.

Inside a real model caches are cold, and each Python object that a hook touches
costs more than the copy. Where there is no short way (a CUDA ring, a torch
without the DLPack exchange), `NoShortWay` keeps the call numbers and hands
every tensor to the long way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

import torch

# DLPack's type codes (dlpack.h); other dtypes go the long way.
DLPACK_CODES: dict[torch.dtype, tuple[int, int]] = {
    torch.int8: (0, 8),
    torch.int16: (0, 16),
    torch.int32: (0, 32),
    torch.int64: (0, 64),
    torch.uint8: (1, 8),
    torch.float16: (2, 16),
    torch.float32: (2, 32),
    torch.float64: (2, 64),
    torch.bfloat16: (4, 16),
}


class ShortWay(Protocol):
    """Call numbers of this thread's forward pass, and the native take.

    `take(index, tensor)` gives the number of records taken, or -1 for "not for
    this way, nothing has happened"; it never raises. `enter(plan, batch)` and
    `leave()` frame a forward pass of this thread; `call(index)` takes a tap's
    next call number.
    """

    @property
    def take(self) -> Callable[[int, object], int]: ...  # noqa: D102 - see the class
    @property
    def enter(self) -> Callable[[int, int], None]: ...  # noqa: D102
    @property
    def leave(self) -> Callable[[], None]: ...  # noqa: D102
    @property
    def call(self) -> Callable[[int], int]: ...  # noqa: D102
    def bind(self, index: int, slot: int, token_dim: int, dtype: torch.dtype) -> None:
        """Let a tap record tensors of this dtype under a slot."""


class NativeShortWay:
    """The native one."""

    def __init__(self, taps: Any) -> None:
        """Bind the methods themselves: a wrapper would cost what they save."""
        self.take: Callable[[int, object], int] = taps.take
        self.enter: Callable[[int, int], None] = taps.enter
        self.leave: Callable[[], None] = taps.leave
        self.call: Callable[[int], int] = taps.call
        self._bind = taps.bind

    def bind(self, index: int, slot: int, token_dim: int, dtype: torch.dtype) -> None:
        """Let a tap record tensors of this dtype under a slot, if DLPack knows the dtype."""
        code = DLPACK_CODES.get(dtype)
        if code is not None:
            self._bind(index, slot, token_dim, *code)


class NoShortWay(threading.local):
    """Counts calls, takes nothing."""

    def __init__(self, count: int) -> None:
        """Start outside a forward pass."""
        self._count = count
        self._calls: list[int] = []

    @property
    def take(self) -> Callable[[int, object], int]:
        """Leave every tensor to the long way."""
        return lambda _index, _tensor: -1

    def enter(self, plan: int, batch: int) -> None:  # noqa: ARG002 - the protocol's signature
        """Begin a forward pass in this thread."""
        self._calls = [0] * self._count

    def leave(self) -> None:
        """End this thread's forward pass."""
        self._calls = []

    def bind(self, index: int, slot: int, token_dim: int, dtype: torch.dtype) -> None:
        """Need no binding."""

    def call(self, index: int) -> int:
        """Take a tap's next call number; -1 outside a forward pass."""
        if not self._calls:
            return -1
        number = self._calls[index]
        self._calls[index] = number + 1
        return number


def open_short_way(native: Any, ring: Any, count: int, *, device: int) -> ShortWay:
    """Give the native way where there is one."""
    exchange = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if exchange is None or device >= 0 or not hasattr(native, "Taps"):
        return NoShortWay(count)
    return NativeShortWay(native.Taps(ring, exchange, torch.Tensor, count))
