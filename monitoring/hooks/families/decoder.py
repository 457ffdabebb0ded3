"""The layout that Llama and its relatives share: RMS norms, rotary positions, separate projections."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from torch import nn

from monitoring.hooks.families.base import Rotary, backbone, hidden_by_attention, point, token_points
from monitoring.hooks.points import Point, Source, by_head, flat_tokens, key_by_head, query_by_head, square
from monitoring.rows import NO_LAYER


def decoder_points(model: nn.Module, rotary: Rotary) -> Iterator[Point]:
    """Give every site of a Llama-like decoder; a layer's own modules decide which it has."""
    decoder: Any = backbone(model)
    yield from token_points(model)
    yield point("embed", NO_LAYER, decoder.embed_tokens)
    for layer, block in enumerate(decoder.layers):
        yield point("resid_pre", layer, block, Source.INPUT)
        yield point("ln1", layer, block.input_layernorm)
        yield from _attention_points(layer, block.self_attn, rotary)
        yield point("resid_mid", layer, block.post_attention_layernorm, Source.INPUT)
        yield point("ln2", layer, block.post_attention_layernorm)
        yield from _mlp_points(layer, block.mlp)
    yield point("resid_final", NO_LAYER, decoder.norm, Source.INPUT)
    yield point("final_ln", NO_LAYER, decoder.norm)


def decoder_unreachable(model: nn.Module, rotary: Rotary) -> dict[str, str]:
    """Say what the configured attention hides, and what an attention of before the interface does."""
    decoder: Any = backbone(model)
    attention = decoder.layers[0].self_attn
    if hasattr(sys.modules[type(attention).__module__], "eager_attention_forward"):
        return hidden_by_attention(model)
    sites = ["pattern", "attn_scores", *(("q", "k") if rotary is Rotary.AFTER else ())]
    reason = f"{type(attention).__name__} of this transformers runs its attention inside itself; use transformers 5"
    return dict.fromkeys(sites, reason)


def _attention_points(layer: int, attention: Any, rotary: Rotary) -> Iterator[Point]:
    heads = by_head(attention.head_dim)
    if rotary is Rotary.AFTER:
        yield point("q", layer, attention, Source.QUERY, view=query_by_head)
        yield point("k", layer, attention, Source.KEY, view=key_by_head)
    else:
        yield point("q", layer, getattr(attention, "q_norm", attention.q_proj), view=heads)
        yield point("k", layer, getattr(attention, "k_norm", attention.k_proj), view=heads)
    yield point("v", layer, attention.v_proj, view=heads)
    yield point("attn_scores", layer, attention, Source.SCORES, view=square)
    yield point("pattern", layer, attention, view=square, index=1)
    yield point("z", layer, attention.o_proj, Source.INPUT, view=heads)
    yield point("attn_out", layer, attention)


def _mlp_points(layer: int, mlp: Any) -> Iterator[Point]:
    yield point("mlp_in", layer, mlp, Source.INPUT, keyword="x")
    if hasattr(mlp, "down_proj"):
        yield point("mlp_post", layer, mlp.down_proj, Source.INPUT)
    if hasattr(mlp, "gate") and hasattr(mlp, "experts"):
        yield from _router_points(layer, mlp)
    yield point("mlp_out", layer, mlp)


def _router_points(layer: int, block: Any) -> Iterator[Point]:
    yield point("router_logits", layer, block.gate, view=flat_tokens)
    if not isinstance(block.gate, nn.Linear):  # transformers 4.x computes the top-k in the block, out of sight
        yield point("topk_weights", layer, block.gate, view=flat_tokens, index=1)
        yield point("topk_ids", layer, block.gate, view=flat_tokens, index=2)
