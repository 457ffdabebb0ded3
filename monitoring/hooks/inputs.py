"""Reading a forward pass's arguments: which columns are computed, which hold real tokens.

Works on Hugging Face's names (transformers 4.x `past_key_values`, 5.x `cache`)
and falls back to the first positional tensor. Every read from a device costs a
synchronisation, so one is made only where the host cannot know: the padding of
a prompt, and the ends of the rows of a batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from monitoring import ops

CACHE_NAMES = ("cache", "past_key_values")
UNKNOWN_PAST = -1


class TracedCache:
    """Stands for the cache of a compiled forward pass: a graph tells how much it held, not which it was."""


@dataclass(frozen=True)
class Forward:
    """The arguments of one forward pass that bookkeeping needs; `batch` and `columns` are 0 when there are no tokens.

    `past` is the number of columns in the cache before the pass: 0 without a
    cache, `UNKNOWN_PAST` when there is one that does not tell.
    """

    ids: torch.Tensor | None
    mask: torch.Tensor | None
    positions: torch.Tensor | None
    cache: Any
    past: int
    batch: int
    columns: int


def read_forward(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Forward:
    """Find the tokens, the mask, the positions and the cache among a forward pass's arguments."""
    ids = kwargs.get("input_ids")
    embeds = kwargs.get("inputs_embeds")
    if ids is None and embeds is None and args and isinstance(args[0], torch.Tensor):
        if args[0].is_floating_point():
            embeds = args[0]
        else:
            ids = args[0]
    batch, columns = _extents(ids, embeds)
    cache = next((kwargs[name] for name in CACHE_NAMES if kwargs.get(name) is not None), None)
    return Forward(
        ids=ids if isinstance(ids, torch.Tensor) and ids.dim() == 2 else None,
        mask=_matrix(kwargs.get("attention_mask")),
        positions=_matrix(kwargs.get("position_ids")),
        cache=cache,
        past=read_past(cache),
        batch=batch,
        columns=columns,
    )


def begin_traced(
    args: Sequence[Any], kwargs: Mapping[str, Any], token: torch.Tensor, receiver: int
) -> torch.Tensor | None:
    """Put the beginning of a forward pass into a graph being traced; the token ids, if there are any."""
    ids, embeds = kwargs.get("input_ids"), kwargs.get("inputs_embeds")
    if ids is None and embeds is None and args and isinstance(args[0], torch.Tensor):
        if args[0].is_floating_point():
            embeds = args[0]
        else:
            ids = args[0]
    batch, columns = _extents(ids, embeds)
    past: Any = -1
    filled: torch.Tensor | None = None
    for name in CACHE_NAMES:
        cache = kwargs.get(name)
        if cache is not None and hasattr(cache, "get_seq_length"):
            past = cache.get_seq_length()
            if isinstance(past, torch.Tensor):  # a static cache counts on the device
                past, filled = -1, past
    mask, positions = _matrix(kwargs.get("attention_mask")), _matrix(kwargs.get("position_ids"))
    found = ids if isinstance(ids, torch.Tensor) and ids.dim() == 2 else None
    ops.step(found, mask, positions, filled, token, receiver, past, batch, columns)
    return found


def read_past(cache: Any) -> int:
    """Count the columns that a cache holds; None holds none."""
    if cache is None:
        return 0
    if hasattr(cache, "get_seq_length"):
        return int(cache.get_seq_length())
    try:
        return int(cache[0][0].shape[-2])
    except (TypeError, IndexError, AttributeError):
        return UNKNOWN_PAST


def read_windows(mask: torch.Tensor | None, *, batch: int, start: int, columns: int) -> list[tuple[int, int]] | None:
    """Find the real columns of each row in [start, start + columns) of a mask; None when all are real.

    The window of a row runs from its first to one past its last unmasked
    column, counted from `start`; a row of padding alone gives an empty one.
    """
    if mask is None or mask.shape[0] != batch or mask.shape[1] < start + columns:
        return None
    part = mask[:, start : start + columns] != 0
    first = part.to(torch.uint8).argmax(dim=1)
    last = columns - part.flip(1).to(torch.uint8).argmax(dim=1)
    found = torch.stack((first, torch.where(part.any(dim=1), last, first))).tolist()
    windows = list(zip(found[0], found[1], strict=True))
    return None if all(window == (0, columns) for window in windows) else windows


def read_windows_from_positions(
    positions: torch.Tensor | None, *, batch: int, columns: int
) -> list[tuple[int, int]] | None:
    """Find a prompt's padding without a two-dimensional mask: the last position tells a left-padded row's length."""
    if positions is None or positions.shape != (batch, columns):
        return None
    lengths = [min(columns, int(last) + 1) for last in positions[:, -1].tolist()]
    windows = [(columns - length, columns) for length in lengths]
    return None if all(window == (0, columns) for window in windows) else windows


def read_starts(forward: Forward) -> list[int] | None:
    """Find how many tokens each row had before this pass, where the pass itself says so; None when it does not."""
    mask = forward.mask
    if mask is not None and mask.shape == (forward.batch, forward.past + forward.columns):
        return [int(count) for count in (mask[:, : forward.past] != 0).sum(dim=1).tolist()]
    if forward.positions is not None and forward.positions.shape == (forward.batch, forward.columns):
        return [int(first) for first in forward.positions[:, 0].tolist()]
    return None


def _extents(ids: Any, embeds: Any) -> tuple[int, int]:
    for value, dims in ((ids, 2), (embeds, 3)):
        if isinstance(value, torch.Tensor) and value.dim() == dims:
            return value.shape[0], value.shape[1]
    return 0, 0


def _matrix(value: Any) -> torch.Tensor | None:
    return value if isinstance(value, torch.Tensor) and value.dim() == 2 else None
