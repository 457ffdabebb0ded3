"""Draw where each attention head looks while the model writes.

    python examples/attention_map.py [--store attention-store] [--out attention.png]

A small Llama generates from a prompt of bytes; the attention pattern of every
layer and head is stored, read back and drawn, one panel per head.
"""

from __future__ import annotations

import argparse
from typing import Any

import matplotlib as mpl
import torch
import transformers

import monitoring

mpl.use("Agg")

PROMPT = "the gate, the key, the gate, the key"


def main() -> None:
    """Generate, read back, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", default="attention-store")
    parser.add_argument("--out", default="attention.png")
    options = parser.parse_args()
    torch.manual_seed(5)
    config = transformers.LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    # Weights that a fused kernel keeps to itself cannot be captured: the eager implementation gives them out.
    model.set_attn_implementation("eager")
    with torch.no_grad():
        for layer in model.model.layers:  # random heads look everywhere alike; this makes them choose
            layer.self_attn.q_proj.weight.mul_(80)
    ids = torch.tensor([list(PROMPT.encode())])
    with monitoring.watch(model, select="attentions,token-ids", store=options.store, raise_on_loss=True) as watch:
        model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False)
    draw(monitoring.read(options.store, run=watch.run_id), options.out)
    print(f"{watch.stats()}\nwrote {options.out}")


def draw(internals: Any, path: str) -> None:
    """Draw one panel per layer and head; rows are queries, columns the keys they look at."""
    import matplotlib.pyplot as plt

    layers = internals.attentions
    heads = layers[0].shape[1]
    figure, axes = plt.subplots(len(layers), heads, figsize=(3 * heads, 3.2 * len(layers)), layout="constrained")
    for layer, pattern in enumerate(layers):
        for head in range(heads):
            axes[layer][head].imshow(pattern[0, head].float().numpy(), cmap="magma", vmin=0)
            axes[layer][head].set(title=f"layer {layer}, head {head}", xticks=[], yticks=[])
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main()
