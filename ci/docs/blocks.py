"""Replace the generated parts of a Markdown text. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from ci.errors import ConfigError

BLOCK = re.compile(
    r"(?P<start><!-- generated: (?P<name>[\w-]+) -->\n)(?P<body>.*?)(?P<end><!-- end: (?P=name) -->)", re.DOTALL
)
START = re.compile(r"<!-- generated: ([\w-]+) -->")


def replace_blocks(text: str, renderers: Mapping[str, Callable[[], str]], *, source: str) -> str:
    """Render every block anew; raises `ConfigError` for an unknown or unclosed block."""
    starts = START.findall(text)
    closed = [match["name"] for match in BLOCK.finditer(text)]
    if starts != closed:
        broken = next(name for name in starts if starts.count(name) != closed.count(name))
        raise ConfigError(f"{source}: the generated block {broken!r} has no end", hint=f"add <!-- end: {broken} -->")
    unknown = [name for name in starts if name not in renderers]
    if unknown:
        raise ConfigError(
            f"{source}: there is no generated block {unknown[0]!r}", hint=f"blocks: {', '.join(sorted(renderers))}"
        )
    return BLOCK.sub(lambda match: f"{match['start']}\n{renderers[match['name']]().strip()}\n\n{match['end']}", text)


def render_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Render a Markdown table; `|` and line ends in cells are made harmless."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines) + "\n"


def code(text: str) -> str:
    """Set text as code, or leave it empty."""
    return f"`{text}`" if text else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
