"""The watch itself: its own hooks and nothing else, contained errors, policies that hold, a ledger that balances."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

pytestmark = pytest.mark.native_backend

torch = pytest.importorskip("torch")
nn = torch.nn


class Twice(nn.Module):
    """Calls one module twice in a forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.outer = nn.Sequential(nn.Linear(4, 3), nn.ReLU())

    def forward(self, x: Any) -> Any:
        return self.outer(self.inner(self.inner(x)))


@pytest.fixture
def twice():
    torch.manual_seed(1)
    return Twice().eval()


def hooks_of(model: Any) -> int:
    return sum(
        len(module._forward_hooks) + len(module._forward_pre_hooks) + len(module._forward_hooks_with_kwargs)
        for module in model.modules()
    )


def test_any_module_by_glob(twice, memory_store, read_stored, to_tensor, same_bits):
    import monitoring

    x = torch.randn(2, 4)
    with monitoring.watch(twice, select="modules:outer*", store=memory_store, raise_on_loss=True) as watch:
        out = twice(x)
    rows = {row.site: row for row in read_stored(memory_store, watch.run_id)}
    assert set(rows) == {"module:outer", "module:outer.0", "module:outer.1"}
    assert same_bits(to_tensor(rows["module:outer"]), out)
    assert rows["module:outer"].layer == -1
    read = monitoring.read(memory_store, run=watch.run_id)
    assert same_bits(read.modules["outer.1"][0], out)


def test_a_module_called_twice_has_call_numbers(twice, memory_store, read_stored, to_tensor, same_bits):
    import monitoring

    x = torch.randn(2, 4)
    with monitoring.watch(twice, select="modules:inner", store=memory_store) as watch:
        twice(x)
        twice(x)
    rows = read_stored(memory_store, watch.run_id)
    assert [(row.step, row.call) for row in rows] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    first = twice.inner(x)
    assert same_bits(to_tensor(rows[0]), first)
    assert same_bits(to_tensor(rows[1]), twice.inner(first))


DTYPES = (
    "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int64", "int32", "int16", "int8",
    "uint8", "bool", "complex64",
)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lay", ["plain", "transposed", "sliced", "expanded", "empty", "scalar"])
def test_every_dtype_and_layout_is_stored_as_its_bytes(dtype, lay, memory_store, read_stored, to_tensor, same_bits):
    import monitoring

    base = (torch.arange(24).reshape(2, 3, 4) % 5).to(getattr(torch, dtype))
    tensors = {
        "plain": base, "transposed": base.transpose(0, 2), "sliced": base[:, ::2, 1:], "empty": base[:0],
        "scalar": base[1, 1, 1], "expanded": base[:, :1].expand(2, 3, 4),
    }  # fmt: skip
    model = nn.Identity()
    with monitoring.watch(model, select="modules:*", store=memory_store, raise_on_loss=True) as watch:
        model(tensors[lay])
    [row] = read_stored(memory_store, watch.run_id)
    assert row.dtype == dtype
    assert same_bits(to_tensor(row), tensors[lay].contiguous())


@pytest.mark.parametrize("lazy", ["conj", "neg", "imag"])
def test_lazy_bits_are_resolved_not_copied(lazy, memory_store, read_stored, to_tensor):
    import monitoring

    base = torch.tensor([[1 + 2j, 3 - 4j]])
    tensor = {"conj": base.conj(), "neg": torch._neg_view(base.real), "imag": base.conj().imag}[lazy]
    model = nn.Identity()
    with monitoring.watch(model, select="modules:*", store=memory_store) as watch:
        model(tensor)
    [row] = read_stored(memory_store, watch.run_id)
    assert torch.equal(to_tensor(row), tensor.resolve_conj().resolve_neg())


def test_special_values_keep_their_bits(memory_store, read_stored, to_tensor, same_bits):
    import monitoring

    odd = torch.tensor([0x7FC00001, 0xFFC12345, 0x80000000, 0x00000001, 0x7F800000], dtype=torch.int64)
    tensor = odd.to(torch.int32).view(torch.float32)
    model = nn.Identity()
    with monitoring.watch(model, select="modules:*", store=memory_store) as watch:
        model(tensor)
    [row] = read_stored(memory_store, watch.run_id)
    assert same_bits(to_tensor(row), tensor)


def test_what_is_stored_is_a_copy_made_at_once(memory_store, read_stored, to_tensor):
    import monitoring

    tensor = torch.ones(3)
    model = nn.Identity()
    with monitoring.watch(model, select="modules:*", store=memory_store) as watch:
        model(tensor)
        tensor.fill_(9.0)
    [row] = read_stored(memory_store, watch.run_id)
    assert to_tensor(row).tolist() == [1, 1, 1]


def test_leaving_removes_its_own_hooks_alone(twice, memory_store):
    import monitoring

    seen = []
    own = twice.inner.register_forward_hook(lambda *_: seen.append(1))
    before = hooks_of(twice)
    with monitoring.watch(twice, select="modules:*", store=memory_store):
        assert hooks_of(twice) > before
        twice(torch.randn(1, 4))
    assert hooks_of(twice) == before
    twice(torch.randn(1, 4))
    assert len(seen) == 4
    own.remove()


def test_nested_watches_do_not_disturb_each_other(twice, read_stored):
    import monitoring

    x = torch.randn(1, 4)
    with monitoring.watch(twice, select="modules:inner", store="memory:outer_watch") as outer:
        twice(x)
        with monitoring.watch(twice, select="modules:outer", store="memory:inner_watch") as inner:
            twice(x)
        twice(x)
    assert [row.step for row in read_stored("memory:outer_watch", outer.run_id)] == [0, 0, 1, 1, 2, 2]
    assert [row.step for row in read_stored("memory:inner_watch", inner.run_id)] == [0]
    assert hooks_of(twice) == 0


def test_watches_may_be_left_in_any_order(twice, read_stored):
    import monitoring

    first = monitoring.watch(twice, select="modules:inner", store="memory:first_watch")
    second = monitoring.watch(twice, select="modules:inner", store="memory:second_watch")
    first.open()
    second.open()
    twice(torch.randn(1, 4))
    first.close()
    twice(torch.randn(1, 4))
    second.close()
    assert len(read_stored("memory:first_watch", first.run_id)) == 2
    assert len(read_stored("memory:second_watch", second.run_id)) == 4
    assert hooks_of(twice) == 0


def test_threads_keep_their_forward_passes_apart(memory_store, read_stored, to_tensor):
    import monitoring

    model = nn.Sequential(nn.Identity(), nn.Identity())
    barrier = threading.Barrier(4)

    def work(number: int, watch: Any) -> None:
        barrier.wait()
        for step in range(50):
            with watch.requests([f"t{number}.{step}"]):
                model(torch.full((8,), float(number)))

    with monitoring.watch(model, select="modules:*", store=memory_store, raise_on_loss=True) as watch:
        threads = [threading.Thread(target=work, args=(number, watch)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    rows = read_stored(memory_store, watch.run_id)
    assert len(rows) == 4 * 50 * 3
    for row in rows:
        number = float(row.request_id[1 : row.request_id.index(".")])
        assert to_tensor(row).tolist() == [number] * 8


def test_an_exception_in_a_hook_never_reaches_the_model(twice, memory_store, monkeypatch):
    import monitoring
    from monitoring.hooks import points

    def explode(*_: Any) -> Any:
        raise RuntimeError("boom")

    watch = monitoring.watch(twice, select="modules:inner", store=memory_store)
    watch.open()
    for tap in watch._recorder.taps:
        object.__setattr__(tap.point, "view", explode)
    out = twice(torch.randn(1, 4))
    assert out.shape == (1, 3)
    stats = watch.stats()
    assert stats.failed == 2
    assert stats.losses == {"failed:hook": 2}
    assert any("boom" in text for text in stats.errors)
    assert stats.balanced
    with pytest.warns(monitoring.CaptureWarning, match="boom"):
        watch.close()
    assert points.whole is not explode


def test_losses_raise_when_asked_to(twice, memory_store):
    import monitoring

    watch = monitoring.watch(twice, select="modules:inner", store=memory_store, raise_on_loss=True)
    watch.open()
    watch._ring.lost("hook", 1)
    twice(torch.randn(1, 4))
    with pytest.raises(monitoring.CaptureLoss, match="1 failed:hook"):
        watch.close()
    assert hooks_of(twice) == 0


def test_the_models_own_exception_wins_over_a_loss(twice, memory_store):
    import monitoring

    watch = monitoring.watch(twice, select="modules:inner", store=memory_store, raise_on_loss=True)
    watch.open()
    watch._ring.lost("hook", 1)
    assert watch.__exit__(ZeroDivisionError, ZeroDivisionError(), None) is None  # so Python goes on raising it
    assert hooks_of(twice) == 0


def test_a_forward_that_fails_leaves_the_next_one_whole(twice, memory_store, read_stored):
    import monitoring

    with monitoring.watch(twice, select="modules:inner", store=memory_store) as watch:
        with pytest.raises(RuntimeError):
            twice(torch.randn(1, 5))
        twice(torch.randn(1, 4))
    assert [(row.step, row.call) for row in read_stored(memory_store, watch.run_id)] == [(1, 0), (1, 1)]


def test_a_module_run_on_its_own_is_a_counted_error(twice, memory_store, read_stored):
    import monitoring

    watch = monitoring.watch(twice, select="modules:inner", store=memory_store)
    with pytest.warns(monitoring.CaptureWarning, match="outside a forward pass"), watch:
        twice.inner(torch.randn(1, 4))
    assert watch.stats().losses == {"failed:hook": 1}
    assert read_stored(memory_store, watch.run_id) == []


def test_every_second_step_after_a_warm_up(twice, memory_store, read_stored):
    import monitoring

    policy = monitoring.Policy(schedule=monitoring.Schedule(every_steps=2, warmup_steps=3))
    with monitoring.watch(twice, select="modules:outer", store=memory_store, policy=policy) as watch:
        for _ in range(9):
            twice(torch.randn(1, 4))
    assert [row.step for row in read_stored(memory_store, watch.run_id)] == [3, 5, 7]
    assert watch.stats().skipped_steps == 6
    assert watch.stats().lost == 0


def test_sparse_records_become_visible_in_time(twice, memory_store, read_stored):
    import monitoring

    policy = monitoring.Policy(limits=monitoring.Limits(flush_interval=0.05))
    with monitoring.watch(twice, select="modules:outer", store=memory_store, policy=policy) as watch:
        twice(torch.randn(1, 4))
        deadline = time.monotonic() + 60
        while not read_stored(memory_store, watch.run_id) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(read_stored(memory_store, watch.run_id)) == 1


def test_flush_makes_everything_visible(twice, memory_store, read_stored):
    import monitoring

    policy = monitoring.Policy(limits=monitoring.Limits(flush_interval=3600))
    with monitoring.watch(twice, select="modules:outer", store=memory_store, policy=policy) as watch:
        twice(torch.randn(1, 4))
        watch.flush(10.0)
        assert len(read_stored(memory_store, watch.run_id)) == 1
        assert watch.stats().pending == 0


def test_the_states_of_a_watch_are_told(twice, memory_store):
    import monitoring

    watch = monitoring.watch(twice, select="modules:outer", store=memory_store)
    with pytest.raises(monitoring.CaptureError, match=r"new, expected it to be open"):
        watch.flush()
    with watch:
        pass
    watch.close()
    with pytest.raises(monitoring.CaptureError, match="closed"):
        watch.open()
    with pytest.raises(monitoring.CaptureError, match="closed"):
        watch.requests(["a"])


@pytest.mark.parametrize("names", [[], ["a", "a"], [""], [3]])
def test_request_names_must_tell_rows_apart(names, twice, memory_store):
    import monitoring

    watch = monitoring.watch(twice, select="modules:outer", store=memory_store)
    with watch, pytest.raises(monitoring.CaptureError), watch.requests(names):
        pass


def test_what_is_no_module_is_refused():
    import monitoring

    with pytest.raises(monitoring.CaptureError, match=r"torch.nn.Module"):
        monitoring.watch(lambda x: x)


def test_a_cuda_model_without_a_cuda_build_names_the_remedy(twice, memory_store, monkeypatch):
    import monitoring
    from monitoring.native import load_native

    if load_native().cuda_device_count():
        return  # a machine with a device has the build for it
    monkeypatch.setattr("monitoring.hooks.plan.find_device", lambda _model: 0)
    with pytest.raises(monitoring.NativeUnavailable, match="cuda:0"):
        monitoring.watch(twice, select="modules:*", store=memory_store).open()
    assert hooks_of(twice) == 0


def test_the_models_own_exception_wins_over_a_store_that_fails_at_the_end(twice, memory_store, monkeypatch):
    import monitoring

    def fail(_record: Any) -> None:
        raise monitoring.StoreError("the store is gone")

    watch = monitoring.watch(twice, select="modules:*", store=memory_store)
    watch.open()
    monkeypatch.setattr(watch._store, "write_run", fail)
    assert watch.__exit__(ZeroDivisionError, ZeroDivisionError(), None) is None  # so Python goes on raising it
    assert hooks_of(twice) == 0


def test_a_bad_store_leaves_no_hook_behind(twice):
    import monitoring

    with pytest.raises(monitoring.StoreUrlError), monitoring.watch(twice, select="modules:*", store="mysql://x/y"):
        pass
    assert hooks_of(twice) == 0


def test_a_glob_without_a_match_names_the_modules(twice, memory_store):
    import monitoring

    with pytest.raises(monitoring.SelectionError, match="matches no module") as caught:
        monitoring.watch(twice, select="modules:layers.*", store=memory_store).open()
    assert "inner" in str(caught.value)


def test_sites_of_a_model_without_any_raise(twice, memory_store):
    import monitoring

    with pytest.raises(monitoring.SelectionError, match="nothing of the selection"):
        monitoring.watch(twice, select="hidden-states", store=memory_store).open()


def test_a_missing_site_drops_out_with_one_warning(build_model, memory_store):
    import monitoring

    model = build_model("gpt2")
    watch = monitoring.watch(model, select="resid_pre,router_logits,topk_ids", store=memory_store)
    with pytest.warns(monitoring.CaptureWarning, match="lacks router_logits, topk_ids") as caught:
        watch.open()
    assert len(caught) == 1
    watch.close()


def test_the_run_record_tells_what_a_complete_run_holds(build_model, memory_store):
    import monitoring

    model = build_model("llama")
    with monitoring.watch(model, select="hidden-states", store=memory_store) as watch:
        model(torch.tensor([[3, 4]]))
        [record] = [one for one in monitoring.open_store(memory_store).read_runs() if one.run_id == watch.run_id]
        assert record.state == "open"
        assert set(record.expected) == {("resid_pre", 0), ("resid_pre", 1), ("final_ln", -1)}
    [record] = [one for one in monitoring.open_store(memory_store).read_runs() if one.run_id == watch.run_id]
    assert (record.state, record.accepted, record.written, record.seq_end) == ("closed", 3, 3, 3)
    assert record.details["family"] == "llama"
    assert record.details["heads"] == "4"
    assert record.finished_at >= record.started_at > 0
