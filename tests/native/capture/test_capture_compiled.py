"""Under torch.compile: one graph, no breaks, and every record that eager mode gives."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

pytestmark = [pytest.mark.native_backend, pytest.mark.hf]

torch = pytest.importorskip("torch")

SELECT = {
    "gpt2": "hidden-states,logits,token-ids,q,pattern,mlp_post",
    "llama": "hidden-states,logits,token-ids,q,k,v,z,pattern,attn_scores",
    "qwen3_moe": "hidden-states,router_logits,topk_ids,topk_weights",
}


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def inputs() -> dict[str, Any]:
    ids = torch.tensor([[2, 2, 5, 6, 7], [8, 9, 10, 11, 12]])
    mask = (ids != 2).long()
    return {"input_ids": ids, "attention_mask": mask, "position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}


def counts(rows: Any) -> Counter[tuple[str, str, int]]:
    return Counter((row.request_id, row.site, row.layer) for row in rows)


def breaks() -> int:
    return sum(torch._dynamo.utils.counters["graph_break"].values())


@pytest.mark.parametrize("cache", [False, True])
@pytest.mark.parametrize("kind", ["gpt2", "llama", "qwen3_moe"])
def test_one_graph_records_what_eager_records(kind, cache, build_model, read_stored, to_tensor):
    import monitoring

    model = build_model(kind)
    stores = {"eager": "memory:eager_twin", "compiled": "memory:compiled_twin"}
    runs = {}
    for name, store in stores.items():
        with monitoring.watch(model, select=SELECT[kind], store=store, rotary="after", raise_on_loss=True) as watch:
            # aot_eager traces and functionalizes as inductor does, without its minutes of code generation.
            run = model if name == "eager" else torch.compile(model, fullgraph=True, backend="aot_eager")
            with torch.no_grad():
                for _ in range(3):
                    run(**inputs(), use_cache=cache)
        runs[name] = read_stored(store, watch.run_id)
        assert not watch.stats().errors
    assert breaks() == 0
    assert counts(runs["compiled"]) == counts(runs["eager"])
    eager = {(row.request_id, row.site, row.layer): row for row in runs["eager"]}
    for row in runs["compiled"]:
        twin = eager[row.request_id, row.site, row.layer]
        assert (row.token_start, row.token_end, row.shape, row.dtype) == (
            twin.token_start, twin.token_end, twin.shape, twin.dtype,
        )  # fmt: skip
        torch.testing.assert_close(to_tensor(row), to_tensor(twin), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # inductor's own
@pytest.mark.parametrize("training", [False, True])
def test_inductor_neither_deletes_nor_reorders_records(training, build_model, read_stored, to_tensor):
    import monitoring

    model = build_model("gpt2", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0).train(training)
    with monitoring.watch(
        model, select="hidden-states,logits,mlp_post", store="memory:inductor", raise_on_loss=True
    ) as watch:
        compiled = torch.compile(model, fullgraph=True)
        for _ in range(2):
            with torch.set_grad_enabled(training):
                output = compiled(**inputs(), use_cache=False)
            if training:
                output.logits.float().logsumexp(-1).sum().backward()
    assert breaks() == 0
    rows = read_stored("memory:inductor", watch.run_id)
    layers = [(site, layer) for site in ("resid_pre", "mlp_post") for layer in range(2)]
    points = [*layers, ("final_ln", -1), ("final_logits", -1)]
    expected = {(f"f{step}.r{row}", *point): 1 for step in range(2) for row in range(2) for point in points}
    assert counts(rows) == expected
    order = [row.site for row in rows if row.request_id == "f0.r1"]
    assert order == ["resid_pre", "mlp_post", "resid_pre", "mlp_post", "final_ln", "final_logits"]
    [logits] = [row for row in rows if (row.request_id, row.site) == ("f1.r1", "final_logits")]
    assert torch.equal(to_tensor(logits), output.logits[1].detach())


def test_gradients_are_the_unwatched_models(build_model):
    import monitoring

    model = build_model("llama").train()

    def gradient(run: Any) -> Any:
        model.zero_grad()
        run(**inputs(), use_cache=False).logits.float().logsumexp(-1).sum().backward()
        return model.model.layers[0].mlp.up_proj.weight.grad.clone()

    plain = gradient(model)
    with monitoring.watch(model, select="hidden-states,mlp_post,q", store="memory:gradients") as watch:
        watched = gradient(model)
        compiled = gradient(torch.compile(model, fullgraph=True, backend="aot_eager"))
    assert torch.equal(plain, watched)
    torch.testing.assert_close(plain, compiled)
    assert watch.stats().lost == 0
    assert breaks() == 0


class Checkpointed(torch.nn.Module):
    """Forgets its inner activations and computes them again in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4))

    def forward(self, x: Any) -> Any:
        return torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False)


def test_checkpointing_computes_again_but_records_once(read_stored):
    import monitoring

    model = Checkpointed().train()
    with monitoring.watch(model, select="modules:inner.*", store="memory:recomputed", raise_on_loss=True) as watch:
        model(torch.randn(2, 4, requires_grad=True)).sum().backward()
    rows = read_stored("memory:recomputed", watch.run_id)
    assert [(row.site, row.call) for row in rows] == [(f"module:inner.{at}", 0) for at in range(3)]
    assert watch.stats().recomputed > 0


def test_a_graph_that_outlives_its_watch_records_nothing(build_model, read_stored):
    import monitoring

    model = build_model("gpt2")
    with monitoring.watch(model, select="final_ln", store="memory:outlived") as watch, torch.no_grad():
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        compiled(**inputs(), use_cache=False)
    with torch.no_grad():
        compiled(**inputs(), use_cache=False)
    assert len(read_stored("memory:outlived", watch.run_id)) == 2


def test_a_call_that_returns_nothing_and_changes_nothing_would_have_been_deleted():
    """The operators' schemas are what keeps them: both claim to change the token."""
    from monitoring import ops

    for operator in (ops.record, ops.step):
        changed = [argument.name for argument in operator._schema.arguments if argument.alias_info is not None]
        assert changed == ["token"]
        assert operator._schema.is_mutable
        assert not operator._schema.returns
