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
from monitoring.hooks.points import INSIDE_ATTENTION, Point, Source, pick
from monitoring.hooks.recorder import Recorder, Tap
from monitoring.hooks.sessions import output_cache

_compiling = torch.compiler.is_compiling


def install(model: nn.Module, points: Iterable[Point], recorder: Recorder) -> list[Callable[[], None]]:
    """Install every hook; the functions that remove them again, each safe to call twice.

    Nothing stays behind when installing fails half-way.
    """
    removers: list[Callable[[], None]] = []
    try:
        taps = [recorder.add(point) for point in points]
        tokens = next((tap for tap in taps if tap.point.source is Source.TOKENS), None)
        removers += _install_steps(model, tokens, recorder)
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
    except BaseException:
        for remove in reversed(removers):
            remove()
        raise
    return removers


def _install_steps(model: nn.Module, tokens: Tap | None, recorder: Recorder) -> list[Callable[[], None]]:
    token, number, state = recorder.token, recorder.number, recorder.state
    inner = backbone(model)

    def start(args: Any, kwargs: Any) -> None:
        forward = recorder.guard("step", lambda: read_forward(args, kwargs))
        if forward is not None:
            recorder.guard("step", lambda: recorder.begin(forward))
            if tokens is not None and forward.ids is not None:
                recorder.receive(tokens.index, forward.ids)

    def finish(output: Any) -> None:
        session = state.session
        cache = recorder.guard("step", lambda: output_cache(output)) if session is not None else None
        if session is not None and cache is not None:
            recorder.guard("step", lambda: recorder.sessions.bind(session, cache))
        recorder.end()

    def begin(_module: nn.Module, args: Any, kwargs: Any) -> None:
        if _compiling():
            ids = begin_traced(args, kwargs, token, number)
            if tokens is not None and ids is not None:
                ops.record(ids, token, number, tokens.index)
            return
        # The model announces its decoder's call: a decoder called alone is a forward pass of its own.
        state.announced = inner is not model
        start(args, kwargs)

    def end(_module: nn.Module, _args: Any, output: Any) -> None:
        if not _compiling():
            finish(output)

    def begin_alone(_module: nn.Module, args: Any, kwargs: Any) -> None:
        if _compiling():
            return
        state.alone = not state.announced
        state.announced = False
        if state.alone:
            start(args, kwargs)

    def end_alone(_module: nn.Module, _args: Any, output: Any) -> None:
        if not _compiling() and state.alone:
            finish(output)

    removers = [
        model.register_forward_pre_hook(begin, with_kwargs=True, prepend=True).remove,
        model.register_forward_hook(end).remove,
    ]
    if inner is not model:
        removers.append(inner.register_forward_pre_hook(begin_alone, with_kwargs=True, prepend=True).remove)
        removers.append(inner.register_forward_hook(end_alone).remove)
    return removers


def _output_hook(tap: Tap) -> Callable[[nn.Module, Any, Any], None]:
    take, failed, index = tap.take, tap.failed, tap.point.index
    token, number, position = tap.recorder.token, tap.recorder.number, tap.index
    tensor_type = torch.Tensor

    def hook(_module: nn.Module, _args: Any, output: Any) -> None:
        if _compiling():
            found = pick(output, index)
            if found is not None:
                ops.record(found.detach(), token, number, position)
            return
        try:
            if index == 0 and type(output) is tensor_type:
                take(output)
            else:
                take(_need(pick(output, index), output))
        except Exception as error:  # noqa: BLE001 - a hook's border: counted, kept, shown
            failed(error)

    return hook


def _input_hook(tap: Tap) -> Callable[[nn.Module, Any, Any], None]:
    take, failed, index, keyword = tap.take, tap.failed, tap.point.index, tap.point.keyword
    token, number, position = tap.recorder.token, tap.recorder.number, tap.index

    def hook(_module: nn.Module, args: Any, kwargs: Any) -> None:
        found = args[index] if len(args) > index else kwargs.get(keyword)
        if _compiling():
            if found is not None:
                ops.record(found.detach(), token, number, position)
            return
        try:
            take(_need(found, kwargs))
        except Exception as error:  # noqa: BLE001 - a hook's border: counted, kept, shown
            failed(error)

    return hook


def _install_attention(taps: list[Tap]) -> list[Callable[[], None]]:
    by_config: dict[int, tuple[Any, dict[int, dict[Source, Any]]]] = {}
    for tap in taps:
        config = tap.point.module.config
        _, records = by_config.setdefault(id(config), (config, {}))
        records.setdefault(int(tap.point.module.layer_idx), {})[tap.point.source] = _attention_record(tap)  # type: ignore[arg-type]
    return [AttentionTap(config, records).remove for config, records in by_config.values()]


def _attention_record(tap: Tap) -> Callable[[torch.Tensor], None]:
    take, failed = tap.take, tap.failed
    token, number, position = tap.recorder.token, tap.recorder.number, tap.index

    def record(tensor: torch.Tensor) -> None:
        if _compiling():
            ops.record(tensor.detach(), token, number, position)
            return
        try:
            take(tensor)
        except Exception as error:  # noqa: BLE001 - a hook's border: counted, kept, shown
            failed(error)

    return record


def _need(found: torch.Tensor | None, given: Any) -> torch.Tensor:
    if not isinstance(found, torch.Tensor):
        raise CaptureError(f"expected a tensor, the module handed on {type(given).__name__}")
    return found
