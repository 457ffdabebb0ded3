"""What `read` gives: a run's rows, and the same as tensors the way Hugging Face users expect them."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from monitoring.errors import StoreError
from monitoring.hooks.sites import BY_NAME, Site
from monitoring.reading.assemble import find_spans, import_torch, to_batch, to_tensor
from monitoring.reading.frames import to_arrow, to_pandas
from monitoring.rows import MODULE_PREFIX, NO_LAYER, CaptureRow, RunRecord
from monitoring.store import Frame, open_store

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import torch


@dataclass(frozen=True, kw_only=True, repr=False)
class Internals:
    """One run, read back. `b` requests, `T` tokens of the longest one, layers first.

    Tensors are on the CPU, in the dtype in which they were captured, bit for
    bit. Ragged requests are padded with zeros on the left, as in the model's own
    batch (a request that ended before the others has zeros on the right, too);
    `token_mask` tells tokens from padding. A site that the run does not hold raises `StoreError`
    naming those that it does. `missing` is empty unless the run was read with
    `allow_incomplete=True`; `mask(...)` then shows where.
    """

    run_id: str
    records: tuple[RunRecord, ...]
    rows: tuple[CaptureRow, ...]
    missing: tuple[str, ...] = ()
    store: str | os.PathLike[str] = ""
    _cache: dict[tuple[str, int, int], tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Show what there is, without the data."""
        return (
            f"Internals(run_id={self.run_id!r}, requests={len(self.requests)}, rows={len(self.rows)}, "
            f"sites={list(self.sites)}, missing={len(self.missing)})"
        )

    @property
    def model_id(self) -> str:
        """The model that was watched."""
        return self.records[0].model_id if self.records else ""

    @property
    def details(self) -> Mapping[str, str]:
        """What the run says about its model and libraries."""
        return self.records[0].details if self.records else {}

    @property
    def requests(self) -> tuple[str, ...]:
        """Request ids in the order of the tensors' first axis."""
        return tuple(find_spans(self._token_rows()))

    @property
    def sites(self) -> Mapping[str, tuple[int, ...]]:
        """The sites there are and their layers (`(-1,)`: once per model), in the hook table's order."""
        found: dict[str, set[int]] = defaultdict(set)
        for row in self.rows:
            found[row.site].add(row.layer)
        order = sorted(found, key=lambda name: (BY_NAME[name].id if name in BY_NAME else len(BY_NAME) + 1024, name))
        return {name: tuple(sorted(found[name])) for name in order}

    def site(self, name: str, *, call: int = 0) -> tuple[torch.Tensor, ...]:
        """Give a site's tensors, one per captured layer in ascending order (one for a site without layers).

        `name` is a name or short name of the hook table. `call` picks the n-th
        call of a module that one forward pass calls several times.
        """
        site, layers = self.find_site(name)
        return tuple(self._tensor(site, layer, call)[0] for layer in layers)

    def mask(self, name: str, *, layer: int | None = None, call: int = 0) -> torch.Tensor:
        """Give `[b, width]`: True where the site's tensor holds captured data; `layer` None is its first one."""
        site, layers = self.find_site(name)
        return self._tensor(site, layers[0] if layer is None else layer, call)[1]

    @property
    def token_mask(self) -> torch.Tensor:
        """`[b, T]` bool: True for tokens, False for padding and for tokens that no row covers."""
        import_torch()
        import torch

        rows = self._token_rows()
        spans = find_spans(rows)
        width = max((span.width for span in spans.values()), default=0)
        mask = torch.zeros([len(spans), width], dtype=torch.bool)
        places = {name: place for place, name in enumerate(spans)}
        for row in rows:
            span = spans[row.request_id]
            end = min(row.token_end, span.end)
            mask[places[row.request_id], span.column(row.token_start, width=width) : span.column(end, width=width)] = (
                True
            )
        return mask

    @property
    def hidden_states(self) -> tuple[torch.Tensor, ...]:
        """Layers + 1 tensors `[b, T, H]` like HF's: the input of each layer, then the final norm's output.

        The last one is there only if `final_ln` was captured.
        """
        last = self.site("final_ln") if "final_ln" in self.sites else ()
        return (*self.site("resid_pre"), *last)

    @property
    def attentions(self) -> tuple[torch.Tensor, ...]:
        """`[b, heads, T, T]` per layer: the attention pattern."""
        return self.site("pattern")

    @property
    def attention_scores(self) -> tuple[torch.Tensor, ...]:
        """`[b, heads, T, T]` per layer: before the softmax."""
        return self.site("attn_scores")

    @property
    def q(self) -> tuple[torch.Tensor, ...]:
        """`[b, T, heads, d]` per layer: queries."""
        return self.site("q")

    @property
    def k(self) -> tuple[torch.Tensor, ...]:
        """`[b, T, key-value heads, d]` per layer: keys."""
        return self.site("k")

    @property
    def v(self) -> tuple[torch.Tensor, ...]:
        """`[b, T, key-value heads, d]` per layer: values."""
        return self.site("v")

    @property
    def z(self) -> tuple[torch.Tensor, ...]:
        """`[b, T, heads, d]` per layer: attention's output before its projection."""
        return self.site("z")

    @property
    def logits(self) -> torch.Tensor:
        """`[b, kept, vocabulary]`, aligned to the right: `logits[:, -1]` belongs to the batch's last column."""
        return self.site("final_logits")[0]

    @property
    def token_ids(self) -> torch.Tensor:
        """`[b, T]`: the input ids, 0 where `token_mask` is False."""
        return self.site("token_ids")[0]

    @property
    def router_logits(self) -> tuple[torch.Tensor, ...]:
        """`[b, T, experts]` per layer with a router."""
        return self.site("router_logits")

    @property
    def expert_ids(self) -> tuple[torch.Tensor, ...]:
        """`[b, T, k]` per layer with a router: the chosen experts."""
        return self.site("topk_ids")

    @property
    def expert_weights(self) -> tuple[torch.Tensor, ...]:
        """`[b, T, k]` per layer with a router: the chosen experts' weights."""
        return self.site("topk_weights")

    @property
    def modules(self) -> Mapping[str, tuple[torch.Tensor, ...]]:
        """Outputs of watched modules by qualified name, one tensor per call, in the order of the calls."""
        import_torch()
        found: dict[str, list[CaptureRow]] = defaultdict(list)
        for row in self.rows:
            if row.site.startswith(MODULE_PREFIX):
                found[row.site[len(MODULE_PREFIX) :]].append(row)
        return {
            name: tuple(to_tensor(row) for row in sorted(some, key=lambda row: (row.shard_rank, row.seq)))
            for name, some in sorted(found.items())
        }

    def to_arrow(self) -> pa.Table:
        """Give the rows as an Arrow table, one row each, `data` as binary."""
        return to_arrow(self.rows)

    def to_pandas(self) -> pd.DataFrame:
        """Give the rows as a pandas frame, one row each, `data` as bytes."""
        return to_pandas(self.rows)

    def sql(self, query: str) -> Frame:
        """Run a SELECT on the store; `{captures}` and `{runs}` are its tables.

        They hold all runs: filter by `run_id`.
        """
        store = open_store(self.store)
        try:
            return store.query(query)
        finally:
            store.close()

    def _token_rows(self) -> list[CaptureRow]:
        return [row for row in self.rows if row.site in BY_NAME]

    def find_site(self, name: str) -> tuple[Site, tuple[int, ...]]:
        """Give a site by name or short name, and its layers here; raises `StoreError` when there are none."""
        site = BY_NAME.get(name) or next((one for one in BY_NAME.values() if one.short == name), None)
        if site is None:
            raise StoreError(f"there is no site {name!r}", hint=f"sites: {', '.join(BY_NAME)}; modules are in .modules")
        layers = self.sites.get(site.name)
        if layers is None:
            held = ", ".join(self.sites) or "none"
            raise StoreError(
                f"run {self.run_id!r} holds no {site.name}; it holds: {held}",
                hint=f"capture it with select={site.short!r}, or read without sites=",
            )
        return site, layers

    def _tensor(self, site: Site, layer: int, call: int) -> tuple[torch.Tensor, torch.Tensor]:
        import_torch()
        key = (site.name, layer, call)
        if key not in self._cache:
            rows = [row for row in self.rows if (row.site, row.layer, row.call) == key]
            if not rows:
                place = site.name if layer == NO_LAYER else f"{site.name} layer {layer}"
                raise StoreError(f"run {self.run_id!r} holds no {place}, call {call}")
            self._cache[key] = to_batch(site, rows, find_spans(self._token_rows()), details=self.details)
        return self._cache[key]


def order_rows(rows: Sequence[CaptureRow]) -> tuple[CaptureRow, ...]:
    """Put rows in the order in which they were recorded, shard by shard."""
    return tuple(sorted(rows, key=lambda row: (row.shard_rank, row.seq)))
