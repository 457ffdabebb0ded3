"""Glob patterns over repository paths.

A pattern without `/` matches the name of a file in any folder (`*.md`); one
with `/` matches the whole path from the root. `*` and `?` stay within one
name, `**` spans folders, `[ab]` is a set.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache


def matches(path: str, patterns: Iterable[str]) -> str:
    """Give the first pattern that matches, or ""."""
    name = path.rpartition("/")[2]
    for pattern in patterns:
        if compile_pattern(pattern).fullmatch(path if "/" in pattern else name):
            return pattern
    return ""


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Translate a glob into a regular expression."""
    words: list[str] = []
    rest = pattern.removeprefix("./").removeprefix("/")
    if rest.endswith("/"):
        rest += "**"
    while rest:
        if rest.startswith("**/"):
            words.append("(?:[^/]+/)*")
            rest = rest[3:]
        elif rest.startswith("**"):
            words.append(".*")
            rest = rest[2:]
        elif rest[0] == "*":
            words.append("[^/]*")
            rest = rest[1:]
        elif rest[0] == "?":
            words.append("[^/]")
            rest = rest[1:]
        elif rest[0] == "[" and "]" in rest[2:]:
            end = rest.index("]", 2)
            inside = rest[1:end].replace("\\", "\\\\")
            words.append(f"[^{inside[1:]}]" if inside[0] == "!" else f"[{inside}]")
            rest = rest[end + 1 :]
        else:
            words.append(re.escape(rest[0]))
            rest = rest[1:]
    try:
        return re.compile("".join(words), re.DOTALL)
    except re.error:
        # A broken set is taken as the text it is.
        return re.compile(re.escape(pattern))
