"""What is stored is, bit for bit, what the model itself gives out: every family, every float type."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.native_backend, pytest.mark.hf]

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

# transformers 4 runs Qwen2-MoE's attention inside its class, and computes the top-k outside the router.
OLD = int(transformers.__version__.split(".")[0]) < 5
FAMILIES = ("gpt2", "llama", "qwen2", "qwen3", *([] if OLD else ["qwen2_moe"]), "qwen3_moe")
TYPES = ("float32", "bfloat16", "float16")
PADDING = (3, 0, 1)


def generate(model: Any, batch: dict[str, Any], **more: Any) -> Any:
    wanted = {"output_hidden_states": True, "output_attentions": True, "output_logits": True}
    return model.generate(
        **batch, max_new_tokens=5, do_sample=False, eos_token_id=60, return_dict_in_generate=True, **wanted, **more
    )


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", FAMILIES)
def test_hidden_states_attentions_and_logits_of_generate(  # noqa: PLR0917 - fixtures
    kind: str, dtype: str, build_model, padded_batch, memory_store, read_stored, group_rows, to_tensor, same_bits
) -> None:
    import monitoring

    model = build_model(kind, dtype=dtype)
    plain = generate(model, padded_batch)
    with monitoring.watch(model, select="hf-only,token-ids", store=memory_store, raise_on_loss=True) as watch:
        output = generate(model, padded_batch)
    assert torch.equal(plain.sequences, output.sequences)
    assert all(same_bits(a, b) for a, b in zip(plain.logits, output.logits, strict=True))
    assert all(step.isfinite().all() for step in output.logits)
    groups = group_rows(read_stored(memory_store, watch.run_id))
    layers = model.config.num_hidden_layers
    for row, padding in enumerate(PADDING):
        name = f"g0.r{row}"
        for step, states in enumerate(output.hidden_states):
            skip = padding if step == 0 else 0
            for layer in range(layers):
                assert same_bits(to_tensor(groups[name, "resid_pre", layer][step]), states[layer][row, skip:])
                pattern = output.attentions[step][layer][row][:, skip:]
                assert same_bits(to_tensor(groups[name, "pattern", layer][step]), pattern)
            assert same_bits(to_tensor(groups[name, "final_ln", -1][step]), states[layers][row, skip:])
            assert same_bits(to_tensor(groups[name, "final_logits", -1][step])[0].float(), output.logits[step][row])
        tokens = torch.cat([to_tensor(one) for one in groups[name, "token_ids", -1]])
        assert tokens.tolist() == output.sequences[row, padding:-1].tolist()
    assert watch.stats().balanced
    assert watch.stats().lost == 0


@pytest.mark.parametrize("kind", FAMILIES)
def test_every_site_relates_to_the_others_as_the_architecture_says(  # noqa: PLR0917 - fixtures
    kind: str, build_model, padded_batch, memory_store, read_stored, group_rows, to_tensor, same_bits
) -> None:
    import monitoring

    model = build_model(kind)
    select = [site for site in EVERY_SITE if has_site(kind, site)]
    with (
        monitoring.watch(model, select=select, store=memory_store, rotary="after", raise_on_loss=True) as watch,
        torch.no_grad(),
    ):
        model(**padded_batch, position_ids=positions(padded_batch))
    groups = group_rows(read_stored(memory_store, watch.run_id))

    def at(site: str, layer: int = -1) -> Any:
        [row] = groups[f"f0.r{one}", site, layer]
        return to_tensor(row)

    layers, heads = model.config.num_hidden_layers, model.config.num_attention_heads
    for one, padding in enumerate(PADDING):
        residual = at("embed") + at("pos_embed") if kind == "gpt2" else at("embed")
        for layer in range(layers):
            assert same_bits(at("resid_pre", layer), residual)
            assert same_bits(at("resid_mid", layer), at("attn_out", layer) + residual)
            assert same_bits(at("mlp_in", layer), at("ln2", layer))
            residual = at("resid_mid", layer) + at("mlp_out", layer)
            q, k, v = (at(site, layer) for site in "qkv")
            assert q.shape == (5 - padding, heads, model.config.hidden_size // heads)
            repeat = heads // v.shape[1]
            k, v = k.repeat_interleave(repeat, dim=1), v.repeat_interleave(repeat, dim=1)
            pattern = at("pattern", layer)
            scores = at("attn_scores", layer)
            assert same_bits(scores.softmax(-1, dtype=torch.float32), pattern)
            expected = torch.einsum("qhd,khd->hqk", q, k) * q.shape[-1] ** -0.5
            causal = torch.ones(5 - padding, 5 - padding).tril().bool()
            torch.testing.assert_close(scores[:, :, padding:][:, causal], expected[:, causal], rtol=1e-4, atol=1e-4)
            z = torch.einsum("hqk,khd->qhd", pattern[:, :, padding:], v)
            torch.testing.assert_close(at("z", layer), z, rtol=1e-4, atol=1e-4)
            if has_site(kind, "topk_ids"):
                probabilities = at("router_logits", layer).softmax(-1)
                weights, ids = probabilities.topk(2, dim=-1)
                assert torch.equal(at("topk_ids", layer), ids)
                if model.config.norm_topk_prob:
                    weights = weights / weights.sum(-1, keepdim=True)
                torch.testing.assert_close(at("topk_weights", layer), weights)
        assert same_bits(at("resid_final"), residual)
        assert at("final_logits").shape == (5 - padding, 61)
        assert at("token_ids").tolist() == padded_batch["input_ids"][one, padding:].tolist()


EVERY_SITE = (
    "resid_pre", "ln1", "attn_out", "resid_mid", "attn_scores", "pattern", "q", "k", "v", "z", "ln2", "mlp_in",
    "mlp_out", "resid_final", "embed", "pos_embed", "final_ln", "token_ids", "final_logits", "mlp_post",
    "router_logits", "topk_ids", "topk_weights",
)  # fmt: skip


def has_site(kind: str, site: str) -> bool:
    if site in ("router_logits", "topk_ids", "topk_weights"):
        return "moe" in kind and (site == "router_logits" or not OLD)
    if site == "mlp_post":
        return "moe" not in kind
    return kind == "gpt2" or site != "pos_embed"


def positions(batch: dict[str, Any]) -> Any:
    return (batch["attention_mask"].cumsum(-1) - 1).clamp(min=0)
