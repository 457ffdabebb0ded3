"""Blocks: what changes a digest, what does not, and where code objects belong."""

from __future__ import annotations

import ast
import textwrap
from types import CodeType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.impact.blocks import MODULE, Blocks, parse_blocks

pytestmark = pytest.mark.cpu

SOURCE = '''
"""Module text."""
import os

LIMIT = 3


class Box:
    size = 1

    @property
    def value(self):
        """Say it."""
        return self.size

    @value.setter
    def value(self, new):
        self.size = new


def outer(x, *, y=LIMIT):
    total = [x * i for i in range(y)]

    def inner():
        return total

    return inner, lambda: total
'''


def split(text: str, **options: bool) -> Blocks:
    return parse_blocks(textwrap.dedent(text).encode(), **options)


def differing(before: str, after: str) -> set[str]:
    one, two = split(before).digests, split(after).digests
    return {name for name in one.keys() | two.keys() if one.get(name) != two.get(name)}


def test_names_are_qualified_and_repeated_ones_are_numbered() -> None:
    names = {"<module>", "Box.value", "Box.value#2", "outer", "outer.<locals>.inner"}
    assert set(split(SOURCE).digests) == names


@pytest.mark.parametrize(
    ("old", "new", "blocks"),
    [
        ("LIMIT = 3", "LIMIT = 3  # three", set()),
        ("LIMIT = 3", "LIMIT = (3)", set()),
        ("LIMIT = 3", "LIMIT = 0x3", set()),
        ("import os", "import os\n\n\n", set()),
        ("return self.size", "return (self\n            .size)", set()),
        ("LIMIT = 3", "LIMIT = 4", {MODULE}),
        ("LIMIT = 3", "LIMIT = True", {MODULE}),
        ("size = 1", "size = 1.0", {MODULE}),
        ("Say it.", "Say that.", {MODULE}),
        ("Module text.", "Other text.", {MODULE}),
        ("y=LIMIT", "y=2", {MODULE}),
        ("def value(self, new)", "def value(self, other)", {MODULE}),
        ("@property", "@functools.cached_property", {MODULE}),
        ("return self.size", "return self.size + 0", {"Box.value"}),
        ("self.size = new", "self.size = new * 2", {"Box.value#2"}),
        ("return total\n", "return total[0]\n", {"outer.<locals>.inner"}),
        ("lambda: total", "lambda: 0", {"outer"}),
        ("x * i for", "x + i for", {"outer"}),
        ("def inner():", "def inner(a=1):", {"outer"}),
    ],
)
def test_a_change_differs_in_exactly_its_blocks(old: str, new: str, blocks: set[str]) -> None:
    assert old in SOURCE
    assert differing(SOURCE, SOURCE.replace(old, new, 1)) == blocks


def test_becoming_a_generator_changes_the_header_too() -> None:
    assert differing("def f():\n    return 1\n", "def f():\n    yield 1\n") == {MODULE, "f"}


def test_inert_docstrings_vanish_everywhere() -> None:
    other = SOURCE.replace("Say it.", "Say that.").replace("Module text.", "x")
    assert split(SOURCE, docstrings_inert=True).digests == split(other, docstrings_inert=True).digests


def test_a_string_that_is_no_docstring_still_counts() -> None:
    assert differing("def f():\n    1\n    'a'\n", "def f():\n    1\n    'b'\n") == {"f"}


def test_line_ends_and_byte_order_mark_change_nothing() -> None:
    plain = textwrap.dedent(SOURCE).encode()
    assert parse_blocks(plain.replace(b"\n", b"\r\n")).digests == parse_blocks(plain).digests
    assert parse_blocks(b"\xef\xbb\xbf" + plain).digests == parse_blocks(plain).digests


@pytest.mark.parametrize("source", [b"def f(:\n", b"\0", b"x = '\xff'\n", b"(" * 5000])
def test_what_cannot_be_parsed_is_one_block_over_its_bytes(source: bytes) -> None:
    found = parse_blocks(source)
    assert found.problem
    assert [block.name for block in found.blocks] == [MODULE]
    assert found.digests != parse_blocks(source + b"\n").digests


def test_very_long_integers_are_digested() -> None:
    assert not split(f"x = 0x{'f' * 5000}\n").problem


def test_every_code_object_finds_the_block_that_holds_its_statements() -> None:
    source = textwrap.dedent(SOURCE)
    blocks = parse_blocks(source.encode())
    found: dict[str, list[str]] = {}

    def walk(code: CodeType) -> None:
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                block = blocks.find(name=constant.co_name, line=constant.co_firstlineno)
                found.setdefault(block.name, []).append(constant.co_name)
                walk(constant)

    walk(compile(source, "x.py", "exec"))
    assert found["Box.value"] == ["value"]
    assert found["Box.value#2"] == ["value"]
    assert found["outer.<locals>.inner"] == ["inner"]
    assert set(found["outer"]) >= {"outer", "<lambda>"}
    assert found[MODULE] == ["Box"]


@given(st.binary(max_size=200))
def test_no_bytes_raise(source: bytes) -> None:
    assert parse_blocks(source).module.name == MODULE


@given(st.sampled_from(["x = 1", "def f(a, b=2): return a", "class C:\n  def m(self): yield", "async def g(): pass"]))
def test_printing_a_tree_again_changes_no_digest(source: str) -> None:
    assert split(source).digests == split(ast.unparse(ast.parse(source))).digests
