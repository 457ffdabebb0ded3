"""Closed sets of words."""

from __future__ import annotations

from enum import Enum
from typing import TypeVar

from ci.errors import UsageError

T = TypeVar("T", bound="Word")


class Word(str, Enum):
    """A member of a closed set; it prints as its value.

    Python 3.10 has no `enum.StrEnum`; this is the part of it that we use.
    """

    def __str__(self) -> str:
        """Print as the bare word."""
        return str(self.value)

    @classmethod
    def parse(cls: type[T], text: str, *, what: str) -> T:
        """Read a word; `what` names the setting in the error that lists the choices."""
        try:
            return cls(text)
        except ValueError:
            choices = ", ".join(member.value for member in cls)
            raise UsageError(f"{what} is {text!r}, expected one of: {choices}") from None
