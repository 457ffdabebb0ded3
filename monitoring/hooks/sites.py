"""The hook table: every site at which a model can be watched. This file is the truth.

The native library compiles `table_digest()` in and refuses a table of another
digest. Standard library only, and no import of this package: a build runs
this file before anything is installed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import Enum

TABLE_VERSION = 1

# Ids from here on name modules chosen by a glob; they have a meaning within one run only.
FIRST_MODULE_ID = 1024


class Group(str, Enum):
    """The part of a layer that a site belongs to."""

    ATTN = "attn"
    MLP = "mlp"
    OTHER = "other"


class Shape(str, Enum):
    """How a site's tensor is laid out; b batch, q computed tokens, kv visible tokens, H hidden size.

    `HEADS` [b, q, heads, d]; `KV_HEADS` [b, q, kv heads, d]; `SQUARE` [b, heads, q, kv];
    `HIDDEN` [b, q, H]; `INTER` [b, q, intermediate]; `TOKENS` [b, q]; `VOCAB` [b, kept, vocabulary];
    `EXPERTS` [b, q, experts]; `TOPK` [b, q, k]. Head counts and `INTER` are per tensor-parallel shard.
    """

    HIDDEN = "hidden"
    HEADS = "heads"
    KV_HEADS = "kv_heads"
    SQUARE = "square"
    INTER = "inter"
    TOKENS = "tokens"
    VOCAB = "vocab"
    EXPERTS = "experts"
    TOPK = "topk"


class Stage(str, Enum):
    """The pipeline-parallel stage that owns a site."""

    FIRST = "first"
    EVERY = "every"
    LAST = "last"


@dataclass(frozen=True)
class Site:
    """One row of the hook table.

    `sharded_dim` is the dimension along which tensor parallelism splits one
    request's tensor (the batch dimension is gone by then), None where every rank
    holds all of it.
    """

    id: int
    name: str
    short: str
    per_layer: bool
    group: Group
    sharded_dim: int | None
    shape: Shape
    stage: Stage

    @property
    def tp_sharded(self) -> bool:
        """Whether each tensor-parallel rank holds a part only."""
        return self.sharded_dim is not None


_A, _M, _O = Group.ATTN, Group.MLP, Group.OTHER
_FIRST, _EVERY, _LAST = Stage.FIRST, Stage.EVERY, Stage.LAST

# fmt: off
SITES: tuple[Site, ...] = (
    #    id  name             short      layer  group  split  shape            stage
    Site(0,  "resid_pre",     "pre",     True,  _O,    None,  Shape.HIDDEN,    _EVERY),
    Site(1,  "ln1",           "n1",      True,  _A,    None,  Shape.HIDDEN,    _EVERY),
    Site(2,  "attn_out",      "attn",    True,  _A,    None,  Shape.HIDDEN,    _EVERY),
    Site(3,  "resid_mid",     "mid",     True,  _O,    None,  Shape.HIDDEN,    _EVERY),
    Site(4,  "attn_scores",   "scores",  True,  _A,    0,     Shape.SQUARE,    _EVERY),
    Site(5,  "pattern",       "pat",     True,  _A,    0,     Shape.SQUARE,    _EVERY),
    Site(6,  "q",             "q",       True,  _A,    1,     Shape.HEADS,     _EVERY),
    Site(7,  "k",             "k",       True,  _A,    1,     Shape.KV_HEADS,  _EVERY),
    Site(8,  "v",             "v",       True,  _A,    1,     Shape.KV_HEADS,  _EVERY),
    Site(9,  "z",             "z",       True,  _A,    1,     Shape.HEADS,     _EVERY),
    Site(11, "ln2",           "n2",      True,  _M,    None,  Shape.HIDDEN,    _EVERY),
    Site(12, "mlp_in",        "mlp-in",  True,  _M,    None,  Shape.HIDDEN,    _EVERY),
    Site(13, "mlp_out",       "mlp",     True,  _M,    None,  Shape.HIDDEN,    _EVERY),
    Site(14, "resid_final",   "final",   False, _O,    None,  Shape.HIDDEN,    _LAST),
    Site(15, "embed",         "emb",     False, _O,    None,  Shape.HIDDEN,    _FIRST),
    Site(16, "pos_embed",     "pos",     False, _O,    None,  Shape.HIDDEN,    _FIRST),
    Site(17, "final_ln",      "norm",    False, _O,    None,  Shape.HIDDEN,    _LAST),
    Site(18, "token_ids",     "ids",     False, _O,    None,  Shape.TOKENS,    _FIRST),
    Site(19, "final_logits",  "lm",      False, _O,    None,  Shape.VOCAB,     _LAST),
    Site(20, "mlp_post",      "post",    True,  _M,    1,     Shape.INTER,     _EVERY),
    Site(21, "router_logits", "router",  True,  _M,    None,  Shape.EXPERTS,   _EVERY),
    Site(22, "topk_ids",      "experts", True,  _M,    None,  Shape.TOPK,      _EVERY),
    Site(23, "topk_weights",  "weights", True,  _M,    None,  Shape.TOPK,      _EVERY),
)
# fmt: on

BY_NAME: dict[str, Site] = {site.name: site for site in SITES}
BY_ID: dict[int, Site] = {site.id: site for site in SITES}


def canonical_table() -> str:
    """Render the table as text, one line per site; two tables are the same when their texts are."""
    lines = [f"lockgate-hook-table {TABLE_VERSION} modules-from {FIRST_MODULE_ID}"]
    for site in SITES:
        split = "-" if site.sharded_dim is None else str(site.sharded_dim)
        scope = "layer" if site.per_layer else "global"
        cells = (str(site.id), site.name, site.short, scope, site.group.value, split, site.shape.value)
        lines.append(" ".join((*cells, site.stage.value)))
    return "\n".join(lines) + "\n"


def table_digest() -> str:
    """Give the SHA-256 of the table, as 64 hexadecimal digits."""
    return hashlib.sha256(canonical_table().encode("ascii")).hexdigest()
