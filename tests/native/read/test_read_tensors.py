"""Rows become tensors as the model's own: columns, shards, dtypes, gaps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitoring.blocks import BlockError
from monitoring.errors import MissingDependency, StoreError
from monitoring.hooks.sites import BY_NAME, Shape
from monitoring.read import read
from monitoring.reading import assemble
from monitoring.rows import CLOSED, ITEM_BYTES, CaptureRow, RunRecord, encode_rows
from monitoring.store.memory import MemoryStore

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.native_backend

HEADS, WIDTH, KEY_HEADS = 4, 3, 2


def raw(tensor: Any) -> bytes:
    flat = tensor.contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).tolist()) if flat.numel() else b""


@dataclass
class Batch:
    """A batch as a model computes it: prompts padded on the left, then one column a step; requests may end early."""

    prompts: list[int]
    lives: list[int]
    dtype: Any = None
    shards: int = 1

    @property
    def columns(self) -> int:
        return max(self.prompts) + max(self.lives)

    def bounds(self, request: int) -> tuple[int, int]:
        """First and end column of the request's tokens."""
        start = max(self.prompts) - self.prompts[request]
        return start, max(self.prompts) + self.lives[request]

    def mask(self) -> Any:
        mask = torch.zeros(len(self.prompts), self.columns, dtype=torch.bool)
        for request in range(len(self.prompts)):
            start, end = self.bounds(request)
            mask[request, start:end] = True
        return mask

    def passes(self) -> Iterator[tuple[int, int, int]]:
        """Step, first and end column of each forward pass."""
        prompt = max(self.prompts)
        yield 0, 0, prompt
        for step in range(1, max(self.lives) + 1):
            yield step, prompt + step - 1, prompt + step

    def tensor(self, shape: Shape, generator: Any) -> Any:
        count, columns = len(self.prompts), self.columns
        sizes = {
            Shape.HIDDEN: (count, columns, WIDTH),
            Shape.HEADS: (count, columns, HEADS, WIDTH),
            Shape.KV_HEADS: (count, columns, KEY_HEADS, WIDTH),
            Shape.SQUARE: (count, HEADS, columns, columns),
            Shape.TOKENS: (count, columns),
        }[shape]
        values = torch.randint(1, 100, sizes, generator=generator).to(self.dtype or torch.float32)
        mask = self.mask()
        if shape is Shape.SQUARE:
            causal = torch.ones(columns, columns, dtype=torch.bool).tril()
            keep = mask[:, None, :, None] & mask[:, None, None, :] & causal
        else:
            keep = mask.reshape(*mask.shape, *[1] * (len(sizes) - 2))
        return torch.where(keep, values, torch.zeros((), dtype=values.dtype))

    def rows(self, name: str, layer: int, whole: Any, numbers: Iterator[int]) -> list[CaptureRow]:
        """The rows that capturing `whole` pass by pass leaves."""
        site, made = BY_NAME[name], []
        for step, first, last in self.passes():
            for request, shard in itertools.product(range(len(self.prompts)), range(self.shards)):
                start, end = self.bounds(request)
                low, high = max(first, start), min(last, end)
                if low >= high:
                    continue
                # Key columns come whole, with the padding before the request's own.
                part = whole[request][:, low:high, :last] if site.shape is Shape.SQUARE else whole[request][low:high]
                if self.shards > 1 and site.sharded_dim is not None:
                    part = part.chunk(self.shards, dim=site.sharded_dim)[shard]
                elif shard:
                    continue
                made.append(
                    CaptureRow(
                        run_id="r",
                        request_id=f"q{request}",
                        site=name,
                        layer=layer,
                        shard_rank=shard,
                        step=step,
                        seq=next(numbers),
                        token_start=low - start,
                        token_end=high - start,
                        dtype=str(part.dtype).removeprefix("torch."),
                        shape=tuple(part.shape),
                        data=raw(part),
                    )
                )
        return made


def stored(rows: Sequence[CaptureRow], **record: Any) -> MemoryStore:
    store = MemoryStore("test")
    store.write_block(encode_rows(rows))
    for rank in sorted({row.shard_rank for row in rows}):
        of_shard = [row for row in rows if row.shard_rank == rank]
        values = {"seq_end": max(row.seq for row in of_shard) + 1, "shard_count": 1, **record}
        store.write_run(RunRecord(run_id="r", shard_rank=rank, state=CLOSED, updated_at=1, **values))
    return store


def same(first: Any, second: Any) -> bool:
    """Equal bit for bit, dtype and shape included."""
    return first.dtype == second.dtype and first.shape == second.shape and raw(first) == raw(second)


batches = st.integers(1, 4).flatmap(
    lambda count: st.builds(
        Batch,
        prompts=st.lists(st.integers(1, 5), min_size=count, max_size=count),
        lives=st.lists(st.integers(0, 4), min_size=count, max_size=count),
        shards=st.sampled_from([1, 2]),
    )
)


@settings(deadline=None, max_examples=60)
@given(batches, st.randoms(use_true_random=False))
def test_rows_of_any_batch_become_its_tensors_again(batch: Batch, shuffle: Any) -> None:
    generator = torch.Generator().manual_seed(shuffle.randrange(2**30))
    numbers = itertools.count()
    wholes: dict[tuple[str, int], Any] = {}
    rows: list[CaptureRow] = []
    for name, layers in (("resid_pre", (0, 1)), ("q", (0, 1)), ("k", (1,)), ("pattern", (0, 1)), ("token_ids", (-1,))):
        for layer in layers:
            wholes[name, layer] = batch.tensor(BY_NAME[name].shape, generator)
            rows += batch.rows(name, layer, wholes[name, layer], numbers)
    by_shard: dict[int, int] = {}
    renumbered = []
    for row in rows:
        renumbered.append(replace(row, seq=by_shard.setdefault(row.shard_rank, 0)))
        by_shard[row.shard_rank] += 1
    resent = renumbered + renumbered[:3]
    shuffle.shuffle(resent)
    internals = read(stored(resent, shard_count=batch.shards))
    assert internals.requests == tuple(f"q{request}" for request in range(len(batch.prompts)))
    assert torch.equal(internals.token_mask, batch.mask())
    for (name, layer), whole in wholes.items():
        layers = internals.sites[name]
        assert same(internals.site(name)[layers.index(layer)], whole), (name, layer)
        assert torch.equal(internals.mask(name, layer=layer), batch.mask())
    assert len(internals.hidden_states) == len(internals.attentions) == len(internals.q) == 2


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("dtype", [name for name in ITEM_BYTES if hasattr(torch, name)])
def test_every_dtype_bit_for_bit(dtype: str) -> None:
    kind = getattr(torch, dtype)
    data = bytes(range(96)) * ITEM_BYTES[dtype] if dtype != "bool" else bytes([0, 1] * 48)
    whole = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(kind).reshape(2, 16, 3)
    rows = [
        CaptureRow(
            run_id="r",
            request_id="q",
            site="resid_pre",
            layer=layer,
            seq=layer,
            token_end=16,
            dtype=dtype,
            shape=(16, 3),
            data=raw(whole[layer]),
        )
        for layer in (0, 1)
    ]
    read_back = read(stored(rows)).site("resid_pre")
    assert same(torch.cat(read_back).reshape(2, 16, 3), whole)
    read_back[0].zero_()
    assert same(read(stored(rows)).site("resid_pre")[0][0], whole[0])


def one_row(**values: Any) -> CaptureRow:
    base = CaptureRow(
        run_id="r",
        request_id="q",
        site="resid_pre",
        layer=0,
        seq=0,
        token_end=2,
        dtype="uint8",
        shape=(2, 1),
        data=b"ab",
    )
    return replace(base, **values)


def text(tensor: Any) -> str:
    return bytes(tensor.flatten().tolist()).decode("latin-1")


def test_a_rollback_is_overwritten_by_the_later_pass() -> None:
    """Assisted decoding takes tokens back: the later pass wins, what it did not compute again is gone."""
    rows = [
        one_row(token_end=5, shape=(5, 1), data=b"abcde"),
        one_row(seq=1, step=1, token_start=3, token_end=4, shape=(1, 1), data=b"D"),
    ]
    internals = read(stored(rows))
    assert text(internals.site("resid_pre")[0]) == "abcD"
    assert internals.token_mask.tolist() == [[True] * 4]


def test_gaps_are_marked() -> None:
    rows = [one_row(), one_row(seq=2, step=2, token_start=3, token_end=5, data=b"de")]
    internals = read(stored(rows), allow_incomplete=True)
    assert internals.missing
    assert text(internals.site("resid_pre")[0]) == "ab\0de"
    assert internals.mask("resid_pre").tolist() == [[True, True, False, True, True]]
    assert internals.token_mask.tolist() == [[True, True, False, True, True]]


def test_requests_of_separate_calls_end_at_the_right_edge() -> None:
    rows = [one_row(), one_row(seq=1, step=1, request_id="p", token_end=3, shape=(3, 1), data=b"xyz")]
    internals = read(stored(rows))
    assert internals.requests == ("q", "p")
    assert text(internals.site("resid_pre")[0]) == "\0abxyz"


def test_key_heads_copied_over_ranks_are_merged_once() -> None:
    rows = [
        one_row(site="k", shard_rank=rank, shape=(2, 1, 1), data=data)
        for rank, data in enumerate((b"ab", b"ab", b"cd", b"cd"))
    ]
    merged = read(stored(rows, shard_count=4, details={"kv_heads": "2"})).k[0]
    assert merged.shape == (1, 2, 2, 1)
    assert text(merged) == "acbd"


def test_tp_shards_crash_the_reader() -> None:
    """A missing shard is named; with what is there, the tensor is narrower, never wrong."""
    rows = [one_row(site="q", shard_rank=1, shape=(2, 1, 1))]
    internals = read(stored(rows, shard_count=2), allow_incomplete=True)
    assert internals.missing == ("shard 0 of 2 left no record: its process never started to capture",)
    assert internals.q[0].shape == (1, 2, 1, 1)
    uneven = [one_row(site="q", shape=(2, 1, 1)), one_row(site="q", shard_rank=1, shape=(2, 1, 2), data=b"abcd")]
    with pytest.raises(StoreError, match="do not fit"):
        _ = read(stored(uneven, shard_count=2)).q


def test_a_replicated_site_is_taken_from_one_rank() -> None:
    rows = [one_row(shard_rank=rank) for rank in (0, 1)]
    assert text(read(stored(rows, shard_count=2)).site("resid_pre")[0]) == "ab"


def test_a_sliding_window_keeps_the_last_keys() -> None:
    square = {"site": "pattern", "dtype": "uint8"}
    rows = [
        one_row(**square, shape=(1, 2, 2), data=b"a.bc"),
        one_row(**square, seq=1, step=1, token_start=2, token_end=3, shape=(1, 1, 2), data=b"de"),
    ]
    assert text(read(stored(rows)).attentions[0]) == "a.\0bc\0\0de"


def test_padding_on_the_right_is_cut_from_the_keys() -> None:
    rows = [one_row(site="pattern", shape=(1, 2, 3), data=b"a.-bc-")]
    assert text(read(stored(rows, details={"padding_side": "right"})).attentions[0]) == "a.bc"
    rows = [one_row(site="pattern", shape=(1, 2, 3), data=b"-a.-bc")]
    assert text(read(stored(rows)).attentions[0]) == "a.bc"


def test_logits_of_the_last_tokens_are_aligned_to_the_right() -> None:
    rows = [
        one_row(token_end=4, shape=(4, 1), data=b"abcd"),
        one_row(site="final_logits", layer=-1, seq=1, token_start=3, token_end=4, shape=(1, 2), data=b"xy"),
    ]
    assert read(stored(rows)).logits.shape == (1, 1, 2)


def test_calls_and_modules() -> None:
    rows = [
        one_row(),
        one_row(call=1, seq=1, data=b"cd"),
        one_row(site="module:a.b", layer=-1, seq=2, shape=(1, 2, 1), data=b"ef"),
        one_row(site="module:a.b", layer=-1, seq=3, call=1, shape=(), data=b"g"),
    ]
    internals = read(stored(rows))
    assert text(internals.site("resid_pre")[0]) == "ab"
    assert text(internals.site("pre", call=1)[0]) == "cd"
    assert [tuple(one.shape) for one in internals.modules["a.b"]] == [(1, 2, 1), ()]
    with pytest.raises(StoreError, match="call 2"):
        internals.site("pre", call=2)


def test_module_captures_alone() -> None:
    internals = read(stored([one_row(site="module:m", layer=-1)]))
    assert internals.requests == ()
    assert internals.token_mask.shape == (0, 0)
    assert list(internals.modules) == ["m"]


def test_a_site_that_is_not_there_names_those_that_are() -> None:
    internals = read(stored([one_row()]))
    with pytest.raises(StoreError, match="holds no q; it holds: resid_pre") as caught:
        _ = internals.q
    assert "select='q'" in caught.value.hint
    with pytest.raises(StoreError, match="no site 'queries'"):
        internals.site("queries")


def test_rows_that_contradict_each_other_are_refused() -> None:
    for rows, what in (
        ([one_row(token_end=3)], r"shape \[2, 1\], expected 3 at dimension 0"),
        ([one_row(shape=(2,), site="pattern")], "expected 2 at dimension 1"),
        (
            [one_row(), one_row(seq=1, step=1, token_start=2, token_end=3, shape=(1, 3), data=b"xyz")],
            "do not fit together",
        ),
        (
            [one_row(), one_row(seq=1, step=1, token_start=2, token_end=3, shape=(1, 1), dtype="int8", data=b"x")],
            "several dtypes",
        ),
    ):
        with pytest.raises(StoreError, match=what):
            read(stored(rows)).site(rows[0].site)


def test_a_damaged_row_never_becomes_a_tensor() -> None:
    with pytest.raises(BlockError, match="2 bytes, expected 4"):
        assemble.to_tensor(one_row(shape=(2, 2)))


def test_a_dtype_that_this_torch_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch, "uint16")
    row = one_row(dtype="uint16", shape=(2, 1), data=b"abcd")
    with pytest.raises(StoreError, match="no dtype uint16"):
        assemble.to_tensor(row)


def test_without_torch_rows_are_still_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    internals = read(stored([one_row()]))
    monkeypatch.setitem(sys.modules, "torch", None)
    assert internals.rows == (one_row(),)
    assert "resid_pre" in repr(internals)
    with pytest.raises(MissingDependency) as caught:
        internals.site("resid_pre")
    assert 'pip install "lockgate[monitoring]"' in caught.value.hint
