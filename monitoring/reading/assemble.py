"""Rows of one site and layer -> one tensor, left-padded as Hugging Face pads. torch is imported here.

Everything is done on raw bytes (an element is a last axis of `uint8`), so that
bf16, fp8, bool and integers come back bit for bit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from monitoring.errors import MissingDependency, StoreError
from monitoring.hooks.sites import Shape, Site
from monitoring.rows import ITEM_BYTES, CaptureRow

if TYPE_CHECKING:
    import torch

TOKEN_AXIS: Mapping[Shape, int] = {Shape.SQUARE: 1}
"""Where one request's tensor has its tokens; 0 for every other shape."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """One request's place in the batch: its tokens `[start, end)`, and the columns to the right of them.

    `right` is 0 unless other requests of its batch went on after it had ended.
    """

    request: str
    start: int
    end: int
    right: int = 0

    def column(self, token: int, *, width: int) -> int:
        """Give the column of a token in a tensor that is `width` columns wide."""
        return width - self.right - (self.end - token)

    @property
    def width(self) -> int:
        """Columns from the first token to the right edge."""
        return self.right + self.end - self.start


def import_torch() -> None:
    """Raise `MissingDependency` unless torch is there."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingDependency(
            "tensors need torch, which cannot be imported: " + str(error).splitlines()[0],
            hint='pip install "lockgate[monitoring]"; rows and frames need no torch',
        ) from error


def find_spans(rows: Iterable[CaptureRow]) -> dict[str, Span]:
    """Give each request's tokens over all its rows, requests in the order of their first record.

    Requests that a forward pass computed together stand in the same columns in
    it, as in the model's batch: padding is on the left, and a request that
    ended early has empty columns on the right. A request ends where its last
    pass ended: tokens behind that were taken back (assisted decoding crops the
    cache).
    """
    ends: dict[str, dict[int, int]] = defaultdict(dict)
    starts: dict[str, int] = {}
    first: dict[str, int] = {}
    for row in rows:
        name = row.request_id
        ends[name][row.step] = max(row.token_end, ends[name].get(row.step, 0))
        starts[name] = min(row.token_start, starts.get(name, row.token_start))
        first[name] = min(row.seq, first.get(name, row.seq))
    last = {name: max(steps) for name, steps in ends.items()}
    by_step: dict[int, list[str]] = defaultdict(list)
    for name, steps in ends.items():
        for step in steps:
            by_step[step].append(name)
    right: dict[str, int] = {}
    for name in sorted(ends, key=lambda one: -last[one]):
        longest = max(by_step[last[name]], key=lambda one: last[one])
        beyond = ends[longest][last[longest]] - ends[longest][last[name]]
        right[name] = right[longest] + max(0, beyond) if last[longest] > last[name] else 0
    order = sorted(ends, key=lambda name: (first[name], name))
    return {
        name: Span(request=name, start=starts[name], end=ends[name][last[name]], right=right[name]) for name in order
    }


def to_tensor(row: CaptureRow) -> torch.Tensor:
    """Give one row as a tensor of its own dtype and shape; the memory is its own."""
    return _typed(_raw(row), row.dtype)


def to_batch(
    site: Site, rows: Sequence[CaptureRow], spans: Mapping[str, Span], *, details: Mapping[str, str]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Place the rows of one (site, layer, call) in one tensor; give it and its mask.

    The tensor is `[requests, ...]` with the shape of the hook table, its token
    axis `width` wide: the longest stretch from a request's first token at this
    site to the right edge of the batch. The mask `[requests, width]` is True where a
    row was found; elsewhere the tensor is zero. Raises `StoreError` when rows
    contradict each other.
    """
    import torch

    dtype = _one_dtype(site, rows)
    by_request: dict[str, list[CaptureRow]] = defaultdict(list)
    for row in rows:
        by_request[row.request_id].append(row)
    axis = TOKEN_AXIS.get(site.shape, 0)
    width = max(
        spans[name].right + spans[name].end - min(row.token_start for row in some) for name, some in by_request.items()
    )
    parts = {name: list(_merged(site, some, details=details)) for name, some in by_request.items()}
    extents = _one_extents(site, [part for some in parts.values() for _, _, part in some], axis=axis)
    keys = max(span.right + span.end for span in spans.values()) if site.shape is Shape.SQUARE else 0
    shape = list(extents)
    shape[axis] = width
    if keys:
        shape[axis + 1] = keys
    batch = torch.zeros([len(spans), *shape, ITEM_BYTES[dtype]], dtype=torch.uint8)
    mask = torch.zeros([len(spans), width], dtype=torch.bool)
    for place, (name, span) in enumerate(spans.items()):
        for start, stop, whole in parts.get(name, ()):
            end = min(stop, span.end)
            if end <= start:
                continue
            first = span.column(start, width=width)
            part = whole.narrow(axis, 0, end - start)
            target = batch[place].narrow(axis, first, end - start)
            if keys:
                seen = _real_keys(part, stop, axis=axis + 1, left=details.get("padding_side", "left") != "right")
                last = span.column(stop, width=keys)
                target.zero_()
                _place_keys(target, seen, last=last, axis=axis + 1)
            else:
                target.copy_(part)
            mask[place, first : first + end - start] = True
    return _typed(batch, dtype), mask


def _merged(
    site: Site, rows: Sequence[CaptureRow], *, details: Mapping[str, str]
) -> Iterable[tuple[int, int, torch.Tensor]]:
    """Join the shards of each range; ranges in step order, so that a later pass overwrites an earlier one."""
    groups: dict[tuple[int, int, int], list[CaptureRow]] = defaultdict(list)
    for row in rows:
        groups[row.step, row.token_start, row.token_end].append(row)
    for (_, start, end), some in sorted(groups.items()):
        raw = _join(site, sorted(some, key=lambda row: (row.shard_rank, row.seq)), details=details)
        axis = TOKEN_AXIS.get(site.shape, 0)
        if raw.dim() - 1 <= axis or raw.shape[axis] != end - start:
            raise StoreError(
                f"a row of {site.name} for tokens {start}-{end - 1} of request {some[0].request_id} has shape"
                f" {list(raw.shape[:-1])}, expected {end - start} at dimension {axis}"
            )
        yield start, end, raw


def _join(site: Site, rows: Sequence[CaptureRow], *, details: Mapping[str, str]) -> torch.Tensor:
    import torch

    by_rank = {row.shard_rank: row for row in rows}  # a range sent twice under two numbers: the last one
    parts = [_raw(row) for _, row in sorted(by_rank.items())]
    if site.sharded_dim is None or len(parts) == 1:
        return parts[0]
    if site.shape is Shape.KV_HEADS:
        parts = _distinct_heads(parts, details, axis=site.sharded_dim)
    try:
        return torch.cat(parts, dim=site.sharded_dim)
    except RuntimeError:
        shapes = ", ".join(str(list(part.shape[:-1])) for part in parts)
        raise StoreError(f"the shards of {site.name} do not fit along dimension {site.sharded_dim}: {shapes}") from None


def _distinct_heads(parts: list[torch.Tensor], details: Mapping[str, str], *, axis: int) -> list[torch.Tensor]:
    """With fewer key-value heads than ranks, neighbours hold copies of one head: keep one of each."""
    text = details.get("kv_heads", "")
    heads = int(text) if text.isdecimal() else 0
    total = sum(part.shape[axis] for part in parts)
    copies = total // heads if heads and total % heads == 0 else 1
    return parts[::copies] if copies > 1 and len(parts) % copies == 0 else parts


def _real_keys(part: torch.Tensor, end: int, *, axis: int, left: bool) -> torch.Tensor:
    """Cut the key axis to the request's own tokens `[0, end)`; padding columns are before or behind them."""
    spare = part.shape[axis] - end
    if spare <= 0:  # a sliding window keeps the last keys alone
        return part
    return part.narrow(axis, spare if left else 0, end)


def _place_keys(target: torch.Tensor, seen: torch.Tensor, *, last: int, axis: int) -> None:
    """Copy keys so that their last one comes before column `last`; what lies outside is dropped."""
    count = seen.shape[axis]
    first = last - count
    cut_left, cut_right = max(0, -first), max(0, last - target.shape[axis])
    kept = count - cut_left - cut_right
    if kept > 0:
        target.narrow(axis, first + cut_left, kept).copy_(seen.narrow(axis, cut_left, kept))


def _raw(row: CaptureRow) -> torch.Tensor:
    import torch

    row.check()
    shape = (*row.shape, ITEM_BYTES[row.dtype])
    if not row.data:
        return torch.empty(shape, dtype=torch.uint8)
    # A private copy: torch must not write into bytes.
    return torch.frombuffer(bytearray(row.data), dtype=torch.uint8).reshape(shape)


def _typed(raw: torch.Tensor, dtype: str) -> torch.Tensor:
    import torch

    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype):
        raise StoreError(f"this torch ({torch.__version__}) has no dtype {dtype}", hint="read with a newer torch")
    return raw.contiguous().view(kind).squeeze(-1)


def _one_dtype(site: Site, rows: Iterable[CaptureRow]) -> str:
    found = sorted({row.dtype for row in rows})
    if len(found) != 1:
        raise StoreError(f"the rows of {site.name} have several dtypes: {', '.join(found)}", hint="read fewer requests")
    return found[0]


def _one_extents(site: Site, parts: Sequence[torch.Tensor], *, axis: int) -> list[int]:
    """Give the shape that all parts have, token and key axes aside."""
    free = {axis, axis + 1} if site.shape is Shape.SQUARE else {axis}
    found = {tuple(0 if at in free else extent for at, extent in enumerate(part.shape[:-1])) for part in parts}
    if len(found) != 1:
        shapes = ", ".join(str(list(one)) for one in sorted(found))
        raise StoreError(f"the rows of {site.name} have shapes that do not fit together (0: any): {shapes}")
    return list(found.pop())
