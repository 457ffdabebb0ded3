"""Tell whether a model still computes what it computed when it was released.

    python examples/norm_drift.py [--store drift-store]

One run records the residual stream of a fixed set of prompts, a later run does
so again after the weights moved a little in one layer. Both are read back from
the store and compared layer by layer: the drift begins where it was caused.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
import transformers
from rich.console import Console
from rich.table import Table

import monitoring

PROMPTS = 8
TOKENS = 24
MOVED_LAYER = 3
ALARM = 0.01


def main() -> None:
    """Record a baseline, move the weights, record again, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", default="drift-store", help="a folder, or clickhouse://host:8123/database")
    store = parser.parse_args().store
    model = build()
    probes = torch.randint(0, 500, (PROMPTS, TOKENS), generator=torch.Generator().manual_seed(1))
    baseline = record(model, probes, store, model_id="released")
    with torch.no_grad():
        model.model.layers[MOVED_LAYER].mlp.down_proj.weight.mul_(1.5)
    current = record(model, probes, store, model_id="retrained")
    show(monitoring.read(store, run=baseline), monitoring.read(store, run=current))


def build() -> Any:
    """Build a small Qwen2 with random weights."""
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=500, hidden_size=128, intermediate_size=256, num_hidden_layers=6, num_attention_heads=4,
        num_key_value_heads=2, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    return transformers.Qwen2ForCausalLM(config).eval()


def record(model: Any, probes: Any, store: str, *, model_id: str) -> str:
    """Record the residual stream of the probes; the run's id."""
    names = [f"probe{row}" for row in range(len(probes))]
    watch = monitoring.watch(model, select="resid_pre,resid_final", store=store, model_id=model_id)
    with watch, watch.requests(names), torch.no_grad():
        model(probes)
    return watch.run_id


def show(before: monitoring.Internals, after: monitoring.Internals) -> None:
    """Print the relative change of each layer's input, and where it begins."""
    table = Table(title="change of the residual stream")
    for name in ("before layer", "mean norm", "norm now", "relative change", ""):
        table.add_column(name, justify="right")
    old_states, new_states = (run.site("resid_pre") + run.site("resid_final") for run in (before, after))
    for layer, (old, new) in enumerate(zip(old_states, new_states, strict=True)):
        change = ((new - old).norm() / old.norm()).item()
        name = str(layer) if layer < len(before.site("resid_pre")) else "end"
        sign = "[red]drifted[/]" if change > ALARM else "[green]same[/]"
        table.add_row(name, f"{old.norm(dim=-1).mean():.3f}", f"{new.norm(dim=-1).mean():.3f}", f"{change:.4f}", sign)
    Console().print(table)


if __name__ == "__main__":
    main()
