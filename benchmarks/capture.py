"""What watching a model costs, against an unhooked model, a cloning hook, `output_hidden_states` and nnsight.

    python benchmarks/capture.py [--rounds 40] [--tokens 16] [--json FILE]

Two measurements, both of CPU time (`time.thread_time`) of the model's thread, in turns within one run:

hook    the time inside the hooks of a running 12 x 768 model, per hook, timer cost taken off
forward a whole `generate`, each way of getting hidden states against the unhooked model, as ratios

Intervals are 95 % bootstrap intervals of the median. The hidden state of every layer is taken each time.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import monitoring
from monitoring.hooks import install

HOOK_BAR = 0.7
FORWARD_BAR = 0.01
RESAMPLES = 2000


def main() -> int:
    """Measure, print a table, tell the bars; 1 when one is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=16, help="tokens generated in each measured generate")
    parser.add_argument("--threads", type=int, default=1, help="torch threads (1: no CPU time hides in a pool)")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = build()
    print(f"GPT-2 of 12 layers x 768, float32, torch {torch.__version__}, {options.rounds} rounds")
    results: dict[str, Any] = {}
    for columns in (1, 16, 64):
        results[f"hook, {columns} tokens"] = measure_hooks(model, columns=columns, rounds=options.rounds)
    results["generate"] = measure_generate(model, tokens=options.tokens, rounds=max(5, options.rounds // 4))
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2))
    return 0 if judge(results) else 1


def build() -> Any:
    """Build GPT-2 small from its configuration."""
    import transformers

    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=1000, bos_token_id=0, eos_token_id=None, pad_token_id=0)
    model = transformers.GPT2LMHeadModel(config).eval()
    model.generation_config.eos_token_id = None
    return model


def measure_hooks(model: Any, *, columns: int, rounds: int) -> dict[str, Any]:
    """Time the hooks themselves, inside the forward passes of the model: caches are as cold as they are in life."""
    ids = torch.randint(0, 1000, (1, columns))
    clock, spent = time.thread_time_ns, [0]
    kept: list[Any] = []

    def timed(hook: Callable[..., Any]) -> Callable[..., None]:
        def around(module: Any, args: Any, output: Any) -> None:
            before = clock()
            hook(module, args, output)
            spent[0] += clock() - before

        return around

    watch = monitoring.watch(model, select="mlp_out", store="null:")
    watch.open()
    taps = watch._recorder.taps  # noqa: SLF001 - the parts themselves are measured
    # The watch's own hooks on the layers come off: here they run inside a timer.
    for layer in model.transformer.h:
        layer.mlp._forward_hooks.clear()  # noqa: SLF001
    ways = {
        "nothing": lambda _: lambda *_: None,
        "cloning hook": lambda _: lambda _m, _a, output: kept.append(output.clone()),
        "watch": lambda index: install._output_hook(taps[index]),  # noqa: SLF001
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    forward: list[float] = []
    with torch.no_grad():
        model(ids, use_cache=False)
        for _ in range(rounds):
            kept.clear()
            for name, way in ways.items():
                handles = [
                    layer.mlp.register_forward_hook(timed(way(index)))
                    for index, layer in enumerate(model.transformer.h)
                ]
                spent[0] = 0
                before = clock()
                model(ids, use_cache=False)
                if name == "nothing":
                    forward.append((clock() - before) / 1e3)
                seconds[name].append(spent[0] / 1e3 / len(handles))
                for handle in handles:
                    handle.remove()
    watch.close()
    stats = watch.stats()
    assert stats.written == stats.accepted == rounds * 12, stats
    pairs = list(zip(seconds["nothing"], seconds["cloning hook"], seconds["watch"], strict=True))
    ratio = [(ours - base) / (clone - base) for base, clone, ours in pairs if clone > base]
    share = [12 * (ours - base) / whole for (base, _, ours), whole in zip(pairs, forward, strict=True)]
    result = {
        "cloning hook, us": interval([clone - base for base, clone, _ in pairs]),
        "watch, us": interval([ours - base for base, _, ours in pairs]),
        "ratio": interval(ratio),
        "share of the forward pass": interval(share),
    }
    print(f"\nhook, {columns} tokens ({columns * 768 * 4:,} bytes), net of the timer:")
    for name, (middle, low, high) in result.items():
        print(f"  {name:28} {middle:9.4f}   [{low:.4f}, {high:.4f}]")
    return result


def measure_generate(model: Any, *, tokens: int, rounds: int) -> dict[str, Any]:
    """Time whole generations, in turns, as ratios to the unhooked one of the same round."""
    ids = torch.randint(0, 1000, (1, 16))

    def generate(**more: Any) -> None:
        model.generate(ids, max_new_tokens=tokens, do_sample=False, **more)

    ways: dict[str, Callable[[], Any]] = {
        "unhooked": generate,
        "unhooked, again (noise)": generate,
        "cloning hook": lambda: with_clones(model, generate),
        "output_hidden_states": lambda: generate(output_hidden_states=True, return_dict_in_generate=True),
        "watch": generate,
        "unhooked, no cache": lambda: generate(use_cache=False),
        **nnsight_way(model, ids, tokens),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    generate()
    for _ in range(rounds):
        order = list(ways)
        random.shuffle(order)
        for name in order:
            with watching(model) if name == "watch" else nothing():
                before = time.thread_time()
                ways[name]()
                seconds[name].append(time.thread_time() - before)
    result = {}
    # nnsight's loop has no cache: it is held against a generation without one.
    bases = {name: "unhooked, no cache" if name.startswith("nnsight") else "unhooked" for name in ways}
    print(f"\ngenerate {tokens} tokens, CPU time against the unhooked model of the same round ({rounds} rounds):")
    for name, mine in seconds.items():
        ratios = [one / base for one, base in zip(mine, seconds[bases[name]], strict=True)]
        result[name] = interval(ratios)
        print(f"  {name:28} {result[name][0]:9.4f}   [{result[name][1]:.4f}, {result[name][2]:.4f}]")
    return result


def with_clones(model: Any, action: Callable[[], Any]) -> None:
    """Run an action under hooks that clone each layer's output and keep it."""
    kept: list[Any] = []

    def hook(_module: Any, _args: Any, output: Any) -> None:
        kept.append((output if isinstance(output, torch.Tensor) else output[0]).clone())

    handles = [layer.register_forward_hook(hook) for layer in model.transformer.h]
    action()
    for handle in handles:
        handle.remove()


@contextmanager
def watching(model: Any) -> Iterator[None]:
    """Watch the hidden states; opening and closing stay outside the measured time."""
    with monitoring.watch(model, select="hidden-states", store="null:", raise_on_loss=True):
        yield


@contextmanager
def nothing() -> Iterator[None]:
    """Do nothing."""
    yield


def nnsight_way(model: Any, ids: Any, tokens: int) -> dict[str, Callable[[], Any]]:
    """Save each layer's output with nnsight, where it is installed."""
    try:
        from nnsight import NNsight
    except ImportError as error:
        print(f"nnsight is not measured: {error}")
        return {}
    wrapped = NNsight(model)

    def run() -> None:
        current = ids
        with torch.no_grad():
            for _ in range(tokens):
                with wrapped.trace(current, use_cache=False):
                    for layer in wrapped.transformer.h:
                        layer.output.save()
                    logits = wrapped.output.logits.save()
                current = torch.cat([current, logits[:, -1:].argmax(-1)], dim=1)

    return {"nnsight / no cache": run}


def interval(values: list[float]) -> tuple[float, float, float]:
    """Give the median and its 95 % bootstrap interval."""
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return statistics.median(values), medians[int(RESAMPLES * 0.025)], medians[int(RESAMPLES * 0.975)]


def judge(results: dict[str, Any]) -> bool:
    """Tell the bars and whether one token's hooks keep them."""
    decode = results["hook, 1 tokens"]
    ratio, share = decode["ratio"][0], decode["share of the forward pass"][0]
    kept = {
        f"hook <= {HOOK_BAR} x a cloning hook": ratio <= HOOK_BAR,
        "hooks <= 1 % of the forward pass": share <= FORWARD_BAR,
    }
    print()
    for bar, good in kept.items():
        print(f"{'kept  ' if good else 'MISSED'}  {bar}  (one token: {ratio:.2f} x, {share:.2%})")
    return all(kept.values())


if __name__ == "__main__":
    sys.exit(main())
