"""Small real transformers models with random weights, and rows put back together without the library's reader."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def build_model(kind: str, *, dtype: str = "float32", attention: str = "eager", layers: int = 2, **changes: Any) -> Any:
    """Build a model of a family from its configuration, in evaluation mode."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(7)
    common = {"vocab_size": 61, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
    if kind == "gpt2":
        config = transformers.GPT2Config(n_layer=layers, n_head=4, n_embd=32, n_positions=64, **(common | changes))
        model = transformers.GPT2LMHeadModel(config)
    else:
        sizes = {
            "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": layers, "num_attention_heads": 4,
            "num_key_value_heads": 2, "max_position_embeddings": 64, "head_dim": 8,
        }  # fmt: skip
        if kind in ("qwen2", "qwen2_moe"):
            sizes.pop("head_dim")
        if "moe" in kind:
            sizes |= {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "decoder_sparse_step": 1}
        if kind == "qwen2_moe":
            sizes |= {"shared_expert_intermediate_size": 16}
        names = {
            "llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "qwen2_moe": "Qwen2Moe", "qwen3_moe": "Qwen3Moe",
        }  # fmt: skip
        config = getattr(transformers, f"{names[kind]}Config")(**(common | sizes | changes))
        model = getattr(transformers, f"{names[kind]}ForCausalLM")(config)
    model = model.to(getattr(torch, dtype)).eval()
    model.config._attn_implementation = attention  # works on every version of transformers
    # Random weights repeat one token for ever; a wider spread makes every step different.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)
    return model


@pytest.fixture(name="build_model")
def build_model_fixture() -> Callable[..., Any]:
    """Give the model builder."""
    return build_model


@pytest.fixture
def padded_batch() -> dict[str, Any]:
    """Give a batch of three prompts of different lengths, left-padded as generation needs it."""
    torch = pytest.importorskip("torch")
    ids = torch.tensor([[2, 2, 2, 11, 12], [21, 22, 23, 24, 25], [2, 31, 32, 33, 34]])
    return {"input_ids": ids, "attention_mask": (ids != 2).long()}


_stores = itertools.count()


@pytest.fixture
def memory_store() -> str:
    """Give the URL of a memory store of its own."""
    return f"memory:capture_{next(_stores)}"


def read_stored(store: str, run_id: str) -> list[Any]:
    """Read a run's rows from a store, in the order of their sequence numbers."""
    from monitoring.store import open_store

    opened = open_store(store)
    try:
        return sorted(opened.read_rows(run_id), key=lambda row: row.seq)
    finally:
        opened.close()


@pytest.fixture(name="read_stored")
def read_stored_fixture() -> Callable[[str, str], list[Any]]:
    """Give the row reader."""
    return read_stored


def to_tensor(row: Any) -> Any:
    """Make a tensor of a row's bytes."""
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, row.dtype)
    if not row.data:
        return torch.empty(row.shape, dtype=dtype)
    return torch.frombuffer(bytearray(row.data), dtype=dtype).reshape(row.shape)


@pytest.fixture(name="to_tensor")
def to_tensor_fixture() -> Callable[[Any], Any]:
    """Give the row decoder."""
    return to_tensor


def group_rows(rows: Iterable[Any]) -> dict[tuple[str, str, int], list[Any]]:
    """Group rows by (request, site, layer), each group in token order with no gap and no overlap."""
    groups = defaultdict(list)
    for row in rows:
        groups[row.request_id, row.site, row.layer].append(row)
    for key, group in groups.items():
        group.sort(key=lambda row: (row.token_start, row.step))
        for before, after in itertools.pairwise(group):
            assert before.token_end == after.token_start, f"{key}: {before.token_end} then {after.token_start}"
    return dict(groups)


@pytest.fixture(name="group_rows")
def group_rows_fixture() -> Callable[..., Any]:
    """Give the grouping of rows."""
    return group_rows


def same_bits(left: Any, right: Any) -> bool:
    """Compare two tensors bit by bit, NaNs and signed zeros included."""
    torch = pytest.importorskip("torch")
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    size = left.element_size() * math.prod(left.shape)
    raw = [one.detach().contiguous().flatten().view(torch.uint8) if size else one for one in (left, right)]
    return bool(torch.equal(*raw))


@pytest.fixture(name="same_bits")
def same_bits_fixture() -> Callable[[Any, Any], bool]:
    """Give the bitwise comparison."""
    return same_bits
