"""GPT-2: learned positions, one joint projection for q, k and v."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from monitoring.hooks.families.base import (
    EAGER,
    Family,
    Rotary,
    backbone,
    hidden_by_attention,
    model_type,
    point,
    token_points,
)
from monitoring.hooks.points import Point, Source, by_head, part_by_head, square
from monitoring.rows import NO_LAYER


def points(model: nn.Module, rotary: Rotary) -> Iterator[Point]:  # noqa: ARG001 - GPT-2 has no rotary positions
    """Give every site of a GPT-2 model."""
    decoder: Any = backbone(model)
    yield from token_points(model)
    yield point("embed", NO_LAYER, decoder.wte)
    yield point("pos_embed", NO_LAYER, decoder.wpe)
    for layer, block in enumerate(decoder.h):
        yield from _block_points(layer, block)
    yield point("resid_final", NO_LAYER, decoder.ln_f, Source.INPUT)
    yield point("final_ln", NO_LAYER, decoder.ln_f)


def _block_points(layer: int, block: Any) -> Iterator[Point]:
    attention = block.attn
    yield point("resid_pre", layer, block, Source.INPUT)
    yield point("ln1", layer, block.ln_1)
    for part, site in enumerate(("q", "k", "v")):
        yield point(site, layer, attention.c_attn, view=part_by_head(part, 3, attention.head_dim))
    yield point("attn_scores", layer, attention, Source.SCORES, view=square)
    yield point("pattern", layer, attention, view=square, index=1)
    yield point("z", layer, attention.c_proj, Source.INPUT, view=by_head(attention.head_dim))
    yield point("attn_out", layer, attention)
    yield point("resid_mid", layer, block.ln_2, Source.INPUT)
    yield point("ln2", layer, block.ln_2)
    yield point("mlp_in", layer, block.mlp, Source.INPUT)
    yield point("mlp_post", layer, block.mlp.c_proj, Source.INPUT)
    yield point("mlp_out", layer, block.mlp)


def unreachable(model: nn.Module, rotary: Rotary) -> dict[str, str]:  # noqa: ARG001 - a family's signature
    """Say what the configured attention hides."""
    hidden = hidden_by_attention(model)
    if not hidden and getattr(getattr(model, "config", None), "reorder_and_upcast_attn", False):
        way = f"{EAGER} and reorder_and_upcast_attn=False"
        return {"attn_scores": f"reorder_and_upcast_attn computes scores outside the attention function; {way}"}
    return hidden


FAMILY = Family(name="gpt2", matches=lambda model: model_type(model) == "gpt2", points=points, unreachable=unreachable)
