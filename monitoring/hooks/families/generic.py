"""Any module at all: outputs of modules chosen by a glob; tokens, embeddings and logits where they can be told."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator

from torch import nn

from monitoring.errors import SelectionError
from monitoring.hooks.families.base import Family, Rotary, backbone, point, token_points
from monitoring.hooks.points import Point, Source, whole
from monitoring.rows import MODULE_PREFIX, NO_LAYER

SHOWN_NAMES = 12


def module_points(model: nn.Module, globs: tuple[str, ...]) -> Iterator[Point]:
    """Give the output of every module whose qualified name matches a glob; "" names the model itself.

    Raises `SelectionError` for a glob that matches nothing.
    """
    names = dict(model.named_modules())
    chosen: dict[str, nn.Module] = {}
    for glob in globs:
        found = {name: module for name, module in names.items() if fnmatch.fnmatchcase(name, glob)}
        if not found:
            some = ", ".join(list(names)[1 : SHOWN_NAMES + 1])
            raise SelectionError(
                f"modules:{glob} matches no module of {type(model).__name__}", hint=f"names begin: {some}"
            )
        chosen.update(found)
    for name, module in chosen.items():
        yield Point(name=MODULE_PREFIX + name, layer=NO_LAYER, module=module, source=Source.OUTPUT, view=whole)


def points(model: nn.Module, rotary: Rotary) -> Iterator[Point]:  # noqa: ARG001 - a family's signature
    """Give tokens, embeddings and logits of a Hugging Face language model; nothing for other modules."""
    if not hasattr(model, "config") or not hasattr(model, "get_input_embeddings"):
        return
    yield from token_points(model)
    embeddings = getattr(backbone(model), "get_input_embeddings", lambda: None)()
    if isinstance(embeddings, nn.Embedding):
        yield point("embed", NO_LAYER, embeddings)


FAMILY = Family(name="generic", matches=lambda _model: True, points=points)
