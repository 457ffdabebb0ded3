"""Seeing where a `generate` call begins and ends, by wrapping the method on the one model instance.

A forward pass alone does not tell to which call it belongs when no cache ties
the steps together, nor which rows end when. The wrapper lives in the
instance's `__dict__`; removing it restores whatever was there, also when
several watches wrapped the model and leave in any order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from monitoring.hooks.sessions import Generation


class GenerateWrapper:
    """Runs `enter(generation)` around each `generate` call of one model until removed."""

    def __init__(self, model: nn.Module, enter: Callable[[Generation], AbstractContextManager[None]]) -> None:
        """Wrap the method now."""
        self._model = model
        self._enter = enter
        self.inner = model.generate
        self.had_own = "generate" in model.__dict__
        self.active = True

        @functools.wraps(self.inner)
        def generate(*args: Any, **kwargs: Any) -> Any:
            if not self.active:
                return self.inner(*args, **kwargs)
            with self._enter(read_generation(model, args, kwargs)):
                return self.inner(*args, **kwargs)

        generate.wrapper = self  # type: ignore[attr-defined]
        model.__dict__["generate"] = generate

    def remove(self) -> None:
        """Stop watching; take the wrapper off, and inactive ones below it, unless another still lies on top."""
        self.active = False
        top = getattr(self._model.__dict__.get("generate"), "wrapper", None)
        while isinstance(top, GenerateWrapper) and not top.active:
            if top.had_own:
                self._model.__dict__["generate"] = top.inner
            else:
                del self._model.__dict__["generate"]
            top = getattr(self._model.__dict__.get("generate"), "wrapper", None)


def read_generation(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Generation:
    """Read the prompt's length and the end tokens from the arguments of `generate`."""
    prompt = next(
        (value for value in (kwargs.get("inputs"), kwargs.get("input_ids"), *args[:1]) if value is not None), None
    )
    if prompt is None:
        prompt = kwargs.get("inputs_embeds")
    columns = int(prompt.shape[1]) if isinstance(prompt, torch.Tensor) and prompt.dim() > 1 else 0
    beams = _setting(model, kwargs, "num_beams") or 1
    ends = _setting(model, kwargs, "eos_token_id") if beams == 1 else None
    return Generation(prompt=columns, eos=_ids(ends))


def _setting(model: nn.Module, kwargs: Mapping[str, Any], name: str) -> Any:
    for source in (kwargs, kwargs.get("generation_config"), getattr(model, "generation_config", None)):
        value = source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)
        if value is not None:
            return value
    return None


def _ids(value: Any) -> frozenset[int]:
    if value is None:
        return frozenset()
    if isinstance(value, torch.Tensor):
        value = value.flatten().tolist()
    return frozenset(int(one) for one in (value if isinstance(value, (list, tuple, set)) else [value]))
