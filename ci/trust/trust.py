"""The words of the audit: code trust, states, severities."""

from __future__ import annotations

from ci.values import Word


class Trust(Word):
    """Whose code a job runs, from least to most trusted."""

    UNTRUSTED = "untrusted"  # a fork's
    DEPENDENCY_BOT = "dependency-bot"
    VETTED = "vetted"  # somebody with write access chose exactly this commit
    APPROVED = "approved"  # waited for an environment's reviewers
    INTERNAL = "internal"  # written by somebody with write access
    TRUSTED = "trusted"  # the default branch, a tag, the merge queue

    @property
    def rank(self) -> int:
        """Give the place in the order, 0 the least trusted."""
        return list(Trust).index(self)

    def at_most(self, other: Trust) -> Trust:
        """Give the lower of two."""
        return self if self.rank <= other.rank else other


class State(Word):
    """What becomes of a job on an event."""

    RUNS = "runs"
    MAYBE = "maybe"
    SKIPPED = "skipped"
    WAITS = "waits"
    INVALID = "invalid"

    @property
    def reachable(self) -> bool:
        """Tell whether the job may start without anybody else's consent."""
        return self in (State.RUNS, State.MAYBE)


class Kind(Word):
    """Where a job runs."""

    HOSTED = "hosted"
    SELF_HOSTED = "self-hosted"
    UNKNOWN = "unknown"
    NONE = "none"

    @property
    def exposed(self) -> bool:
        """Tell whether it counts as a machine of our own."""
        return self in (Kind.SELF_HOSTED, Kind.UNKNOWN)


class Severity(Word):
    """What a finding does: fail the audit, warn, or name a setting outside the files."""

    FAIL = "fail"
    WARN = "warn"
    SETTING = "setting"
