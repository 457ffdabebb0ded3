"""Where a site is in a model, and how the tensor there becomes the site's tensor.

    Point = site + layer + module + Source (which argument or result) + View (its layout)

A view changes shapes; it copies only where the model's tensor is not laid out
as the site's rows are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import torch
from torch import nn

from monitoring.hooks.sites import Site

WHOLE = 0
"""`Laid.token_dim` of a tensor without a token axis: it is one row."""


class Source(str, Enum):
    """Which of a module's tensors a point takes.

    `TOKENS` are the watched model's token ids. `QUERY`, `KEY` and `SCORES` are
    seen inside the attention function, where rotary positions are applied.
    """

    INPUT = "input"
    OUTPUT = "output"
    TOKENS = "tokens"
    QUERY = "query"
    KEY = "key"
    SCORES = "scores"


INSIDE_ATTENTION = (Source.QUERY, Source.KEY, Source.SCORES)


class Extent(NamedTuple):
    """Rows and columns of the running forward pass, and the columns in the cache before it."""

    batch: int
    columns: int
    past: int = 0


class Laid(NamedTuple):
    """A tensor laid out as rows: contiguous, its shape as stored, its token axis, its first column."""

    tensor: torch.Tensor
    shape: tuple[int, ...]
    token_dim: int
    column: int


View = Callable[[torch.Tensor, Extent], Laid]


@dataclass(frozen=True, kw_only=True)
class Point:
    """One place in one model.

    `name` is the site's name in rows (`module:<path>` for a chosen module);
    `index` picks an element when the module gives or takes several; an input
    that is not passed by position is looked for under `keyword`.
    """

    name: str
    layer: int
    module: nn.Module
    source: Source
    view: View
    site: Site | None = None
    index: int = 0
    keyword: str = "hidden_states"


def pick(value: Any, index: int) -> torch.Tensor | None:
    """Take a tensor out of a module's result: itself, or element `index` of a tuple or model output."""
    if isinstance(value, torch.Tensor):
        return value if index == 0 else None
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)) and len(value) > index and isinstance(value[index], torch.Tensor):
        return value[index]
    return None


def solid(tensor: torch.Tensor) -> torch.Tensor:
    """Give plain contiguous memory with the tensor's values: local, dense, neither conjugated nor negated lazily."""
    if hasattr(tensor, "to_local"):  # a DTensor: this rank's shard
        tensor = tensor.to_local()
    if hasattr(tensor, "wait"):  # the result of a collective still under way
        tensor = tensor.wait()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    return tensor.contiguous()


def by_token(tensor: torch.Tensor, extent: Extent) -> Laid:
    """[b, q, ...] as it is; one row stands for all when the model broadcasts it (position embeddings)."""
    if tensor.shape[0] == 1 < extent.batch:
        tensor = tensor.expand(extent.batch, *tensor.shape[1:])
    tensor = solid(tensor)
    return Laid(tensor, tensor.shape, 1, 0)


def by_head(head_dim: int) -> View:
    """[b, q, heads * d] (or already split) as [b, q, heads, d]."""

    def view(tensor: torch.Tensor, extent: Extent) -> Laid:  # noqa: ARG001 - every view takes the extent
        tensor = solid(tensor)
        batch, columns = tensor.shape[:2]
        return Laid(tensor, (batch, columns, tensor.numel() // max(1, batch * columns * head_dim), head_dim), 1, 0)

    return view


def part_by_head(part: int, parts: int, head_dim: int) -> View:
    """One of `parts` equal parts of the last dimension, as [b, q, heads, d] (GPT-2's joint q, k, v)."""
    split = by_head(head_dim)

    def view(tensor: torch.Tensor, extent: Extent) -> Laid:
        return split(tensor.chunk(parts, dim=-1)[part], extent)

    return view


def query_by_head(tensor: torch.Tensor, extent: Extent) -> Laid:  # noqa: ARG001 - every view takes the extent
    """[b, heads, q, d] as [b, q, heads, d]."""
    tensor = solid(tensor.transpose(1, 2))
    return Laid(tensor, tensor.shape, 1, 0)


def key_by_head(tensor: torch.Tensor, extent: Extent) -> Laid:
    """[b, heads, kv, d], cached columns before the new ones, as [b, q, heads, d] of the new ones."""
    total = extent.past + extent.columns
    end = min(tensor.shape[2], total)  # a static cache is longer than what it holds, a sliding window shorter
    return query_by_head(tensor[:, :, end - extent.columns : end], extent)


def flat_tokens(tensor: torch.Tensor, extent: Extent) -> Laid:
    """[b * q, n] as [b, q, n] (routers flatten their tokens)."""
    tensor = solid(tensor)
    return Laid(tensor, (extent.batch, extent.columns, tensor.numel() // max(1, extent.batch * extent.columns)), 1, 0)


def square(tensor: torch.Tensor, extent: Extent) -> Laid:  # noqa: ARG001 - every view takes the extent
    """[b, heads, q, kv] as it is."""
    tensor = solid(tensor)
    return Laid(tensor, tensor.shape, 2, 0)


def last_columns(tensor: torch.Tensor, extent: Extent) -> Laid:
    """[b, kept, n]: the model computed the last `kept` columns only (logits)."""
    tensor = solid(tensor)
    if tensor.dim() == 2:
        return Laid(tensor, (tensor.shape[0], 1, tensor.shape[1]), 1, extent.columns - 1)
    return Laid(tensor, tensor.shape, 1, extent.columns - tensor.shape[1])


def whole(tensor: torch.Tensor, extent: Extent) -> Laid:  # noqa: ARG001 - every view takes the extent
    """Any tensor, as one row."""
    tensor = solid(tensor)
    return Laid(tensor, tensor.shape, WHOLE, 0)
