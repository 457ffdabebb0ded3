"""Two tensor-parallel ranks: each stores its shard, and the reader gives the whole model's tensors."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

pytestmark = [pytest.mark.multi_gpu(nproc=2), pytest.mark.hf]

RANKS = 2
SHARDED = ("q", "k", "v", "z", "mlp_post", "pattern", "attn_scores")
WHOLE = ("resid_pre", "attn_out", "mlp_out", "final_ln", "final_logits", "token_ids")


@pytest.fixture(scope="module")
def group():
    """Give the process group that the launcher made, or make one from the launcher's environment."""
    distributed = torch.distributed
    own = not distributed.is_initialized()
    if own:
        if "RANK" not in os.environ:
            pytest.skip("no launcher: RANK and WORLD_SIZE are not set")
        distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    yield distributed
    if own:
        distributed.destroy_process_group()


def device() -> Any:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())


def build(kv_heads: int) -> Any:
    import transformers

    torch.manual_seed(11)
    config = transformers.LlamaConfig(
        vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=kv_heads, max_position_embeddings=64, bos_token_id=0, eos_token_id=1, pad_token_id=2,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    model.config._attn_implementation = "eager"
    return model.to(device())


def split(model: Any, distributed: Any) -> None:
    """Split attention heads and the feed-forward part over the ranks, as a tensor-parallel plan does."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh(device().type, (distributed.get_world_size(),))
    for layer in model.model.layers:
        plan = {
            "self_attn.q_proj": ColwiseParallel(), "self_attn.k_proj": ColwiseParallel(),
            "self_attn.v_proj": ColwiseParallel(), "self_attn.o_proj": RowwiseParallel(),
            "mlp.gate_proj": ColwiseParallel(), "mlp.up_proj": ColwiseParallel(), "mlp.down_proj": RowwiseParallel(),
        }  # fmt: skip
        parallelize_module(layer, mesh, plan)


def shared_folder(distributed: Any) -> Path:
    box = [tempfile.mkdtemp() if distributed.get_rank() == 0 else None]
    distributed.broadcast_object_list(box, src=0, device=device())
    return Path(box[0])


def capture(model: Any, batch: dict[str, Any], folder: Path, rank: int, **more: Any) -> tuple[Any, Any]:
    import monitoring

    select = ",".join(SHARDED + WHOLE)
    # A folder for each rank, as on machines that share none.
    store = folder / f"rank{rank}"
    with monitoring.watch(model, select=select, store=store, raise_on_loss=True, **more) as watch, torch.no_grad():
        out = model(**batch, use_cache=False)
    return watch, out


def merge(folder: Path, run_id: str) -> str:
    """Copy the ranks' rows and records into one store, as a server would hold them."""
    import monitoring
    from monitoring.rows import encode_rows

    url = "memory:tensor_parallel"
    whole = monitoring.open_store(url)
    whole.prepare()
    for rank in range(RANKS):
        part = monitoring.open_store(folder / f"rank{rank}")
        whole.write_block(encode_rows(list(part.read_rows(run_id))))
        for record in part.read_runs():
            if record.run_id == run_id:
                whole.write_run(record)
        part.close()
    return url


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_shards_are_stored_per_rank_and_merged_by_the_reader(group, kv_heads):
    import monitoring

    rank = group.get_rank()
    ids = torch.tensor([[2, 2, 5, 6, 7], [8, 9, 10, 11, 12]], device=device())
    batch = {"input_ids": ids, "attention_mask": (ids != 2).long()}
    model = build(kv_heads)
    if rank == 0:
        select = ",".join(SHARDED + WHOLE)
        with monitoring.watch(model, select=select, store="memory:whole_model") as reference, torch.no_grad():
            expected_out = model(**batch, use_cache=False)
        expected = monitoring.read("memory:whole_model", run=reference.run_id)
    split(model, group)
    folder = shared_folder(group)
    watch, out = capture(model, batch, folder, rank)
    stats = watch.stats()
    assert stats.balanced
    assert stats.lost == 0
    group.barrier()
    if rank == 0:
        torch.testing.assert_close(out.logits.cpu(), expected_out.logits.cpu(), rtol=1e-4, atol=1e-4)
        url = merge(folder, watch.run_id)
        rows = list(monitoring.open_store(url).read_rows(watch.run_id))
        by_site = {site: {row.shard_rank for row in rows if row.site == site} for site in SHARDED + WHOLE}
        assert by_site == {**{site: {0, 1} for site in SHARDED}, **{site: {0} for site in WHOLE}}
        internals = monitoring.read(url, run=watch.run_id)
        assert len(internals.records) == RANKS
        for site in SHARDED + WHOLE:
            for ours, theirs in zip(internals.site(site), expected.site(site), strict=True):
                assert ours.shape == theirs.shape, site
                torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    group.barrier()


def test_a_missing_shard_is_named(group):
    import monitoring

    rank = group.get_rank()
    model = build(4)
    split(model, group)
    folder = shared_folder(group)
    batch = {"input_ids": torch.tensor([[5, 6, 7]], device=device())}
    watch, _ = capture(model, batch, folder, rank)
    group.barrier()
    with pytest.raises(monitoring.IncompleteRun) as caught:
        monitoring.read(folder / f"rank{rank}", run=watch.run_id)
    assert any(f"shard {1 - rank} of 2" in line for line in caught.value.missing)
    group.barrier()


def test_ranks_agree_on_the_run(group):
    import monitoring

    model = build(4)
    split(model, group)
    watch = monitoring.watch(model, select="q", store="memory:agreed")
    box: list[Any] = [None] * RANKS
    group.all_gather_object(box, watch.run_id)
    assert box[0] == box[1]
