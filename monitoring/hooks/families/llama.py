"""Llama and Mistral: the plain layout."""

from __future__ import annotations

from monitoring.hooks.families.base import Family, model_type
from monitoring.hooks.families.decoder import decoder_points, decoder_unreachable

MODEL_TYPES = ("llama", "mistral")

FAMILY = Family(
    name="llama",
    matches=lambda model: model_type(model) in MODEL_TYPES,
    points=decoder_points,
    unreachable=decoder_unreachable,
)
