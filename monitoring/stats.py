"""The ledger of a watch: every record that was accepted, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Stats:
    """One consistent snapshot; counts are rows (one request's tokens at one site and layer).

    `accepted == written + dropped + failed + pending` always; `pending` is 0
    once the watch is closed. `losses` counts dropped and failed by reason.
    `skipped_steps` and `recomputed` were never asked for, so they are no loss:
    forward passes that the schedule left out, and layers that gradient
    checkpointing computed again. `errors` counts contained exceptions by text.
    """

    accepted: int = 0
    written: int = 0
    dropped: int = 0
    failed: int = 0
    pending: int = 0
    bytes_accepted: int = 0
    bytes_written: int = 0
    seq_end: int = 0
    losses: Mapping[str, int] = field(default_factory=dict)
    skipped_steps: int = 0
    recomputed: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    last_error: str = ""

    @property
    def lost(self) -> int:
        """Records that were accepted and will never be in the store."""
        return self.dropped + self.failed

    @property
    def balanced(self) -> bool:
        """Whether every accepted record is accounted for."""
        return self.accepted == self.written + self.dropped + self.failed + self.pending

    def __str__(self) -> str:
        """Show the balance, then what went wrong, line by line."""
        tail = f" + {self.pending} pending" if self.pending else ""
        lines = [
            f"accepted {self.accepted} = {self.written} written + {self.dropped} dropped + {self.failed} failed{tail}"
        ]
        if self.losses:
            lines.append("lost: " + ", ".join(f"{count} {reason}" for reason, count in self.losses.items()))
        lines += [f"error ({count}x): {text}" for text, count in self.errors.items()]
        if self.last_error:
            lines.append(f"last error: {self.last_error}")
        return "\n".join(lines)


def parse_stats(ring: Mapping[str, Any], **more: Any) -> Stats:
    """Turn the ring's snapshot into a ledger; `more` adds what the ring does not know."""
    dropped, failed = dict(ring["dropped"]), dict(ring["failed"])
    losses = {f"dropped:{reason}": count for reason, count in dropped.items() if count}
    losses |= {f"failed:{reason}": count for reason, count in failed.items() if count}
    return Stats(
        accepted=ring["accepted"],
        written=ring["written"],
        dropped=sum(dropped.values()),
        failed=sum(failed.values()),
        pending=ring["pending"],
        bytes_accepted=ring["bytes_accepted"],
        bytes_written=ring["bytes_written"],
        seq_end=ring["seq_end"],
        losses=losses,
        last_error=ring["last_error"],
        **more,
    )
