"""The one tree of errors of `monitoring`: what was found, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence


class MonitoringError(Exception):
    """A problem that a person can act on: a message, and a hint with the next step."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        """Keep both parts apart, so that an edge can lay them out."""
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        """Give the message, then the hint on a line of its own."""
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class NativeUnavailable(MonitoringError):  # noqa: N818 - named for the state it tells
    """The native library is not there, or does not load; `cause` is the real import error."""

    def __init__(self, message: str, *, hint: str = "", cause: BaseException | None = None) -> None:
        """Keep the import error itself: "not found" and "undefined symbol" need different remedies."""
        super().__init__(message, hint=hint)
        self.cause = cause


class MissingDependency(MonitoringError):  # noqa: N818 - named for the state it tells
    """A library that this step needs (torch, chdb, matplotlib) is not installed."""


class SelectionError(MonitoringError, ValueError):
    """A selection names nothing, an unknown site, or only sites that the model lacks."""


class SiteUnreachable(MonitoringError):  # noqa: N818 - named for the state it tells
    """A site exists in the model, but not where a hook can see it; the hint names the way out."""


class PolicyError(MonitoringError, ValueError):
    """A capture policy holds a value that is not allowed."""


class CaptureError(MonitoringError):
    """Capturing cannot start, or a watch is used in a state that does not allow it."""


class CaptureLoss(CaptureError):  # noqa: N818 - named for the state it tells
    """Records were lost and the watch was told to raise on loss."""


class DrainTimeout(CaptureError):  # noqa: N818 - named for the state it tells
    """Records were still on their way to the store when the time limit ran out."""


class StoreError(MonitoringError):
    """A store cannot be opened, prepared, written or read."""


class StoreUrlError(StoreError, ValueError):
    """A store's URL cannot be read, or holds an identifier that is not allowed."""


class SchemaError(StoreError):
    """A store holds tables of another layout than this version writes."""


class RunNotFound(StoreError, LookupError):  # noqa: N818 - named for the state it tells
    """A store holds no run of that name."""


class IncompleteRun(MonitoringError):  # noqa: N818 - named for the state it tells
    """A run lacks records; `missing` lists what, one line each."""

    def __init__(self, message: str, *, hint: str = "", missing: Sequence[str] = ()) -> None:
        """Keep the list, so that a caller can act on it."""
        super().__init__(message, hint=hint)
        self.missing = tuple(missing)
