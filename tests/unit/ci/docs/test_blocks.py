"""Generated parts of Markdown."""

import pytest

from ci.docs.blocks import render_table, replace_blocks
from ci.errors import ConfigError

pytestmark = pytest.mark.cpu

PAGE = "# T\n<!-- generated: a -->\nold\n<!-- end: a -->\ntext\n<!-- generated: b -->\n<!-- end: b -->\n"


def test_blocks_are_replaced_and_the_rest_stays():
    fresh = replace_blocks(PAGE, {"a": lambda: "new", "b": lambda: "| x |"}, source="p")
    assert "old" not in fresh
    assert fresh.startswith("# T\n<!-- generated: a -->\n\nnew\n\n<!-- end: a -->\ntext\n")
    assert replace_blocks(fresh, {"a": lambda: "new", "b": lambda: "| x |"}, source="p") == fresh


def test_a_backslash_in_a_table_is_kept_as_it_is():
    assert r"\g<0>" in replace_blocks(PAGE, {"a": lambda: r"\g<0>", "b": str}, source="p")


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("<!-- generated: nope -->\n<!-- end: nope -->", "no generated block 'nope'"),
        ("<!-- generated: a -->\ntext", "'a' has no end"),
        ("<!-- generated: a -->\n<!-- end: b -->", "'a' has no end"),
    ],
)
def test_an_unknown_or_unclosed_block_is_named(page, words):
    with pytest.raises(ConfigError, match=words):
        replace_blocks(page, {"a": str, "b": str}, source="p")


def test_cells_cannot_break_a_table():
    assert render_table(("a",), [("x | y\nz",)]) == "| a |\n| --- |\n| x \\| y z |\n"
