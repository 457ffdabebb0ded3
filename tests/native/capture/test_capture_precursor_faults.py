"""What went wrong in systems like this one, one test each: it must not come back."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

pytestmark = [pytest.mark.native_backend, pytest.mark.hf]

torch = pytest.importorskip("torch")


def test_concurrent_requests_never_get_another_requests_activations(build_model, read_stored, to_tensor):
    """A scheduler's order was once taken for the batch's order: most rows belonged to somebody else."""
    import monitoring

    model = build_model("llama")
    prompts = [[5, 6, 7], [15, 16], [25, 26, 27, 28], [35]]
    outputs: dict[int, list[int]] = {}
    barrier = threading.Barrier(len(prompts))

    def serve(number: int, watch: Any) -> None:
        ids = torch.tensor([prompts[number]])
        barrier.wait()
        with watch.requests([f"user{number}"]):
            outputs[number] = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False, eos_token_id=None
            )[0].tolist()

    with monitoring.watch(model, select="resid_pre,token-ids", store="memory:serving", raise_on_loss=True) as watch:
        threads = [threading.Thread(target=serve, args=(number, watch)) for number in range(len(prompts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    rows = read_stored("memory:serving", watch.run_id)
    for number, tokens in outputs.items():
        mine = sorted((row for row in rows if row.request_id == f"user{number}"), key=lambda row: row.token_start)
        ids = torch.cat([to_tensor(row) for row in mine if row.site == "token_ids"]).tolist()
        assert ids == tokens[:-1]
        with torch.no_grad():
            alone = model(torch.tensor([ids]), output_hidden_states=True, use_cache=False).hidden_states[1][0]
        states = torch.cat([to_tensor(row) for row in mine if (row.site, row.layer) == ("resid_pre", 1)])
        torch.testing.assert_close(states, alone, rtol=1e-3, atol=1e-4)


def test_left_padded_batches_with_attention_sites_are_captured_whole(build_model, padded_batch, read_stored):
    """They once threw in a thread that nobody watched."""
    import monitoring

    model = build_model("gpt2")
    with monitoring.watch(model, select="pattern,attn_scores", store="memory:padded", raise_on_loss=True) as watch:
        model.generate(**padded_batch, max_new_tokens=3, do_sample=False, eos_token_id=60)
    assert not watch.stats().errors
    rows = read_stored("memory:padded", watch.run_id)
    # Two sites, two layers, three requests, three passes.
    assert len(rows) == 2 * 2 * 3 * 3
    monitoring.read("memory:padded", run=watch.run_id)


def test_a_tensor_larger_than_the_ring_is_a_counted_loss_not_a_hang():
    """Its size was once compared with one of three capacities."""
    import monitoring

    model = torch.nn.Identity()
    policy = monitoring.Policy(limits=monitoring.Limits(ring_bytes=1 << 16))
    watch = monitoring.watch(model, select="modules:*", store="memory:oversize", policy=policy)
    watch.open()
    started = time.monotonic()
    model(torch.zeros(1 << 16))
    model(torch.zeros(8))
    assert time.monotonic() - started < 30
    with pytest.warns(monitoring.CaptureWarning, match="oversize"):
        watch.close()
    stats = watch.stats()
    assert stats.losses == {"dropped:oversize": 1}
    assert (stats.accepted, stats.written) == (2, 1)
    with pytest.raises(monitoring.IncompleteRun, match="oversize 1"):
        monitoring.read("memory:oversize", run=watch.run_id)


def test_without_the_native_library_nothing_is_captured_in_silence(monkeypatch):
    """Absent hook ids were once None: selections then captured nothing, without a word."""
    import monitoring
    from monitoring import native

    missing = monitoring.NativeUnavailable("the native library was not built", hint="invoke build-native")
    monkeypatch.setattr(native, "_load_once", lambda: missing)
    model = torch.nn.Identity()
    with pytest.raises(monitoring.NativeUnavailable, match="not built"):
        monitoring.watch(model, select="modules:*", store="memory:unbuilt").open()
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


def test_two_runs_in_one_store_never_merge(build_model):
    """Rows of two runs were once read as one sequence."""
    import monitoring

    model = build_model("gpt2")
    watches = []
    for token in (5, 9):
        with monitoring.watch(model, select="token-ids", store="memory:two_runs") as watch:
            model(torch.tensor([[token, token, token]]))
        watches.append(watch)
    for watch, token in zip(watches, (5, 9), strict=True):
        assert monitoring.read("memory:two_runs", run=watch.run_id).token_ids.tolist() == [[token] * 3]


def test_an_idle_watch_does_not_hold_records_back(build_model, read_stored):
    """Sparse captures were once invisible until shutdown, because a flush had no time limit."""
    import monitoring

    model = build_model("gpt2")
    with monitoring.watch(model, select="final_ln", store="memory:sparse") as watch:
        model(torch.tensor([[5]]))
        limit = time.monotonic() + 60
        while not read_stored("memory:sparse", watch.run_id):
            assert time.monotonic() < limit
            time.sleep(0.02)
