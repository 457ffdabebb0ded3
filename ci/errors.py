"""The one tree of errors: what was found, what to do next, and the exit code.

Codes 0 and 1 are verdicts (green, red), never errors. 5 stays free because
pytest uses it for "no tests collected", which must never be mistaken for a
verdict of ours.
"""

from __future__ import annotations

from typing import ClassVar


class CiError(Exception):
    """A problem that ends a command with a message, a hint and an exit code.

    Raised anywhere, caught once, in `ci.cli.main`. The message says what was
    found and what was expected; the hint says what to do next.
    """

    exit_code: ClassVar[int] = 70

    def __init__(self, message: str, *, hint: str = "") -> None:
        """Keep both parts apart, so that an edge can lay them out."""
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        """Give the message, then the hint on a line of its own."""
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class UsageError(CiError):
    """The command line asks for something that does not exist or cannot be combined."""

    exit_code = 2


class InfrastructureError(CiError):
    """The machine is not fit: devices, ranks or services are missing, busy or broken."""

    exit_code = 3


class ConfigError(CiError):
    """A configuration file cannot be read or holds something that is not allowed."""

    exit_code = 4


class GitError(CiError):
    """git is missing, failed, or does not know a revision."""

    exit_code = 6


class ManifestError(CiError):
    """A manifest cannot be built, read or published."""

    exit_code = 7


class WorkflowError(CiError):
    """The workflow folder cannot be read at all (a bad workflow file is a finding instead)."""

    exit_code = 8


class ProcessError(CiError):
    """A program that a step needs is missing, failed or ran past its limit."""

    exit_code = 9


class ReportError(CiError):
    """A report cannot be written or read (a full disk, a damaged file)."""

    exit_code = 10


class PackageError(CiError):
    """A built distribution is not what it must be."""

    exit_code = 11
