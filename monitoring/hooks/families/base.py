"""What a family is, and what the families share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from torch import nn

from monitoring.hooks.points import Point, Source, View, by_token, last_columns
from monitoring.hooks.sites import BY_NAME
from monitoring.rows import NO_LAYER


class Rotary(str, Enum):
    """Whether q and k are taken before or after rotary positions are applied."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, kw_only=True)
class Family:
    """How to find a kind of model's sites.

    `unreachable` maps site names to sentences: sites that this model computes
    out of a hook's sight as it is configured, with the way out.
    """

    name: str
    matches: Callable[[nn.Module], bool]
    points: Callable[[nn.Module, Rotary], Iterator[Point]]
    unreachable: Callable[[nn.Module, Rotary], Mapping[str, str]] = lambda _model, _rotary: {}


EAGER = 'load the model with attn_implementation="eager"'


def point(  # noqa: PLR0913 - a row of a family's table
    site: str,
    layer: int,
    module: nn.Module,
    source: Source = Source.OUTPUT,
    *,
    view: View = by_token,
    index: int = 0,
    keyword: str = "hidden_states",
) -> Point:
    """Make the point of a site of the hook table."""
    return Point(
        name=site,
        layer=layer,
        module=module,
        source=source,
        view=view,
        site=BY_NAME[site],
        index=index,
        keyword=keyword,
    )


def model_type(model: nn.Module) -> str:
    """Give the configuration's `model_type`, "" where there is none."""
    return str(getattr(getattr(model, "config", None), "model_type", ""))


def backbone(model: nn.Module) -> nn.Module:
    """Find the decoder inside a model with a head; a bare decoder is its own."""
    inner = getattr(model, str(getattr(model, "base_model_prefix", "") or ""), None)
    return inner if isinstance(inner, nn.Module) else model


def attention_implementation(model: nn.Module) -> str:
    """Give the attention implementation that the model was configured with, below any watch's own."""
    from monitoring.hooks.attention import base_implementation

    return base_implementation(getattr(getattr(model, "config", None), "_attn_implementation", None) or "eager")


def token_points(model: nn.Module) -> Iterator[Point]:
    """Give the points that any Hugging Face language model has: tokens in, logits out."""
    yield point("token_ids", NO_LAYER, model, Source.TOKENS)
    head = _call(model, "get_output_embeddings")
    if isinstance(head, nn.Module):
        yield point("final_logits", NO_LAYER, head, view=last_columns)


def hidden_by_attention(model: nn.Module) -> dict[str, str]:
    """Say which sites a fused attention kernel hides."""
    kind = attention_implementation(model)
    if kind == "eager":
        return {}
    reason = f"attention runs inside the {kind} kernel, which never gives its weights away"
    return {"pattern": f"{reason}; {EAGER}", "attn_scores": f"{reason}; {EAGER}"}


def _call(model: nn.Module, name: str) -> Any:
    method = getattr(model, name, None)
    try:
        return method() if callable(method) else None
    except (NotImplementedError, AttributeError):
        return None
