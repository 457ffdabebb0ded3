"""Branch and tag filters: `*` stops at `/`, `**` does not, `?` and `+` repeat, `[]`, `!` in order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache


@lru_cache(maxsize=4096)
def compile_glob(pattern: str) -> re.Pattern[str] | None:
    """Compile one pattern, without its `!`; None for one that cannot match anything."""
    pieces: list[str] = []
    position = 0
    while position < len(pattern):
        character = pattern[position]
        position += 1
        if character == "*":
            if pattern[position : position + 1] == "*":
                position += 1
                following = pattern[position : position + 1]
                # `**/` also matches no folder at all.
                if following == "/" and (not pieces or pieces[-1] == "/"):
                    pieces.append("(?:.*/)?")
                    position += 1
                else:
                    pieces.append(".*")
            else:
                pieces.append("[^/]*")
        elif character in "?+" and pieces and pieces[-1][-1:] not in "?+":
            pieces[-1] = f"(?:{pieces[-1]}){character}"
        elif character == "[":
            close = pattern.find("]", position + 1)
            if close < 0:
                return None
            pieces.append(_set(pattern[position:close]))
            position = close + 1
        elif character == "\\" and position < len(pattern):
            pieces.append(re.escape(pattern[position]))
            position += 1
        else:
            pieces.append("/" if character == "/" else re.escape(character))
    try:
        return re.compile("".join(pieces), re.DOTALL)
    except re.error:
        return None


def _set(body: str) -> str:
    inner = body.replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^").replace("&&", "&\\&")
    return f"[{inner.replace('--', '-').replace('~~', '~').replace('||', '|')}]"


def match_any(patterns: Sequence[str], name: str) -> bool:
    """Apply patterns in order: the last one that matches decides, `!` takes back."""
    matched = False
    for pattern in patterns:
        negated = pattern.startswith("!")
        compiled = compile_glob(pattern[1:] if negated else pattern)
        if compiled is not None and compiled.fullmatch(name):
            matched = not negated
    return matched


def matches_other(patterns: Sequence[str], name: str) -> bool:
    """Tell whether some name other than `name` can match: what an attacker can choose."""
    return any(not pattern.startswith("!") and pattern != name for pattern in patterns)
