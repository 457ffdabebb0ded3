"""Whose tokens a forward pass computes: forward arguments -> Session.

    inside generate       -> the session of that call
    with a cache we know  -> the session that filled it
    anything else         -> a new session

State is kept per thread and per cache, so that forward passes of concurrent
requests on one model are never taken for each other.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from monitoring.errors import CaptureError
from monitoring.hooks.inputs import (
    UNKNOWN_PAST,
    Forward,
    TracedCache,
    read_past,
    read_starts,
    read_windows,
    read_windows_from_positions,
)
from monitoring.policy import Schedule
from monitoring.step import Names, Request, Session, StepRow, expand_names


@dataclass(eq=False)
class Generation:
    """One running `generate` call: what its arguments tell about its sequences."""

    prompt: int = 0
    eos: frozenset[int] = field(default_factory=frozenset)
    session: Session | None = None


class _Local(threading.local):
    generation: Generation | None = None
    names: tuple[str, ...] | None = None
    bare: Session | None = None
    traced: Session | None = None


@dataclass(frozen=True)
class Step:
    """One forward pass, placed: rows whose columns count from the first column of the model's input.

    `span` are the session's columns that it computes, padding included.
    """

    session: Session
    prefill: bool
    rows: list[StepRow]
    span: tuple[int, int]


class Sessions:
    """Finds and follows the sessions of one watch. `forget` is told of requests that are over."""

    def __init__(self, schedule: Schedule, forget: Callable[[Request], None]) -> None:
        """Start without sessions."""
        self.padding_side = ""
        self._schedule = schedule
        self._forget = forget
        self._local = _Local()
        self._lock = threading.Lock()
        self._names = Names()
        self._numbers = itertools.count()
        self._named: dict[str, Request] = {}
        self._by_cache: dict[int, tuple[Any, Session]] = {}

    @contextmanager
    def named(self, names: Sequence[str]) -> Iterator[None]:
        """Name the requests of this thread's forward passes within the block, in batch order."""
        names = tuple(names)
        if not names or any(not isinstance(name, str) or not name for name in names):
            raise CaptureError(f"request names are {names!r}, expected one or more non-empty strings, in batch order")
        if len(set(names)) != len(names):
            raise CaptureError("request names repeat within one batch", hint="give each row of the batch its own name")
        outer, self._local.names = self._local.names, names
        try:
            yield
        finally:
            self._local.names = outer

    @contextmanager
    def generating(self, generation: Generation) -> Iterator[None]:
        """Treat this thread's forward passes within the block as steps of one `generate` call."""
        outer, self._local.generation = self._local.generation, generation
        try:
            yield
        finally:
            self._local.generation = outer
            if generation.session is not None:
                for request in generation.session.requests:
                    self._named.pop(request.name, None)
                self._end(generation.session)

    def place(self, forward: Forward) -> Step:
        """Find the session of a forward pass and advance it."""
        session = self._find(forward)
        offset = session.columns if forward.cache is None else 0
        columns = forward.columns - offset
        prefill = session.is_prefill(columns)
        start = session.columns
        windows = None
        if prefill or columns > 1:  # a step of one token is no padding, unless it is a prompt's chunk
            windows = read_windows(forward.mask, batch=forward.batch, start=start, columns=columns)
            if windows is None and forward.mask is None and start == 0:
                windows = read_windows_from_positions(forward.positions, batch=forward.batch, columns=columns)
        if windows is not None:
            self._note_padding(windows, columns)
        last_ids = None
        if session.eos and not prefill and forward.batch > 1 and forward.ids is not None:
            last_ids = forward.ids[:, -1].tolist()
        rows = session.advance(columns, windows=windows, last_ids=last_ids)
        if offset:
            rows = [row._replace(first=row.first + offset, last=row.last + offset) for row in rows]
        return Step(session, prefill, rows, (start, start + columns))

    def _note_padding(self, windows: list[tuple[int, int]], columns: int) -> None:
        if any(first > 0 for first, _ in windows):
            self.padding_side = "left"
        elif not self.padding_side and any(first < last < columns for first, last in windows):
            self.padding_side = "right"

    def bind(self, session: Session, cache: Any) -> None:
        """Remember which session filled a cache, for as long as the cache lives."""
        key = id(cache)
        with self._lock:
            held = self._by_cache.get(key)
            if held is not None and held[1] is session:
                return
            try:
                reference = weakref.ref(cache, lambda _: self._release(key))
            except TypeError:
                return
            self._by_cache[key] = (reference, session)
        if self._local.bare is session:
            self._local.bare = None

    def _find(self, forward: Forward) -> Session:
        generation = self._local.generation
        known = generation.session if generation is not None else None
        known = known or self._known(forward)
        if known is not None and self._continues(known, forward):
            if generation is not None and generation.session is not known:
                self._join(generation, known)
            return known
        if generation is None and (names := self._local.names) is not None and forward.past:
            resumed = self._resume(names, forward)
            if resumed is not None:
                return resumed
        session = self._open(forward)
        if generation is not None:
            self._join(generation, session)
        if isinstance(forward.cache, TracedCache):
            self._local.traced = session
        elif forward.cache is not None:
            self.bind(session, forward.cache)
        elif generation is None:
            if self._local.bare is not None:
                self._end(self._local.bare)
            self._local.bare = session
        return session

    def _join(self, generation: Generation, session: Session) -> None:
        generation.session = session
        session.prompt, session.eos = generation.prompt, generation.eos
        for request in session.requests:
            request.ended = False

    def _continues(self, session: Session, forward: Forward) -> bool:
        if len(session.requests) != max(1, forward.batch):
            return False
        names = self._local.names
        if self._local.generation is None and names is not None and tuple(r.name for r in session.requests) != names:
            return False
        if forward.cache is None:
            return self._local.generation is not None and forward.columns > session.columns
        if forward.past == UNKNOWN_PAST:
            return True
        if forward.past == 0 < session.columns:
            return False
        if forward.past < session.columns:
            session.rewind(forward.past)
        elif forward.past > session.columns:
            session.skip(forward.past)
        return True

    def _resume(self, names: tuple[str, ...], forward: Forward) -> Session | None:
        # A batch whose rows came, went or moved: named requests keep their own token counts.
        requests = [self._named.get(name) for name in names]
        if len(requests) != forward.batch or any(request is None for request in requests):
            return None
        found = [request for request in requests if request is not None]
        return Session(name=found[0].name, requests=found, columns=max(forward.past, 0))

    def _open(self, forward: Forward) -> Session:
        with self._lock:
            name = self._names.session("f" if self._local.generation is None else "g")
            given = self._local.names
            if given is not None:
                names = [self._names.unique(one) for one in expand_names(given, max(1, forward.batch))]
            elif forward.batch:
                names = [f"{name}.r{row}" for row in range(forward.batch)]
            else:  # no tokens to tell rows by: the pass is one request
                names = [name]
            requests = [Request(one, wanted=self._schedule.wants_request(next(self._numbers))) for one in names]
            if given is not None:
                self._named.update(zip(names, requests, strict=True))
        session = Session(name=name, requests=requests)
        if forward.past > 0:  # the cache was filled before anyone watched
            session.columns = forward.past
            starts = read_starts(forward)
            for row, request in enumerate(requests):
                request.tokens = starts[row] if starts is not None else forward.past
        return session

    def _known(self, forward: Forward) -> Session | None:
        cache = forward.cache
        if isinstance(cache, TracedCache):
            return self._local.traced if forward.past else None
        held = self._by_cache.get(id(cache)) if cache is not None else None
        return held[1] if held is not None and held[0]() is cache else None

    def _release(self, key: int) -> None:
        held = self._by_cache.pop(key, None)
        if held is not None:
            self._end(held[1])

    def _end(self, session: Session) -> None:
        for request in {*session.requests, session.batch}:
            if request.name not in self._named:  # a named one may go on in another batch
                self._forget(request)


def output_cache(output: Any) -> Any:
    """Find the cache that a forward pass returned, if it did."""
    # Where there is the new name, asking for the old one warns.
    name = "cache" if hasattr(output, "cache") else "past_key_values"
    found = getattr(output, name, None)
    return found if found is not None and read_past(found) > 0 else None
