"""Qwen2 and Qwen2.5: Llama's layout with biases on q, k and v."""

from __future__ import annotations

from monitoring.hooks.families.base import Family, model_type
from monitoring.hooks.families.decoder import decoder_points, decoder_unreachable

MODEL_TYPES = ("qwen2",)

FAMILY = Family(
    name="qwen2",
    matches=lambda model: model_type(model) in MODEL_TYPES,
    points=decoder_points,
    unreachable=decoder_unreachable,
)
