"""YAML 1.2 text -> nodes with lines; duplicate keys and merge keys are errors.

Only the events of the YAML library are used: its own composers resolve other
YAML versions' words and keep the last of two equal keys.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    MappingEndEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    StreamStartEvent,
)

from ci.trust.values import Value, fold, text_of

MAX_NESTING = 60
MAX_NODES = 50_000
"""Values, also after aliases are followed; a bound against documents that unfold without end."""


class DocumentError(Exception):
    """The text is no document that the service would accept; `line` counts from 1."""

    def __init__(self, message: str, *, line: int) -> None:
        """Keep the line beside the message."""
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, kw_only=True)
class Scalar:
    """A scalar: its text as written, its value by the YAML 1.2 core schema."""

    line: int
    text: str
    value: Value
    block: bool = False
    size: int = 1


@dataclass(frozen=True, kw_only=True)
class Items:
    """A sequence."""

    line: int
    items: tuple[Node, ...] = ()
    size: int = 1


@dataclass(frozen=True, kw_only=True)
class Table:
    """A mapping, in the order of the file; keys are exact."""

    line: int
    entries: dict[str, Node] = field(default_factory=dict)
    key_lines: dict[str, int] = field(default_factory=dict)
    size: int = 1

    def get(self, key: str) -> Node | None:
        """Give the node under a key."""
        return self.entries.get(key)


Node: TypeAlias = Scalar | Items | Table

CORE_TAGS = ("!!", "tag:yaml.org,2002:")
NULLS = frozenset({"", "~", "null", "Null", "NULL"})
BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
INTEGER = re.compile(r"[-+]?[0-9]+", re.ASCII)
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
SPECIAL = re.compile(r"([-+]?)\.(inf|Inf|INF)")


def parse_document(text: str) -> Node:
    """Parse one YAML document; raises `DocumentError`."""
    events = _events(text)
    try:
        root = _Composer(events).document()
        for _ in events:
            pass
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        line = mark.line + 1 if mark is not None else 1
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise DocumentError(f"not valid YAML: {problem}", line=line) from None
    except (ValueError, TypeError, RecursionError, IndexError, AttributeError, KeyError) as error:
        # The YAML library raises these itself on some malformed escapes and directives.
        raise DocumentError(f"not valid YAML: {error}", line=1) from None
    return root


def _events(text: str) -> Iterator[Any]:
    yaml = YAML(typ="safe", pure=True)
    return iter(yaml.parse(text))


class _Composer:
    """Turns the stream of events into nodes; guards the anchors and the bounds."""

    def __init__(self, events: Iterator[Any]) -> None:
        self.events = events
        self.anchors: dict[str, Node | None] = {}
        self.count = 0

    def document(self) -> Node:
        root: Node = Scalar(line=1, text="", value=None)
        documents = 0
        for event in self.events:
            if isinstance(event, (StreamStartEvent, DocumentEndEvent, StreamEndEvent)):
                continue
            if isinstance(event, DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise DocumentError("a second document starts here, expected one", line=_line(event))
                continue
            root = self.node(event, 0)
        return root

    def node(self, event: Any, depth: int) -> Node:
        line = _line(event)
        self.count += 1
        if self.count > MAX_NODES:
            raise DocumentError(f"more than {MAX_NODES:,} values", line=line)
        if depth > MAX_NESTING:
            raise DocumentError(f"nested deeper than {MAX_NESTING} levels", line=line)
        if isinstance(event, AliasEvent):
            found = self.anchors.get(event.anchor)
            if found is None:
                raise DocumentError(f"alias *{event.anchor} has no complete anchor before it", line=line)
            return found
        anchor = event.anchor
        if anchor is not None:
            self.anchors[anchor] = None
        if isinstance(event, ScalarEvent):
            node: Node = _scalar(event)
        elif isinstance(event, SequenceStartEvent):
            node = self.sequence(line, depth)
        else:
            node = self.mapping(line, depth)
        if node.size > MAX_NODES:
            raise DocumentError(f"more than {MAX_NODES:,} values after following aliases", line=line)
        if anchor is not None:
            self.anchors[anchor] = node
        return node

    def sequence(self, line: int, depth: int) -> Items:
        items: list[Node] = []
        for event in self.events:
            if isinstance(event, SequenceEndEvent):
                break
            items.append(self.node(event, depth + 1))
        return Items(line=line, items=tuple(items), size=1 + sum(item.size for item in items))

    def mapping(self, line: int, depth: int) -> Table:
        entries: dict[str, Node] = {}
        lines: dict[str, int] = {}
        folded: dict[str, int] = {}
        for event in self.events:
            if isinstance(event, MappingEndEvent):
                break
            key = self.node(event, depth + 1)
            key_line = _line(event)
            if not isinstance(key, Scalar):
                raise DocumentError("a key is not a scalar", line=key_line)
            name = key.text
            if name == "<<" and isinstance(event, ScalarEvent) and event.style is None:
                raise DocumentError("merge keys (<<) are not allowed in workflows", line=key_line)
            if fold(name) in folded:
                first = folded[fold(name)]
                raise DocumentError(f"key {name!r} is already defined on line {first} (case is ignored)", line=key_line)
            folded[fold(name)] = key_line
            lines[name] = key_line
            entries[name] = self.node(next(self.events), depth + 1)
        size = 1 + sum(node.size + 1 for node in entries.values())
        return Table(line=line, entries=entries, key_lines=lines, size=size)


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _scalar(event: ScalarEvent) -> Scalar:
    text = str(event.value)
    block = event.style in ("|", ">")
    tag = str(event.ctag) if event.ctag is not None else ""
    if tag and tag != "!" and not tag.startswith(CORE_TAGS):
        hint = "; quote the text if it begins with an exclamation mark"
        raise DocumentError(f"tag {tag} is not allowed{hint}", line=_line(event))
    plain = event.style is None and not tag.endswith((":str", "!"))
    return Scalar(line=_line(event), text=text, value=resolve(text) if plain else text, block=block)


def resolve(text: str) -> Value:
    """Resolve a plain scalar by the core schema: `on`, `yes` and `no` are strings."""
    if text in NULLS:
        return None
    if text in BOOLS:
        return BOOLS[text]
    if INTEGER.fullmatch(text) or FLOAT.fullmatch(text):
        return float(text)
    if re.fullmatch(r"0o[0-7]+", text):
        return _float(text[2:], 8)
    if re.fullmatch(r"0x[0-9a-fA-F]+", text):
        return _float(text[2:], 16)
    if text in (".nan", ".NaN", ".NAN"):
        return math.nan
    special = SPECIAL.fullmatch(text)
    if special:
        return -math.inf if special.group(1) == "-" else math.inf
    return text


def _float(digits: str, base: int) -> float:
    try:
        return float(int(digits, base))
    except OverflowError:
        return math.inf


def plain_value(node: Node | None) -> Value:
    """Turn a node into a value of the expression language."""
    if node is None:
        return None
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Items):
        return [plain_value(item) for item in node.items]
    return {key: plain_value(item) for key, item in node.entries.items()}


def node_text(node: Node | None) -> str:
    """Give a scalar's string form; containers and nothing give the empty string."""
    if not isinstance(node, Scalar):
        return ""
    return node.text if isinstance(node.value, str) else text_of(node.value)
