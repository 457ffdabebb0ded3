"""From a hook to the ring: Point + tensor -> rows of the running forward pass.

    step hook on the model -> `begin` (sessions, schedule, ring plan)
    hook on a module       -> the short way (native, plain tensors) or Tap.take -> `push_rows`
    an exception           -> counted, its text kept; it never reaches the model

The state of a forward pass is kept per thread.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch

from monitoring import ops
from monitoring.errors import CaptureError
from monitoring.hooks.inputs import Forward, TracedCache
from monitoring.hooks.points import WHOLE, Extent, Point, by_token, square
from monitoring.hooks.sessions import Sessions
from monitoring.hooks.short import open_short_way
from monitoring.policy import Policy
from monitoring.step import Request, Session

NO_STEP = -1
"""`Pass.plan` outside a forward pass."""
SKIPPED = -2
"""`Pass.plan` in a forward pass that the schedule leaves out."""
KEPT_ERRORS = 8


class Pass:
    """One forward pass under way; `cached` says that it was given its cache, so its output brings no new one."""

    __slots__ = ("cached", "extent", "plan", "rows", "session", "span", "step", "whole_request")

    def __init__(self, plan: int, *, session: Session | None = None) -> None:
        """Begin with nothing recorded."""
        self.plan = plan
        self.session = session
        self.cached = False
        self.extent = Extent(0, 0)
        self.rows = 0
        self.span = (0, 0)
        self.step = -1
        self.whole_request = -1


_NO_PASS = Pass(NO_STEP)


class StepState(threading.local):
    """What this thread runs.

    `announced` says that the watched model runs and has yet to call its decoder;
    `alone` that the decoder was called without it.
    """

    now: Pass = _NO_PASS
    announced: bool = False
    alone: bool = False


class Tap:
    """One point being watched: knows its ring slot, hands tensors on."""

    __slots__ = ("_dtype", "_plain", "_slot", "_slots", "_token_dim", "index", "point", "recorder")

    def __init__(self, recorder: Recorder, point: Point, index: int) -> None:
        """Start without a slot: the first tensor tells the dtype."""
        self.recorder = recorder
        self.point = point
        self.index = index
        self._plain = point.view in (by_token, square)
        self._token_dim = 2 if point.view is square else 1
        self._dtype: torch.dtype | None = None
        self._slot = -1
        self._slots: dict[torch.dtype, int] = {}

    def take(self, tensor: torch.Tensor) -> None:
        """Copy the tensor's rows into the ring: the long way, for any tensor."""
        recorder = self.recorder
        now = recorder.state.now
        if now.plan < 0:
            recorder.missed(self, now.plan)
            return
        laid = self.point.view(tensor.detach(), now.extent)
        data = laid.tensor
        if data.dtype is not self._dtype:
            self._rebind(data.dtype)
        stream = recorder.stream_of(data)
        call = recorder.short.call(self.index)
        shape, place, size = tuple(laid.shape), data.data_ptr(), data.nbytes
        if laid.token_dim == WHOLE:
            start, end = now.span
            push = recorder.ring.push
            push(self._slot, now.whole_request, now.step, call, start, end, shape, place, size, stream)
        else:
            push_rows = recorder.ring.push_rows
            push_rows(self._slot, now.plan, call, laid.token_dim, shape, place, size, laid.column, stream)

    def failed(self, error: BaseException) -> None:
        """Contain an exception of this point's hook; every row of the pass is lost here."""
        where = f"{self.point.name} layer {self.point.layer}" if self.point.layer >= 0 else self.point.name
        self.recorder.failed(where, error, records=max(1, self.recorder.state.now.rows))

    def _rebind(self, dtype: torch.dtype) -> None:
        slot = self._slots.get(dtype)
        if slot is None:
            slot = self.recorder.declare(self.point, str(dtype).removeprefix("torch."))
            self._slots[dtype] = slot
        self._slot = slot
        self._dtype = dtype
        if self._plain:
            self.recorder.short.bind(self.index, slot, self._token_dim, dtype)


class Recorder:
    """Everything that the hooks of one watch share."""

    def __init__(
        self, points: Iterable[Point], *, native: Any, ring: Any, policy: Policy, device: int, shard_rank: int
    ) -> None:
        """Make a tap for each point; `device` is -1 for host memory, else the CUDA device."""
        self.ring = ring
        self.device = device
        self.state = StepState()
        self.taps = tuple(Tap(self, point, index) for index, point in enumerate(points))
        self.short = open_short_way(native, ring, len(self.taps), device=device)
        self.token: torch.Tensor = torch.zeros(1, device="cpu" if device < 0 else f"cuda:{device}")
        self.sessions = Sessions(policy.schedule, self._forget)
        self.errors: Counter[str] = Counter()
        self.skipped_steps = 0
        self.recomputed = 0
        self._schedule = policy.schedule
        self._shard_rank = shard_rank
        self._steps = itertools.count()
        self._lock = threading.Lock()
        self.number = ops.register(self)

    def close(self) -> None:
        """Let compiled graphs forget this recorder."""
        ops.unregister(self.number)

    def declare(self, point: Point, dtype: str) -> int:
        """Intern a site, a layer and a dtype in the ring."""
        return int(self.ring.declare(point.name, point.layer, self._shard_rank, dtype))

    def begin(self, forward: Forward) -> None:
        """Begin a forward pass: place it, ask the schedule, tell the ring its rows."""
        self.end()
        step = self.sessions.place(forward)
        number = next(self._steps)
        wanted = self._schedule.wants_step(number, prefill=step.prefill)
        session = step.session
        rows = [row for row in step.rows if row.request.wanted]
        if not wanted or not (rows or (forward.batch == 0 and session.batch.wanted)):
            self.state.now = Pass(SKIPPED, session=session)
            with self._lock:
                self.skipped_steps += 1
            return
        entries = [(self._number(row.request), row.row, row.first, row.last, row.token_start) for row in rows]
        now = Pass(int(self.ring.plan(number, entries)), session=session)
        now.step = number
        now.rows = len(entries)
        now.extent = Extent(forward.batch, forward.columns, step.span[0] if forward.cache is not None else 0)
        now.span = step.span
        now.cached = forward.cache is not None
        now.whole_request = self._number(session.batch)
        self.short.enter(now.plan, forward.batch)
        self.state.now = now

    def facts(self) -> dict[str, str]:
        """Tell what only running showed, for the run's record."""
        side = self.sessions.padding_side
        return {"padding_side": side} if side else {}

    def end(self) -> None:
        """End this thread's forward pass."""
        self.state.now = _NO_PASS
        self.short.leave()

    def guard(self, what: str, action: Callable[[], Any]) -> Any:
        """Run a piece of bookkeeping; contain and count its exception."""
        try:
            return action()
        except Exception as error:  # noqa: BLE001 - a hook's border: counted, kept, shown
            self.failed(what, error, records=0)
            return None

    def failed(self, what: str, error: BaseException, *, records: int = 1) -> None:
        """Count an exception in a hook, and the records that it cost."""
        text = f"{what}: {type(error).__name__}: {error}"
        with self._lock:
            if text in self.errors or len(self.errors) < KEPT_ERRORS:
                self.errors[text] += 1
            else:
                self.errors["further errors"] += 1
        if records:
            self.ring.lost("hook", records)

    def missed(self, tap: Tap, plan: int) -> None:
        """Judge a hook that ran without a forward pass to belong to."""
        if plan == SKIPPED:
            return
        if _in_backward():  # gradient checkpointing computes a layer again: the same record, already taken
            with self._lock:
                self.recomputed += 1
            return
        tap.failed(CaptureError("the module ran outside a forward pass of the watched model"))

    def receive(self, index: int, tensor: torch.Tensor) -> None:
        """Take a tensor from a compiled graph."""
        tap = self.taps[index]
        try:
            if self.short.take(index, tensor) < 0:
                tap.take(tensor)
        except Exception as error:  # noqa: BLE001 - a hook's border: counted, kept, shown
            tap.failed(error)

    def receive_step(
        self,
        ids: torch.Tensor | None,
        mask: torch.Tensor | None,
        positions: torch.Tensor | None,
        past: int,
        batch: int,
        columns: int,
    ) -> None:
        """Begin a forward pass from a compiled graph, where no cache object can be told."""
        forward = Forward(ids, mask, positions, None if past < 0 else TracedCache(), max(past, 0), batch, columns)
        self.guard("step", lambda: self.begin(forward))

    def stream_of(self, tensor: torch.Tensor) -> int:
        """Give the CUDA stream that computes the tensor; 0 on the host."""
        if self.device < 0:
            if tensor.device.type != "cpu":
                raise CaptureError(f"a tensor is on {tensor.device}, the watch was opened for host memory")
            return 0
        if tensor.device.index != self.device:
            raise CaptureError(f"a tensor is on {tensor.device}, the watch was opened for cuda:{self.device}")
        return int(torch.cuda.current_stream(tensor.device).cuda_stream)

    def _number(self, request: Request) -> int:
        if request.number < 0:
            request.number = int(self.ring.request(request.name))
        return request.number

    def _forget(self, request: Request) -> None:
        number, request.number = request.number, -1
        if number >= 0:
            self.ring.forget(number)


def _in_backward() -> bool:
    return bool(torch._C._current_graph_task_id() != -1)  # noqa: SLF001 - what torch's own checkpointing asks
