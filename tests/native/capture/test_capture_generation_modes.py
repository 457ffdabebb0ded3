"""Every way of generating: rows carry the right request and tokens, judged by a run without cache."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = [pytest.mark.native_backend, pytest.mark.hf]

torch = pytest.importorskip("torch")

ENDS = {"g0.r0": 3, "g0.r1": 2, "g0.r2": 3}
NO_END = {"do_sample": False, "eos_token_id": 60, "pad_token_id": 2}


@pytest.fixture(scope="module")
def llama(request):
    return request.getfixturevalue("build_llama")


@pytest.fixture(scope="module")
def build_llama():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=96, bos_token_id=0, eos_token_id=60, pad_token_id=2,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    model.config._attn_implementation = "eager"
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)
    return model


def reference(model: Any, tokens: list[int]) -> Any:
    """Give the residual stream before layer 1 of one sequence, computed alone and at once."""
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False, output_hidden_states=True).hidden_states[1][0]


def captured(groups: dict[Any, Any], to_tensor: Any, name: str) -> tuple[list[int], Any]:
    """Give one request's token ids and its residual stream before layer 1, in token order."""
    ids = torch.cat([to_tensor(row) for row in groups[name, "token_ids", -1]]).tolist()
    return ids, torch.cat([to_tensor(row) for row in groups[name, "resid_pre", 1]])


def check(model: Any, groups: dict[Any, Any], to_tensor: Any, name: str, tokens: list[int]) -> None:
    """Compare a request with its own tokens' run without cache."""
    ids, states = captured(groups, to_tensor, name)
    assert ids == tokens
    torch.testing.assert_close(states, reference(model, tokens), rtol=1e-3, atol=1e-4)


def left_pad(prompts: list[list[int]]) -> dict[str, Any]:
    width = max(map(len, prompts))
    ids = torch.tensor([[2] * (width - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    return {"input_ids": ids, "attention_mask": mask}


prompt_lists = st.lists(st.lists(st.integers(3, 59), min_size=1, max_size=7), min_size=1, max_size=3)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    prompts=prompt_lists, new=st.integers(1, 5), chunk=st.none() | st.integers(1, 8), cache=st.booleans(),
    sampled=st.booleans(),
)  # fmt: skip
def test_padding_chunks_and_caches_give_each_request_its_own_tokens(  # noqa: PLR0917 - fixtures
    prompts, new, chunk, cache, sampled, llama, read_stored, group_rows, to_tensor
):
    import monitoring

    more: dict[str, Any] = {"use_cache": cache}
    if chunk is not None and cache:
        more["prefill_chunk_size"] = chunk
    if sampled:
        more |= {"do_sample": True, "top_k": 0}
    store = "memory:generation_modes"
    with monitoring.watch(llama, select="resid_pre,token-ids", store=store, raise_on_loss=True) as watch:
        output = llama.generate(**left_pad(prompts), max_new_tokens=new, **{**NO_END, **more})
    assert not watch.stats().errors
    groups = group_rows(read_stored(store, watch.run_id))
    width = max(map(len, prompts))
    for row, prompt in enumerate(prompts):
        made = output[row, width:].tolist()
        kept = [*made[: made.index(60)], 60] if 60 in made else made
        tokens = [*prompt, *kept]
        # The state of the last generated token never exists, unless other rows kept the batch going.
        computed = groups[f"g0.r{row}", "token_ids", -1][-1].token_end
        assert computed in (len(tokens) - 1, len(tokens))
        check(llama, groups, to_tensor, f"g0.r{row}", tokens[:computed])


def test_rows_that_end_early_are_not_recorded_beyond_their_end(llama, read_stored, group_rows, to_tensor):
    import monitoring

    batch = left_pad([[5, 6, 7], [8, 9], [10, 11, 12]])
    free = llama.generate(**batch, max_new_tokens=8, do_sample=False, eos_token_id=None, pad_token_id=2)
    end = int(free[0, 3 + 2])  # what row 0 says third becomes the end token
    store = "memory:ends"
    with monitoring.watch(llama, select="resid_pre,token-ids", store=store) as watch:
        output = llama.generate(**batch, max_new_tokens=8, do_sample=False, eos_token_id=end, pad_token_id=2)
    groups = group_rows(read_stored(store, watch.run_id))
    for row, prompt in enumerate(([5, 6, 7], [8, 9], [10, 11, 12])):
        made = output[row, 3:].tolist()
        real = made[: made.index(end) + 1] if end in made else made
        ids, _ = captured(groups, to_tensor, f"g0.r{row}")
        assert ids == [*prompt, *real][: len(ids)]
        assert len(ids) >= len(prompt) + len(real) - 1
        check(llama, groups, to_tensor, f"g0.r{row}", ids)
    assert len(captured(groups, to_tensor, "g0.r0")[0]) <= 3 + 3


def test_beams_are_rows_of_their_own_and_equal_the_models_view(llama, read_stored, group_rows, to_tensor, same_bits):
    import monitoring

    store = "memory:beams"
    wanted = {"output_hidden_states": True, "return_dict_in_generate": True}
    with monitoring.watch(llama, select="resid_pre", store=store, raise_on_loss=True) as watch:
        output = llama.generate(**left_pad([[5, 6, 7, 8], [9, 10]]), num_beams=3, max_new_tokens=5, **NO_END, **wanted)
    groups = group_rows(read_stored(store, watch.run_id))
    padding = [0, 0, 0, 2, 2, 2]
    for step, states in enumerate(output.hidden_states):
        assert states[1].shape[0] == 6
        for row in range(6):
            stored = groups[f"g0.r{row}", "resid_pre", 1][step]
            skip = padding[row] if step == 0 else 0
            assert same_bits(to_tensor(stored), states[1][row, skip:])


def test_named_requests_with_return_sequences(llama, read_stored, group_rows):
    import monitoring

    store = "memory:copies"
    with monitoring.watch(llama, select="token-ids", store=store) as watch, watch.requests(["left", "right"]):
        llama.generate(
            **left_pad([[5, 6], [7]]), num_return_sequences=2, max_new_tokens=3, pad_token_id=2, do_sample=True,
            eos_token_id=None,
        )  # fmt: skip
    names = {name for name, _, _ in group_rows(read_stored(store, watch.run_id))}
    assert names == {"left.s0", "left.s1", "right.s0", "right.s1"}


def test_two_calls_are_two_sets_of_requests(llama, read_stored, group_rows, to_tensor):
    import monitoring

    store = "memory:calls"
    with monitoring.watch(llama, select="resid_pre,token-ids", store=store) as watch:
        first = llama.generate(**left_pad([[5, 6], [7, 8, 9]]), max_new_tokens=3, **NO_END)
        second = llama.generate(**left_pad([[15, 16, 17]]), max_new_tokens=2, **NO_END)
        with watch.requests(["mine"]):
            llama.generate(**left_pad([[20]]), max_new_tokens=2, **NO_END)
            llama.generate(**left_pad([[21]]), max_new_tokens=2, **NO_END)
    groups = group_rows(read_stored(store, watch.run_id))
    assert {name for name, _, _ in groups} == {"g0.r0", "g0.r1", "g1.r0", "mine", "mine#2"}
    check(llama, groups, to_tensor, "g0.r0", first[0, 1:-1].tolist())
    check(llama, groups, to_tensor, "g0.r1", first[1, :-1].tolist())
    check(llama, groups, to_tensor, "g1.r0", second[0, :-1].tolist())
    assert captured(groups, to_tensor, "mine#2")[0][0] == 21


def test_a_loop_of_ones_own_follows_its_cache(llama, read_stored, group_rows, to_tensor):
    import monitoring

    store = "memory:own_loop"
    tokens = [5, 6, 7, 30, 31, 32]
    with monitoring.watch(llama, select="resid_pre,token-ids", store=store) as watch, torch.no_grad():
        out = llama(torch.tensor([tokens[:3]]), use_cache=True)
        cache = getattr(out, "cache", None) or out.past_key_values
        name = "cache" if getattr(out, "cache", None) is not None else "past_key_values"
        other = llama(torch.tensor([[9, 9]]), use_cache=True)
        for token in tokens[3:]:
            llama(torch.tensor([[token]]), use_cache=True, **{name: cache})
        del other
    groups = group_rows(read_stored(store, watch.run_id))
    assert {request for request, _, _ in groups} == {"f0.r0", "f1.r0"}
    check(llama, groups, to_tensor, "f0.r0", tokens)


def test_a_batch_whose_rows_come_go_and_move_is_followed_by_name(llama, read_stored, group_rows, to_tensor):
    from transformers import DynamicCache

    import monitoring

    store = "memory:moving"
    sequences = {"a": [5, 6, 7, 8], "b": [15, 16, 17, 18], "c": [25, 26, 27, 28]}
    name = "cache" if "cache" in llama.forward.__code__.co_varnames else cache_keyword(llama)
    with monitoring.watch(llama, select="resid_pre,token-ids", store=store) as watch, torch.no_grad():
        cache = DynamicCache(config=llama.config)
        with watch.requests(["a", "b", "c"]):
            llama(torch.tensor([line[:2] for line in sequences.values()]), use_cache=True, **{name: cache})
        cache.reorder_cache(torch.tensor([2, 0]))  # b leaves, c and a change places
        with watch.requests(["c", "a"]):
            llama(torch.tensor([[27], [7]]), use_cache=True, **{name: cache})
            llama(torch.tensor([[28], [8]]), use_cache=True, **{name: cache})
    groups = group_rows(read_stored(store, watch.run_id))
    assert {request for request, _, _ in groups} == {"a", "b", "c"}
    check(llama, groups, to_tensor, "a", sequences["a"])
    check(llama, groups, to_tensor, "b", sequences["b"][:2])
    check(llama, groups, to_tensor, "c", sequences["c"])


def cache_keyword(model: Any) -> str:
    import inspect

    names = inspect.signature(model.forward).parameters
    return "cache" if "cache" in names else "past_key_values"


def test_watching_begins_in_mid_sequence(llama, read_stored, group_rows, to_tensor):
    from transformers import DynamicCache

    import monitoring

    store = "memory:middle"
    name = cache_keyword(llama)
    cache = DynamicCache(config=llama.config)
    with torch.no_grad():
        llama(torch.tensor([[5, 6, 7]]), use_cache=True, **{name: cache})
        with monitoring.watch(llama, select="resid_pre,token-ids", store=store) as watch:
            llama(torch.tensor([[8]]), use_cache=True, **{name: cache})
    [row] = [row for row in read_stored(store, watch.run_id) if (row.site, row.layer) == ("resid_pre", 1)]
    assert (row.token_start, row.token_end) == (3, 4)
    torch.testing.assert_close(to_tensor(row), reference(llama, [5, 6, 7, 8])[3:], rtol=1e-3, atol=1e-4)


def test_a_chat_that_goes_on_with_its_cache_stays_one_request(llama, read_stored, group_rows, to_tensor):
    import monitoring

    store = "memory:chat"
    name = cache_keyword(llama)
    with monitoring.watch(llama, select="resid_pre,token-ids", store=store) as watch:
        first = llama.generate(torch.tensor([[5, 6, 7]]), max_new_tokens=3, return_dict_in_generate=True, **NO_END)
        cache = getattr(first, name)
        longer = torch.cat([first.sequences, torch.tensor([[40, 41]])], dim=1)
        second = llama.generate(longer, max_new_tokens=2, **{name: cache}, **NO_END)
    groups = group_rows(read_stored(store, watch.run_id))
    assert {request for request, _, _ in groups} == {"g0.r0"}
    check(llama, groups, to_tensor, "g0.r0", second[0, :-1].tolist())


def test_right_padded_training_batches_keep_their_real_tokens(llama, read_stored, group_rows, to_tensor):
    import monitoring

    store = "memory:right"
    ids = torch.tensor([[5, 6, 7, 2, 2], [8, 9, 10, 11, 12]])
    with monitoring.watch(llama, select="resid_pre,token-ids,logits", store=store) as watch, torch.no_grad():
        llama(input_ids=ids, attention_mask=(ids != 2).long(), use_cache=False)
    groups = group_rows(read_stored(store, watch.run_id))
    check(llama, groups, to_tensor, "f0.r0", [5, 6, 7])
    check(llama, groups, to_tensor, "f0.r1", [8, 9, 10, 11, 12])
    assert to_tensor(groups["f0.r0", "final_logits", -1][0]).shape == (3, 61)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ({"phase": "prefill"}, {"g0.r0": [(0, 3)], "g0.r1": [(0, 2)], "g0.r2": [(0, 3)]}),
        ({"phase": "decode"}, {name: [(end, end + 1), (end + 1, end + 2)] for name, end in ENDS.items()}),
        ({"every_requests": 2}, {name: [(0, 3), (3, 4), (4, 5)] for name in ("g0.r0", "g0.r2")}),
        ({"every_steps": 2}, {name: [(0, end), (end + 1, end + 2)] for name, end in ENDS.items()}),
    ],
)  # fmt: skip
def test_a_schedule_leaves_out_what_it_says_and_counts_no_loss(schedule, expected, llama, read_stored):
    import monitoring

    policy = monitoring.Policy(schedule=monitoring.Schedule(**schedule))
    store = "memory:scheduled"
    with monitoring.watch(llama, select="final_ln", store=store, policy=policy, raise_on_loss=True) as watch:
        llama.generate(**left_pad([[5, 6, 7], [8, 9], [10, 11, 12]]), max_new_tokens=3, do_sample=False,
                       eos_token_id=None, pad_token_id=2)  # fmt: skip
    found: dict[str, list[tuple[int, int]]] = {}
    for row in read_stored(store, watch.run_id):
        found.setdefault(row.request_id, []).append((row.token_start, row.token_end))
    assert found == expected
    # What was never asked for is not missing.
    monitoring.read(store, run=watch.run_id)


def test_a_static_cache(llama, read_stored, group_rows, to_tensor):
    import monitoring

    store = "memory:static"
    with monitoring.watch(llama, select="resid_pre,token-ids,q,k", store=store, rotary="after") as watch:
        output = llama.generate(**left_pad([[5, 6, 7], [8]]), max_new_tokens=4, cache_implementation="static", **NO_END)
    assert not watch.stats().errors
    groups = group_rows(read_stored(store, watch.run_id))
    check(llama, groups, to_tensor, "g0.r0", output[0, :-1].tolist())
    check(llama, groups, to_tensor, "g0.r1", output[1, 2:-1].tolist())
    assert to_tensor(groups["g0.r0", "k", 0][0]).shape == (3, 2, 8)


def test_assisted_generation_takes_rejected_tokens_back(llama, build_model, read_stored, to_tensor):
    import monitoring

    helper = build_model("llama", layers=1)
    store = "memory:assisted"
    with monitoring.watch(llama, select="resid_pre,token-ids", store=store) as watch:
        output = llama.generate(
            torch.tensor([[5, 6, 7]]), assistant_model=helper, max_new_tokens=8, num_assistant_tokens=3, **NO_END
        )
    assert not watch.stats().errors
    # The newest pass over a token is the one that counts.
    newest: dict[int, int] = {}
    for row in read_stored(store, watch.run_id):
        if row.site == "token_ids":
            for at, token in enumerate(to_tensor(row).tolist()):
                newest[row.token_start + at] = token
    kept = output[0].tolist()
    assert [newest[at] for at in range(len(kept) - 1)] == kept[:-1]
