"""Qwen2-MoE and Qwen3-MoE: routed experts in place of the feed-forward part, in some or all layers."""

from __future__ import annotations

from monitoring.hooks.families.base import Family, model_type
from monitoring.hooks.families.decoder import decoder_points, decoder_unreachable

MODEL_TYPES = ("qwen2_moe", "qwen3_moe")

FAMILY = Family(
    name="qwen_moe",
    matches=lambda model: model_type(model) in MODEL_TYPES,
    points=decoder_points,
    unreachable=decoder_unreachable,
)
