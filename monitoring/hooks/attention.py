"""Looking inside the attention function: post-RoPE q and k, and scores before the softmax.

A tap registers itself under a name of its own with transformers'
`AttentionInterface`, and the mask function of the implementation below under
the same name with `AttentionMaskInterface` (a name without a mask function
gets no mask, and other logits). It then runs the very function that the model
would have run, so the model's results stay bit-equal.

Taps stack: each one runs the implementation that was configured when it came.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from monitoring.errors import CaptureError
from monitoring.hooks.points import Source

Record = Callable[[torch.Tensor], None]
PREFIX = "lockgate"

_numbers = itertools.count(1)


class AttentionTap:
    """One watch's look inside the attention of the modules that share one configuration."""

    def __init__(self, config: Any, records: Mapping[int, Mapping[Source, Record]]) -> None:
        """Configure the model to run its attention through this tap; `records` is keyed by layer."""
        functions, masks = _interfaces()
        self.config = config
        self.active = True
        self.below = config._attn_implementation or "eager"  # noqa: SLF001 - the configuration's only name for it
        self.base = base_implementation(self.below)
        self.name = f"{PREFIX}-{next(_numbers)}-{self.base}"
        self._records = dict(records)
        self._below = functions.get(self.below) if self.below in functions else None
        type(functions).register(self.name, self)
        if masks is not None and self.below in masks:
            type(masks).register(self.name, masks[self.below])
        config._attn_implementation = self.name  # noqa: SLF001

    def __call__(
        self, module: nn.Module, query: torch.Tensor, key: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Record what was asked for, and run the implementation below."""
        records = self._records.get(module.layer_idx) if self.active else None
        function = self._below or _eager(module)
        if not records:
            return function(module, query, key, *args, **kwargs)  # type: ignore[no-any-return]
        if Source.QUERY in records:
            records[Source.QUERY](query)
        if Source.KEY in records:
            records[Source.KEY](key)
        if Source.SCORES not in records:
            return function(module, query, key, *args, **kwargs)  # type: ignore[no-any-return]
        with _SoftmaxInput(records[Source.SCORES]):
            return function(module, query, key, *args, **kwargs)  # type: ignore[no-any-return]

    def remove(self) -> None:
        """Stop looking; give the model its implementation back, unless another tap still lies on top."""
        functions, masks = _interfaces()
        self.active = False
        top = _tap(functions, self.config._attn_implementation)  # noqa: SLF001
        while top is not None and not top.active:
            self.config._attn_implementation = top.below  # noqa: SLF001
            for interface in (functions, masks):
                if interface is not None:
                    interface._global_mapping.pop(top.name, None)  # noqa: SLF001 - there is no way to unregister
            top = _tap(functions, top.below)


class _SoftmaxInput(TorchFunctionMode):  # type: ignore[misc]  # torch is untyped here
    """Records the argument of the first softmax that runs within it: the scores, exactly as computed."""

    def __init__(self, record: Record) -> None:
        super().__init__()
        self._record: Record | None = record

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.nn.functional.softmax, torch.softmax, torch.Tensor.softmax) and self._record is not None:
            record, self._record = self._record, None
            record(args[0])
        return func(*args, **(kwargs or {}))


def base_implementation(name: str) -> str:
    """Give the implementation below all taps: what the model was configured with."""
    return name.split("-", 2)[2] if name.startswith(f"{PREFIX}-") else name


def _interfaces() -> tuple[Any, Any]:
    try:
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
    except ImportError as error:
        raise CaptureError(
            f"looking inside attention needs transformers with AttentionInterface: {error}",
            hint="pip install 'transformers>=4.51'",
        ) from error
    try:
        from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    except ImportError:  # before 4.53 masks did not depend on a registered name
        return ALL_ATTENTION_FUNCTIONS, None
    return ALL_ATTENTION_FUNCTIONS, ALL_MASK_ATTENTION_FUNCTIONS


def _tap(functions: Any, name: str | None) -> AttentionTap | None:
    found = functions.get(name) if name is not None and name in functions else None
    return found if isinstance(found, AttentionTap) else None


def _eager(module: nn.Module) -> Any:
    # Eager attention is a function of each modeling file, not of the interface.
    return sys.modules[type(module).__module__].eager_attention_forward
