"""Qwen3: Llama's layout with norms on q and k, after which q and k are taken."""

from __future__ import annotations

from monitoring.hooks.families.base import Family, model_type
from monitoring.hooks.families.decoder import decoder_points, decoder_unreachable

MODEL_TYPES = ("qwen3",)

FAMILY = Family(
    name="qwen3",
    matches=lambda model: model_type(model) in MODEL_TYPES,
    points=decoder_points,
    unreachable=decoder_unreachable,
)
