"""The whole trip through every engine: a model that generates, watched, stored, read back bit for bit."""

from __future__ import annotations

from typing import Any

import pytest

import monitoring

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("monitoring._native", reason="the native library is not built")

pytestmark = [pytest.mark.native_backend, pytest.mark.hf]


def same(first: Any, second: Any) -> bool:
    return first.dtype == second.dtype and torch.equal(first, second)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_generate_with_padding_into_every_store(place: Any, dtype: str) -> None:
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=59, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).to(getattr(torch, dtype)).eval()
    model.set_attn_implementation("eager")
    inputs = {
        "input_ids": torch.tensor([[0, 0, 5, 6, 7], [3, 4, 5, 6, 8]]),
        "attention_mask": torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]]),
    }
    with monitoring.watch(model, select="hidden-states,pattern,logits,token-ids", store=place.url) as watch:
        out = model.generate(
            **inputs, max_new_tokens=5, min_new_tokens=5, do_sample=False, pad_token_id=0, output_hidden_states=True,
            output_attentions=True, output_logits=True, return_dict_in_generate=True,
        )  # fmt: skip
    stats = watch.stats()
    assert stats.balanced
    assert (stats.lost, stats.written) == (0, stats.accepted)
    internals = monitoring.read(place.url, run=watch.run_id)
    mask = internals.token_mask
    assert mask.tolist() == [[False] * 2 + [True] * 7, [True] * 9]
    for layer, hidden in enumerate(internals.hidden_states):
        reference = torch.cat([step[layer] for step in out.hidden_states], dim=1)
        assert same(hidden[mask], reference[mask])
    assert len(internals.hidden_states) == 3
    for layer, pattern in enumerate(internals.attentions):
        columns = [torch.nn.functional.pad(step[layer], (0, 9 - step[layer].shape[-1])) for step in out.attentions]
        reference = torch.cat(columns, dim=2)
        real = mask[:, None, :, None] & mask[:, None, None, :]
        assert same(pattern, torch.where(real, reference, torch.zeros((), dtype=reference.dtype)))
    assert same(internals.logits, torch.stack(out.logits, dim=1).to(internals.logits.dtype))
    assert same(internals.token_ids[mask], out.sequences[:, :-1][mask])


def test_any_module_into_every_store(place: Any) -> None:
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3))
    seen: dict[str, list[Any]] = {"0": [], "2": []}
    for name, outputs in seen.items():
        model[int(name)].register_forward_hook(
            lambda _m, _a, output, into=outputs: into.append(output.detach().clone())
        )
    with monitoring.watch(model, select="modules:[02]", store=place.url) as watch:
        for rows in (1, 4, 2):
            model(torch.randn(rows, 8))
    internals = monitoring.read(place.url, run=watch.run_id)
    assert set(internals.modules) == {"0", "2"}
    for name, outputs in seen.items():
        assert len(internals.modules[name]) == 3
        assert all(map(same, internals.modules[name], outputs))
