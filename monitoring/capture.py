"""Watching a model: selection + store + policy -> Monitor, a context manager.

open:  family -> points -> ring and store -> hooks, then the run's record
run:   hooks -> recorder -> ring -> drain (native thread) -> store
close: hooks off -> drain -> the run's record, complete or with its losses
"""

from __future__ import annotations

import os
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from monitoring.errors import (
    CaptureError,
    CaptureLoss,
    DrainTimeout,
    MissingDependency,
    MonitoringError,
    NativeUnavailable,
)
from monitoring.hooks.select import Selection, parse_selection
from monitoring.policy import Policy
from monitoring.stats import Stats, parse_stats

if TYPE_CHECKING:
    from torch import nn

    from monitoring.hooks.points import Point


class CaptureWarning(UserWarning):
    """Something asked for was not captured: a site the model lacks, records lost, exceptions in hooks."""


def watch(  # noqa: PLR0913 - what a user may say about a watch
    model: nn.Module,
    *,
    select: str | Iterable[str] = "hidden-states,logits",
    store: str | os.PathLike[str] = "captures",
    policy: Policy | None = None,
    run_id: str | None = None,
    model_id: str | None = None,
    rotary: str = "before",
    shard: tuple[int, int] | None = None,
    raise_on_loss: bool = False,
    close_timeout: float = 60.0,
) -> Monitor:
    """Watch a model: use the result in a `with` block.

    Args:
        model: any `nn.Module`; sites by name need a stock transformers model of a known family.
        select: a selection (see `monitoring.hooks.select`), say `"hidden-states,logits"`.
        store: a folder (embedded ClickHouse), `clickhouse://host:8123/database`, `memory:` or `null:`.
        policy: schedule, backpressure, limits and delivery.
        run_id: name of the run; ranks of one run share it. Default: a new one, which tensor-parallel ranks agree on.
        model_id: name of the model in the rows; default: its configuration's name or its class.
        rotary: take q and k "before" or "after" rotary positions are applied.
        shard: (rank, count) of tensor parallelism; default: found from the model's parameters.
        raise_on_loss: raise `CaptureLoss` on leaving the block when a record was lost.
        close_timeout: seconds that leaving the block may spend on draining.

    Raises:
        SelectionError: the selection is wrong, or nothing of it is in the model.
        SiteUnreachable: a site is computed where no hook can see it; the hint names the way out.
        NativeUnavailable: the native library is not there.
        StoreError: the store cannot be opened.

    """
    options = Options(
        selection=parse_selection(select),
        store=store,
        policy=policy or Policy(),
        rotary=rotary,
        raise_on_loss=raise_on_loss,
        close_timeout=close_timeout,
    )
    return Monitor(model, options, run_id=run_id, model_id=model_id, shard=shard)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a watch was asked for; see `watch`."""

    selection: Selection
    store: str | os.PathLike[str]
    policy: Policy
    rotary: str
    raise_on_loss: bool
    close_timeout: float


class Monitor:
    """One watch of one model: it owns its ring, its store and its hooks, and shares nothing with other watches.

    `run_id` and `model_id` are known from the start. All methods may be called
    from any thread; hooks follow each thread's forward passes by themselves.
    """

    def __init__(
        self,
        model: nn.Module,
        options: Options,
        *,
        run_id: str | None = None,
        model_id: str | None = None,
        shard: tuple[int, int] | None = None,
    ) -> None:
        """Check the arguments; nothing is opened before the `with` block is entered."""
        _need_torch()
        from monitoring.hooks import plan

        self._options = options
        self._model = plan.unwrap(model)
        self._rotary = plan.parse_rotary(options.rotary)
        self._shard = plan.find_shard(self._model, shard)
        self.run_id = run_id or plan.agree_run_id(uuid.uuid4().hex, shards=self._shard[1])
        self.model_id = model_id or plan.name_model(self._model)
        self._state = "new"
        self._removers: list[Callable[[], None]] = []
        self._points: tuple[Point, ...] = ()
        self._last = Stats()

    def __enter__(self) -> Monitor:  # noqa: PYI034 - typing.Self needs Python 3.11
        """Open the store, write the run's record, install the hooks."""
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the hooks, drain everything, write the run's record, report losses."""
        try:
            self.close(self._options.close_timeout)
        except MonitoringError:
            if error is None:  # the block's own exception is the one to see
                raise

    def open(self) -> None:
        """Begin to watch; what failed half-way is undone."""
        from monitoring.hooks import plan
        from monitoring.hooks.install import install
        from monitoring.hooks.recorder import Recorder
        from monitoring.native import load_native
        from monitoring.store import open_store

        if self._state != "new":
            raise CaptureError(f"this watch is {self._state}", hint="call monitoring.watch again for another run")
        planned = plan.plan_points(self._model, self._options.selection, self._rotary, shard_rank=self._shard[0])
        for text in planned.warnings:
            warnings.warn(text, CaptureWarning, stacklevel=3)
        self._points = planned.points
        device = plan.find_device(self._model)
        native = load_native()
        self._store = open_store(self._options.store)
        try:
            self._store.prepare()
            self._record = plan.begin_record(
                planned,
                self._model,
                run_id=self.run_id,
                model_id=self.model_id,
                shard=self._shard,
                rotary=self._rotary,
                schedule=self._options.policy.schedule,
            )
            self._store.write_run(self._record)
            self._ring = native.Ring(
                self._store.sink(self._record),
                run_id=self.run_id,
                model_id=self.model_id,
                device=device,
                **plan.ring_options(self._options.policy),
            )
        except BaseException as error:
            self._store.close()
            if isinstance(error, RuntimeError) and device >= 0:
                raise NativeUnavailable(
                    f"the model is on cuda:{device}: {error}",
                    hint="build with LOCKGATE_NATIVE=cuda, or move the model to the CPU",
                    cause=error,
                ) from error
            raise
        try:
            self._recorder = Recorder(
                planned.points,
                native=native,
                ring=self._ring,
                policy=self._options.policy,
                device=device,
                shard_rank=self._shard[0],
            )
            self._removers = install(self._model, self._recorder)
        except BaseException:
            self._ring.close(self._options.close_timeout)
            self._store.close()
            raise
        self._state = "open"

    def requests(self, names: Sequence[str]) -> AbstractContextManager[None]:
        """Name the requests of this thread's forward passes within a block, in batch order.

        A `generate` call that expands the batch (beams, return sequences) gets
        `name.s0`, `name.s1`, ... A name used before continues when the pass has
        a filled cache, and becomes `name#2` when a new sequence begins.
        """
        self._need("open")
        return self._recorder.sessions.named(names)

    def stats(self) -> Stats:
        """Give the ledger as it is now."""
        if self._state != "open":
            return self._last
        return self._snapshot()

    def flush(self, timeout: float = 30.0) -> None:
        """Send what was captured until now; raises `DrainTimeout` when `timeout` seconds do not suffice."""
        self._need("open")
        if not self._ring.flush(timeout):
            stats = self._snapshot()
            cause = f" ({stats.last_error})" if stats.last_error else ""
            raise DrainTimeout(
                f"{stats.pending} of {stats.accepted} records are not stored after {timeout} s{cause}",
                hint="they stay in the ring; flush again, or give more time",
            )

    def close(self, timeout: float = 60.0) -> None:
        """Stop watching and drain for at most about `timeout` seconds; a second call does nothing.

        Raises `CaptureLoss` with `raise_on_loss` when a record was lost, else warns.
        """
        if self._state != "open":
            return
        self._state = "closing"
        for remove in reversed(self._removers):
            remove()
        self._recorder.close()
        self._ring.close(timeout)
        self._last = stats = self._snapshot()
        self._state = "closed"
        try:
            self._store.write_run(_finished(self._record, stats, self._recorder.facts()))
        finally:
            self._store.close()
        self._report(stats)

    def _snapshot(self) -> Stats:
        recorder = self._recorder
        return parse_stats(
            self._ring.stats(),
            skipped_steps=recorder.skipped_steps,
            recomputed=recorder.recomputed,
            errors=dict(recorder.errors),
        )

    def _report(self, stats: Stats) -> None:
        if not stats.lost and not stats.errors:
            return
        text = f"run {self.run_id} lost records or met errors in hooks:\n{stats}"
        if self._options.raise_on_loss and stats.lost:
            raise CaptureLoss(text, hint="see Monitor.stats() for the reasons")
        warnings.warn(text, CaptureWarning, stacklevel=4)

    def _need(self, state: str) -> None:
        if self._state != state:
            raise CaptureError(
                f"this watch is {self._state}, expected it to be {state}", hint="use it inside its with block"
            )


def _need_torch() -> None:
    try:
        import torch  # noqa: F401
    except (ImportError, OSError) as error:  # OSError: a library that torch needs does not load
        raise MissingDependency(
            f"watching a model needs torch, which cannot be imported: {error}",
            hint='pip install "lockgate[monitoring]"',
        ) from error


def _finished(record: Any, stats: Stats, facts: Mapping[str, str]) -> Any:
    now = time.time_ns()
    return replace(
        record,
        state="closed",
        finished_at=now,
        updated_at=now,
        seq_end=stats.seq_end,
        accepted=stats.accepted,
        written=stats.written,
        dropped=stats.dropped,
        failed=stats.failed,
        bytes=stats.bytes_written,
        losses=dict(stats.losses),
        details={**record.details, **facts},
    )
