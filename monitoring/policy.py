"""What to capture when, and what to do when the store cannot keep up.

    selection (which sites) -> schedule (which steps, which requests) -> backpressure (a full ring)

What the schedule leaves out was never asked for, so it is no loss; it is shown
as `skipped`. What backpressure drops is a loss, counted with its reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from monitoring.errors import PolicyError


class Phase(str, Enum):
    """Which part of a generation to capture: prefill computes a prompt, decode the tokens after it."""

    ALL = "all"
    PREFILL = "prefill"
    DECODE = "decode"


class Mode(str, Enum):
    """What a full ring does: wait, refuse the new record, give up the oldest, or thin out early."""

    BLOCK = "block"
    DROP_NEWEST = "drop_newest"
    DROP_OLDEST = "drop_oldest"
    SAMPLE = "sample"


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Which forward passes and requests are captured.

    `every_steps=N` keeps the forward passes 0, N, 2N, ... after `warmup_steps`;
    `every_requests=N` keeps the requests 0, N, 2N, ... in order of arrival. A
    request is kept or left whole, a step likewise.
    """

    every_steps: int = 1
    every_requests: int = 1
    warmup_steps: int = 0
    phase: Phase = Phase.ALL

    def __post_init__(self) -> None:
        """Refuse counts that mean nothing."""
        for name, least in (("every_steps", 1), ("every_requests", 1), ("warmup_steps", 0)):
            _check_count(name, getattr(self, name), least=least)
        object.__setattr__(self, "phase", _word(Phase, self.phase, "phase"))

    @property
    def keeps_everything(self) -> bool:
        """Whether nothing is ever left out."""
        return self == Schedule()

    def wants_step(self, step: int, *, prefill: bool) -> bool:
        """Decide about forward pass number `step`, counted from 0."""
        if step < self.warmup_steps or (step - self.warmup_steps) % self.every_steps:
            return False
        return self.phase is Phase.ALL or (self.phase is Phase.PREFILL) == prefill

    def wants_request(self, number: int) -> bool:
        """Decide about request `number`, counted from 0 in order of arrival."""
        return number % self.every_requests == 0


@dataclass(frozen=True, kw_only=True)
class Backpressure:
    """What happens when the ring is full.

    `deadline` (seconds) is the longest that `block` holds the model up, once per
    record; then the record is dropped and counted. `sample` keeps every
    `sample_every`-th record while the ring is at least half full, and drops the
    newest when it is full.
    """

    mode: Mode = Mode.BLOCK
    deadline: float = 5.0
    sample_every: int = 8

    def __post_init__(self) -> None:
        """Refuse limits that mean nothing."""
        object.__setattr__(self, "mode", _word(Mode, self.mode, "backpressure mode"))
        if not 0 <= float(self.deadline) <= 3600:
            raise PolicyError(f"deadline is {self.deadline!r}, expected seconds from 0 to 3600")
        _check_count("sample_every", self.sample_every, least=1)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of the ring and of the drain; bytes and seconds.

    A full batch goes to the store at `batch_bytes`, at `batch_records` or after
    `flush_interval`, whichever comes first: sparse captures become visible in time.
    """

    ring_bytes: int = 64 << 20
    ring_records: int = 1 << 16
    batch_bytes: int = 4 << 20
    batch_records: int = 4096
    flush_interval: float = 0.25

    def __post_init__(self) -> None:
        """Refuse bounds that mean nothing."""
        for name, least in (("ring_bytes", 4096), ("ring_records", 2), ("batch_bytes", 1), ("batch_records", 1)):
            _check_count(name, getattr(self, name), least=least)
        if not 0 < float(self.flush_interval) <= 3600:
            raise PolicyError(f"flush_interval is {self.flush_interval!r}, expected seconds above 0, up to 3600")


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """What happens when the store cannot be reached.

    A block is tried again with growing pauses for `retry_seconds`, then kept in a
    file in `spool_dir` ("" for none) up to `spool_bytes` in all, then counted as
    failed.
    """

    retry_seconds: float = 10.0
    spool_dir: str = ""
    spool_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        """Refuse limits that mean nothing."""
        if not 0 <= float(self.retry_seconds) <= 86400:
            raise PolicyError(f"retry_seconds is {self.retry_seconds!r}, expected seconds from 0 to 86400")
        _check_count("spool_bytes", self.spool_bytes, least=0)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """One object for everything a watch may do: schedule, backpressure, limits, delivery."""

    schedule: Schedule = field(default_factory=Schedule)
    backpressure: Backpressure = field(default_factory=Backpressure)
    limits: Limits = field(default_factory=Limits)
    delivery: Delivery = field(default_factory=Delivery)


def _check_count(name: str, value: object, *, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise PolicyError(f"{name} is {value!r}, expected a whole number of at least {least}")


def _word(kind: type[Enum], value: object, what: str) -> Enum:
    try:
        return kind(value)
    except ValueError:
        choices = ", ".join(str(member.value) for member in kind)
        raise PolicyError(f"{what} is {value!r}, expected one of: {choices}") from None
