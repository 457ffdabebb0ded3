"""The ledger: it balances, and it shows what was lost."""

from __future__ import annotations

import pytest

from monitoring.stats import Stats, parse_stats

pytestmark = pytest.mark.cpu


def snapshot(**changes):
    ring = {
        "accepted": 10, "written": 6, "pending": 1, "dropped": {"deadline": 2, "newest": 0},
        "failed": {"hook": 1, "fatal": 0}, "bytes_accepted": 100, "bytes_written": 60, "seq_end": 10, "last_error": "",
    }  # fmt: skip
    return parse_stats(ring | changes, skipped_steps=3)


def test_the_balance_counts_every_reason():
    stats = snapshot()
    assert (stats.dropped, stats.failed, stats.lost, stats.pending) == (2, 1, 3, 1)
    assert stats.balanced
    assert stats.losses == {"dropped:deadline": 2, "failed:hook": 1}
    assert stats.skipped_steps == 3


def test_an_unbalanced_snapshot_says_so():
    assert not snapshot(written=5).balanced


def test_the_text_shows_the_equation_the_losses_and_the_errors():
    stats = snapshot(last_error="refused")
    assert str(stats).splitlines() == [
        "accepted 10 = 6 written + 2 dropped + 1 failed + 1 pending",
        "lost: 2 dropped:deadline, 1 failed:hook",
        "last error: refused",
    ]
    assert "error (2x): boom" in str(Stats(errors={"boom": 2}))
