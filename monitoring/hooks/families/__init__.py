"""Model families: model -> the points where its sites are. One file each; the first that matches is taken.

A family names every site that the model has; `points` leaves out what is not
there, and `unreachable` says which sites exist where no hook can see them, with
the way out.
"""

from __future__ import annotations

from torch import nn

from monitoring.hooks.families import generic, gpt2, llama, qwen2, qwen3, qwen_moe
from monitoring.hooks.families.base import Family

FAMILIES: tuple[Family, ...] = (
    gpt2.FAMILY,
    llama.FAMILY,
    qwen2.FAMILY,
    qwen3.FAMILY,
    qwen_moe.FAMILY,
    generic.FAMILY,
)


def find_family(model: nn.Module) -> Family:
    """Find the family of a model; the generic one knows module outputs of anything."""
    return next(family for family in FAMILIES if family.matches(model))
