"""Points -> hooks: installing them on a model, and taking exactly those off again.

token_ids, step   a pre-hook on the model (and on its decoder, when called alone)
module points     forward hooks and pre-hooks
attention points  one tap per attention configuration
generate          a wrapper on the instance
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from monitoring import ops
from monitoring.errors import CaptureError
from monitoring.hooks.attention import AttentionTap
from monitoring.hooks.families.base import backbone
from monitoring.hooks.generation import GenerateWrapper
from monitoring.hooks.inputs import begin_traced, read_forward
from monitoring.hooks.points import INSIDE_ATTENTION, Source, pick
from monitoring.hooks.recorder import Recorder, Tap
from monitoring.hooks.sessions import output_cache

# Constant while dynamo traces; a plain False elsewhere, and the cheapest question there is.
_compiling = torch.compiler.is_dynamo_compiling


def install(model: nn.Module, recorder: Recorder) -> list[Callable[[], None]]:
    """Install every hook; the functions that remove them again, each safe to call twice.

    Nothing stays behind when installing fails half-way.
    """
    removers: list[Callable[[], None]] = []
    try:
        taps = recorder.taps
        tokens = next((tap for tap in taps if tap.point.source is Source.TOKENS), None)
        steps = StepHooks(model, tokens, recorder)
        removers += steps.install_begin()
        if hasattr(model, "generate"):
            removers.append(GenerateWrapper(model, recorder.sessions.generating).remove)
        for tap in taps:
            if tap.point.source is Source.OUTPUT:
                hook = _output_hook(tap)
                removers.append(tap.point.module.register_forward_hook(hook).remove)
            elif tap.point.source is Source.INPUT:
                pre_hook = _input_hook(tap)
                removers.append(tap.point.module.register_forward_pre_hook(pre_hook, with_kwargs=True).remove)
        removers += _install_attention([tap for tap in taps if tap.point.source in INSIDE_ATTENTION])
        removers += steps.install_end()
    except BaseException:
        for remove in reversed(removers):
            remove()
        raise
    return removers


class StepHooks:
    """Tells the recorder where forward passes begin and end.

    The model announces its decoder's call; a decoder called without that is a
    forward pass of its own.
    """

    def __init__(self, model: nn.Module, tokens: Tap | None, recorder: Recorder) -> None:
        """Remember whom to tell; `tokens` is the tap of the token ids, if they were selected."""
        self._model = model
        self._decoder = backbone(model)
        self._tokens = tokens
        self._recorder = recorder
        # Plain names: traced code reads them, and tensors of closures are what a graph takes as inputs.
        self._token, self._number, self._state = recorder.token, recorder.number, recorder.state

    def install_begin(self) -> list[Callable[[], None]]:
        """Install the hooks that run before everything else."""
        add = self._model.register_forward_pre_hook
        removers = [add(self.begin, with_kwargs=True, prepend=True).remove]
        if self._decoder is not self._model:
            add = self._decoder.register_forward_pre_hook
            removers.append(add(self.begin_alone, with_kwargs=True, prepend=True).remove)
        return removers

    def install_end(self) -> list[Callable[[], None]]:
        """Install the hooks that run after all others: the model's own output may be watched too."""
        removers = [self._model.register_forward_hook(self.end).remove]
        if self._decoder is not self._model:
            removers.append(self._decoder.register_forward_hook(self.end_alone).remove)
        return removers

    def begin(self, _module: nn.Module, args: Any, kwargs: Any) -> None:
        """Begin a forward pass of the model."""
        if _compiling():
            ids = begin_traced(args, kwargs, self._token, self._number)
            if self._tokens is not None and ids is not None:
                ops.record(ids, self._token, self._number, self._tokens.index)
            return
        self._state.announced = self._decoder is not self._model
        self._start(args, kwargs)

    def end(self, _module: nn.Module, _args: Any, output: Any) -> None:
        """End a forward pass of the model."""
        if not _compiling():
            self._finish(output)

    def begin_alone(self, _module: nn.Module, args: Any, kwargs: Any) -> None:
        """Begin a forward pass of the decoder, unless the model's has begun."""
        if _compiling():
            return
        self._state.alone = not self._state.announced
        self._state.announced = False
        if self._state.alone:
            self._start(args, kwargs)

    def end_alone(self, _module: nn.Module, _args: Any, output: Any) -> None:
        """End a forward pass of the decoder that was one of its own."""
        if not _compiling() and self._state.alone:
            self._finish(output)

    def _start(self, args: Any, kwargs: Any) -> None:
        recorder = self._recorder
        forward = recorder.guard("step", lambda: read_forward(args, kwargs))
        if forward is not None:
            recorder.guard("step", lambda: recorder.begin(forward))
            if self._tokens is not None and forward.ids is not None:
                recorder.receive(self._tokens.index, forward.ids)

    def _finish(self, output: Any) -> None:
        recorder, now = self._recorder, self._state.now
        session = now.session
        if session is not None and not now.cached:
            cache = recorder.guard("step", lambda: output_cache(output))
            if cache is not None:
                recorder.guard("step", lambda: recorder.sessions.bind(session, cache))
        recorder.end()


def _output_hook(tap: Tap) -> Callable[[nn.Module, Any, Any], None]:
    short, recorder, index, element = tap.recorder.short.take, tap.recorder, tap.index, tap.point.index
    token, number = recorder.token, recorder.number

    def hook(_module: nn.Module, _args: Any, output: Any) -> None:
        if _compiling():
            found = pick(output, element)
            if found is not None:
                ops.record(found.detach(), token, number, index)
        elif short(index, output) < 0:  # not a plain tensor
            found = pick(output, element)
            if found is output or short(index, found) < 0:
                _take(tap, found, output)

    return hook


def _input_hook(tap: Tap) -> Callable[[nn.Module, Any, Any], None]:
    short, recorder, index = tap.recorder.short.take, tap.recorder, tap.index
    element, keyword = tap.point.index, tap.point.keyword
    token, number = recorder.token, recorder.number

    def hook(_module: nn.Module, args: Any, kwargs: Any) -> None:
        found = args[element] if len(args) > element else kwargs.get(keyword)
        if _compiling():
            if found is not None:
                ops.record(found.detach(), token, number, index)
        elif short(index, found) < 0:
            _take(tap, found, kwargs)

    return hook


def _take(tap: Tap, found: Any, given: Any) -> None:
    try:
        if not isinstance(found, torch.Tensor):
            raise CaptureError(f"expected a tensor, the module handed on {type(given).__name__}")  # noqa: TRY301 - counted like any
        tap.take(found)
    except Exception as error:  # noqa: BLE001 - a hook's border: counted, kept, shown
        tap.failed(error)


def _install_attention(taps: Iterable[Tap]) -> list[Callable[[], None]]:
    by_config: dict[int, tuple[Any, dict[int, dict[Source, Any]]]] = {}
    for tap in taps:
        config = tap.point.module.config
        _, records = by_config.setdefault(id(config), (config, {}))
        records.setdefault(int(tap.point.module.layer_idx), {})[tap.point.source] = _attention_record(tap)
    return [AttentionTap(config, records).remove for config, records in by_config.values()]


def _attention_record(tap: Tap) -> Callable[[torch.Tensor], None]:
    token, number, index = tap.recorder.token, tap.recorder.number, tap.index
    short = tap.recorder.short.take

    def record(tensor: torch.Tensor) -> None:
        if _compiling():
            ops.record(tensor.detach(), token, number, index)
        elif short(index, tensor) < 0:
            _take(tap, tensor, tensor)

    return record
