"""Rows of TOML to frozen values, every problem listed."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci import rows
from ci.values import Word

pytestmark = pytest.mark.cpu


class Colour(Word):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, kw_only=True)
class Row:
    name: str = "x"
    colour: Colour = Colour.RED
    items: tuple[str, ...] = ()
    on: bool = False
    count: int = 1
    limit: float = 1.0


KEYS = rows.keys_of(Row, without=("name",))


def parse(row):
    problems = []
    return rows.parse_row(row, Row(), place="[row]", keys=KEYS, problems=problems), problems


def test_good_values_replace_the_defaults():
    row, problems = parse({"colour": "blue", "items": ["a"], "on": True, "count": 0, "limit": 3})
    assert row == Row(colour=Colour.BLUE, items=("a",), on=True, count=0, limit=3.0)
    assert problems == []


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"colour": "green"}, "expected one of: red, blue"),
        ({"colour": 3}, "expected a string"),
        ({"items": "a"}, "expected an array of strings"),
        ({"items": [1]}, "expected an array of strings"),
        ({"on": 1}, "expected true or false"),
        ({"count": True}, "expected a whole number"),
        ({"count": -1}, "0 or more"),
        ({"limit": 0}, "above 0"),
        ({"limit": float("inf")}, "above 0"),
        ({"limit": float("nan")}, "above 0"),
        ({"cuont": 1}, "did you mean 'count'"),
        ({"name": "y"}, "unknown key 'name'"),
    ],
)
def test_a_wrong_value_says_what_was_expected(row, words):
    parsed, problems = parse(row)
    assert parsed == Row()
    assert len(problems) == 1
    assert words in problems[0]
    assert problems[0].startswith("[row]: ")


VALUES = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=4)


@given(st.dictionaries(st.sampled_from(KEYS) | st.text(), VALUES))
def test_any_row_gives_values_of_the_right_type_or_a_problem_per_key(row):
    parsed, problems = parse(row)
    changed = [key for key in KEYS if getattr(parsed, key) != getattr(Row(), key)]
    assert isinstance(parsed.colour, Colour)
    assert isinstance(parsed.limit, float)
    assert len(problems) <= len(row)
    assert len(problems) + len(changed) <= len(row)
