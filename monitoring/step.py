"""Which tokens of which request a forward pass computes. Pure bookkeeping: numbers in, rows out.

    generate call or bare forward -> Session (its requests, in batch order)
    forward pass (columns, real-token windows) -> StepRow per request with tokens

A *column* is a position along the token axis of the batch, padding included; a
*token* is counted per request, padding left out. Both count from 0. Nothing is
paired by order alone: a row carries the request it belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class StepRow(NamedTuple):
    """One request in one forward pass.

    Batch row `row` holds the request's real tokens in the columns
    [first, last) of this pass; the first of them is token `token_start`.
    """

    request: Request
    row: int
    first: int
    last: int
    token_start: int


@dataclass(eq=False)
class Request:
    """One sequence, followed over the forward passes that compute it.

    `tokens` counts what was computed so far. `wanted` is the schedule's word;
    `ended` is set once the sequence's own end token was computed: what
    `generate` feeds afterwards is filler for the sake of the other rows.
    `number` is what the ring knows the request by, -1 until it is asked.
    """

    name: str
    wanted: bool = True
    tokens: int = 0
    ended: bool = False
    number: int = -1


@dataclass(eq=False)
class Session:
    """The requests of one batch, in batch order, and how many columns the model has computed.

    `prompt` is the number of prompt columns where a generate call told it.
    `batch` stands for all rows together: what a whole module's output belongs to.
    `eos` are the end tokens by which a row's end can be seen; empty when rows
    do not end one by one (beam search, a bare forward).
    """

    name: str
    requests: list[Request]
    columns: int = 0
    prompt: int = 0
    eos: frozenset[int] = field(default_factory=frozenset)
    batch: Request = field(init=False)

    def __post_init__(self) -> None:
        """Let a batch of one request be that request."""
        self.batch = self.requests[0] if len(self.requests) == 1 else Request(self.name)

    def is_prefill(self, columns: int) -> bool:
        """Whether a pass over the next `columns` columns still computes the prompt."""
        if self.prompt:
            return self.columns < self.prompt
        return self.columns == 0 or columns > 1

    def rewind(self, columns: int) -> None:
        """Take back computed columns: the cache was cropped to `columns` (assisted decoding)."""
        back = self.columns - columns
        for request in self.requests:
            request.tokens = max(0, request.tokens - back)
        self.columns = columns

    def skip(self, columns: int) -> None:
        """Account for columns computed while nobody watched; they count as real tokens."""
        ahead = columns - self.columns
        for request in self.requests:
            request.tokens += ahead
        self.columns = columns

    def advance(
        self, columns: int, *, windows: Sequence[tuple[int, int]] | None = None, last_ids: Sequence[int] | None = None
    ) -> list[StepRow]:
        """Account for one forward pass over `columns` new columns; the rows that hold tokens.

        `windows[row]` are the columns [first, last) of this pass that hold real
        tokens (None: all of them). `last_ids` are the tokens in the pass's last
        column, needed only to see rows end.
        """
        rows = []
        for row, request in enumerate(self.requests):
            first, last = windows[row] if windows is not None else (0, columns)
            if request.ended or first >= last:
                continue
            rows.append(StepRow(request, row, first, last, request.tokens))
            request.tokens += last - first
            if last_ids is not None and self.columns >= self.prompt > 0 and last_ids[row] in self.eos:
                request.ended = True
        self.columns += columns
        return rows


def expand_names(names: Sequence[str], rows: int) -> list[str]:
    """Spread names over a batch that holds each request several times (beams, return sequences).

    Batch row `i * n + j` is copy `j` of name `i`; raises ValueError when the
    rows are not a multiple of the names.
    """
    if not names or rows % len(names):
        raise ValueError(f"{len(names)} request names were given for a batch of {rows} rows")
    copies = rows // len(names)
    if copies == 1:
        return list(names)
    return [f"{name}.s{copy}" for name in names for copy in range(copies)]


class Names:
    """Gives each session and each request of a run a name of its own."""

    def __init__(self) -> None:
        """Start with nothing taken."""
        self._sessions = 0
        self._taken: dict[str, int] = {}

    def session(self, prefix: str) -> str:
        """Name the next session: `g0` for a generate call, `f1` for a bare forward pass."""
        number = self._sessions
        self._sessions += 1
        return f"{prefix}{number}"

    def unique(self, name: str) -> str:
        """Give `name`, or `name#2`, `name#3` ... when it was used before in this run."""
        count = self._taken.get(name, 0) + 1
        self._taken[name] = count
        if count == 1:
            return name
        return self.unique(f"{name}#{count}")
