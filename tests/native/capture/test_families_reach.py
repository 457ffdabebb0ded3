"""Sites out of reach: an error that names the way out, never empty data; and nothing of the model is changed."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.native_backend, pytest.mark.hf]

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

# transformers 4 runs Qwen2-MoE's attention inside its class, out of reach.
OLD = int(transformers.__version__.split(".")[0]) < 5
FAMILIES = ("gpt2", "llama", "qwen2", "qwen3", *([] if OLD else ["qwen2_moe"]), "qwen3_moe")
ROTARY = FAMILIES[1:]


def forward(model: Any, **more: Any) -> Any:
    ids = torch.tensor([[2, 5, 6, 7], [8, 9, 10, 11]])
    mask = (ids != 2).long()
    with torch.no_grad():
        return model(input_ids=ids, attention_mask=mask, position_ids=(mask.cumsum(-1) - 1).clamp(min=0), **more)


@pytest.mark.parametrize("site", ["pattern", "attn_scores", "hf-only", "full"])
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_weights_inside_a_fused_kernel_name_the_way_out(kind, site, build_model, memory_store):
    import monitoring

    model = build_model(kind, attention="sdpa")
    with pytest.raises(monitoring.SiteUnreachable, match="sdpa kernel") as caught:
        monitoring.watch(model, select=site, store=memory_store).open()
    assert 'attn_implementation="eager"' in str(caught.value)
    assert not model._forward_pre_hooks


def test_scores_that_the_model_computes_elsewhere_name_the_way_out(build_model, memory_store):
    import monitoring

    model = build_model("gpt2", reorder_and_upcast_attn=True)
    with pytest.raises(monitoring.SiteUnreachable, match="reorder_and_upcast_attn=False"):
        monitoring.watch(model, select="attn_scores", store=memory_store).open()


def test_the_inside_of_experts_is_named_as_lacking(build_model, memory_store):
    import monitoring

    watch = monitoring.watch(build_model("qwen3_moe"), select="mlp_out,mlp_post", store=memory_store)
    with pytest.warns(monitoring.CaptureWarning, match="lacks mlp_post"):
        watch.open()
    watch.close()


if OLD:

    def test_attention_inside_its_class_names_the_way_out(build_model, memory_store):
        import monitoring

        with pytest.raises(monitoring.SiteUnreachable, match="use transformers 5"):
            monitoring.watch(build_model("qwen2_moe"), select="pattern", store=memory_store).open()


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", ROTARY)
def test_looking_inside_attention_leaves_logits_bit_equal(kind, attention, build_model, memory_store, same_bits):
    import monitoring

    model = build_model(kind, attention=attention)
    select = "q,k,v,attn_scores" if attention == "eager" else "q,k,v"
    for cache in (False, True):
        plain = forward(model, use_cache=cache)
        with monitoring.watch(model, select=select, store=memory_store, rotary="after", raise_on_loss=True) as watch:
            seen = forward(model, use_cache=cache)
        assert same_bits(plain.logits, seen.logits)
        assert not watch.stats().errors
    assert model.config._attn_implementation == attention


@pytest.mark.parametrize("kind", ROTARY)
def test_rotary_positions_turn_q_and_k_but_keep_their_lengths(kind, build_model, read_stored, group_rows, to_tensor):
    import monitoring

    model = build_model(kind)
    found = {}
    for when in ("before", "after"):
        store = f"memory:rotary_{when}"
        with monitoring.watch(model, select="q,k,v", store=store, rotary=when) as watch:
            forward(model)
        found[when] = {key: to_tensor(rows[0]) for key, rows in group_rows(read_stored(store, watch.run_id)).items()}
    for key, before in found["before"].items():
        after = found["after"][key]
        assert before.shape == after.shape
        if key[1] == "v":
            assert torch.equal(before, after)
            continue
        torch.testing.assert_close(before.norm(dim=-1), after.norm(dim=-1), rtol=1e-4, atol=1e-4)
        assert torch.equal(before[0], after[0])  # position 0 is not turned
        assert not torch.allclose(before[1:], after[1:])


def test_a_tap_without_its_mask_function_would_move_the_logits(build_model):
    """Why the mask function is registered too: under a name without one, the model gets no mask at all."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    from monitoring.hooks.attention import AttentionTap
    from monitoring.hooks.points import Source

    model = build_model("llama")
    plain = forward(model).logits
    tap = AttentionTap(model.config, {0: {Source.QUERY: lambda _: None}})
    try:
        assert torch.equal(forward(model).logits, plain)
        del type(ALL_MASK_ATTENTION_FUNCTIONS)._global_mapping[tap.name]
        assert not torch.allclose(forward(model).logits, plain, atol=1e-3)
    finally:
        tap.remove()
    assert tap.name not in type(ALL_ATTENTION_FUNCTIONS)._global_mapping
    assert torch.equal(forward(model).logits, plain)


@pytest.mark.parametrize("order", ["inner first", "outer first"])
def test_taps_stack_and_come_off_in_any_order(order, build_model, read_stored):
    import monitoring

    model = build_model("llama")
    outer = monitoring.watch(model, select="q", store="memory:tap_outer", rotary="after", raise_on_loss=True)
    inner = monitoring.watch(
        model, select="k,attn_scores", store="memory:tap_inner", rotary="after", raise_on_loss=True
    )
    outer.open()
    inner.open()
    forward(model)
    first, second = (inner, outer) if order == "inner first" else (outer, inner)
    first.close()
    forward(model)
    second.close()
    assert model.config._attn_implementation == "eager"
    passes = (2, 1) if order == "inner first" else (1, 2)
    # Two layers of two requests each; the inner watch has two sites.
    assert len(read_stored("memory:tap_outer", outer.run_id)) == passes[0] * 2 * 2
    assert len(read_stored("memory:tap_inner", inner.run_id)) == passes[1] * 2 * 2 * 2


def test_generate_is_the_models_own_again_afterwards(build_model, memory_store):
    import monitoring

    model = build_model("gpt2")
    first = monitoring.watch(model, select="logits", store=memory_store)
    second = monitoring.watch(model, select="logits", store="memory:second_generate")
    first.open()
    second.open()
    assert "generate" in model.__dict__
    first.close()
    second.close()
    assert "generate" not in model.__dict__
    assert model.generate(torch.tensor([[5]]), max_new_tokens=2, do_sample=False, eos_token_id=None).shape == (1, 3)


def test_a_decoder_without_a_head_and_a_decoder_called_alone(build_model, read_stored):
    import monitoring

    model = build_model("llama")
    with monitoring.watch(model.model, select="hidden-states", store="memory:headless") as watch:
        forward(model.model)
    assert len(read_stored("memory:headless", watch.run_id)) == 6
    with monitoring.watch(
        model, select="hidden-states,token-ids", store="memory:inner_call", raise_on_loss=True
    ) as watch:
        forward(model.model)
        forward(model)
    rows = read_stored("memory:inner_call", watch.run_id)
    assert {row.request_id for row in rows} == {"f0.r0", "f0.r1", "f1.r0", "f1.r1"}
    assert len(rows) == 2 * 2 * 4


def test_embeddings_in_place_of_tokens(build_model, read_stored, to_tensor, same_bits):
    import monitoring

    model = build_model("llama")
    embeds = torch.randn(2, 3, 32)
    watch = monitoring.watch(model, select="resid_pre", store="memory:embeds", raise_on_loss=True)
    with watch, torch.no_grad():
        model(inputs_embeds=embeds)
    rows = [row for row in read_stored("memory:embeds", watch.run_id) if row.layer == 0]
    assert [row.token_end for row in rows] == [3, 3]
    assert same_bits(to_tensor(rows[1]), embeds[1])


def test_an_unknown_language_model_gives_tokens_embeddings_and_logits(memory_store, read_stored):
    import monitoring

    config = transformers.GPTNeoXConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=32, bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    model = transformers.GPTNeoXForCausalLM(config).eval()
    with monitoring.watch(model, select="embed,logits,token-ids,modules:*.mlp", store=memory_store) as watch:
        forward(model)
    found = {row.site for row in read_stored(memory_store, watch.run_id)}
    assert found == {"embed", "final_logits", "token_ids", "module:gpt_neox.layers.0.mlp"}
