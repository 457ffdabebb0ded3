"""The operators that keep captures in a compiled graph, beside their fake kernels.

`torch.compile` removes a call that returns nothing and changes nothing it knows
of. Both operators claim to change a token tensor, so that the compiler neither
deletes nor reorders them, and needs no graph break. In eager mode the hooks
call the recorder directly; these are for traced code alone.

A graph holds numbers, not objects, so live recorders are found by number here.
"""

from __future__ import annotations

import itertools
import threading
from typing import Protocol

import torch

NAMESPACE = "lockgate"


class Receiver(Protocol):
    """What a compiled graph calls back, given real tensors."""

    def receive(self, index: int, tensor: torch.Tensor) -> None:
        """Take the tensor of tap `index`; contains its own errors."""

    def receive_step(
        self,
        ids: torch.Tensor | None,
        mask: torch.Tensor | None,
        positions: torch.Tensor | None,
        past: int,
        batch: int,
        columns: int,
    ) -> None:
        """Begin a forward pass; contains its own errors."""


_receivers: dict[int, Receiver] = {}
_numbers = itertools.count(1)
_lock = threading.Lock()

_library = torch.library.Library(NAMESPACE, "DEF")
_library.define("record(Tensor x, Tensor(a!) token, int receiver, int tap) -> ()")
_library.define(
    "step(Tensor? ids, Tensor? mask, Tensor? positions, Tensor? filled, Tensor(a!) token, int receiver, "
    "SymInt past, SymInt batch, SymInt columns) -> ()"
)


def _record(x: torch.Tensor, token: torch.Tensor, receiver: int, tap: int) -> None:  # noqa: ARG001 - the operator's signature
    found = _receivers.get(receiver)
    if found is not None:
        found.receive(tap, x)


def _step(  # noqa: PLR0913, PLR0917 - the operator's signature
    ids: torch.Tensor | None,
    mask: torch.Tensor | None,
    positions: torch.Tensor | None,
    filled: torch.Tensor | None,
    token: torch.Tensor,  # noqa: ARG001 - the operator's signature
    receiver: int,
    past: int,
    batch: int,
    columns: int,
) -> None:
    found = _receivers.get(receiver)
    if found is not None:
        before = int(filled) if filled is not None else int(past)
        found.receive_step(ids, mask, positions, before, int(batch), int(columns))


def _nothing(*_: object) -> None:
    """Fake kernel of both operators: no outputs, so no shapes to tell."""


_library.impl("record", _record, "CompositeExplicitAutograd")
_library.impl("step", _step, "CompositeExplicitAutograd")
torch.library.register_fake(f"{NAMESPACE}::record", _nothing, lib=_library)
torch.library.register_fake(f"{NAMESPACE}::step", _nothing, lib=_library)

record = torch.ops.lockgate.record.default
step = torch.ops.lockgate.step.default


def register(receiver: Receiver) -> int:
    """Give a recorder the number that compiled graphs call it by."""
    with _lock:
        number = next(_numbers)
        _receivers[number] = receiver
    return number


def unregister(number: int) -> None:
    """Forget a recorder; graphs that still call it record nothing."""
    with _lock:
        _receivers.pop(number, None)
