"""The evaluator beyond the vectors: unknown values, limits, traces, no crash on any input."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.trust.evaluate import Scope, deciding, evaluate
from ci.trust.expression import MAX_GROUPS, MAX_LENGTH, parse
from ci.trust.syntax import uses_status
from ci.trust.tokens import ExpressionError
from ci.trust.values import ATTACKER, EvaluationError, OpenObject, Unknown, truth

pytestmark = pytest.mark.cpu

MAYBE = Unknown(reason="not told")
WORD = Unknown(reason="a choice", options=("gpu", "cpu"))
TEXT = Unknown(reason="a title", taints=frozenset({ATTACKER}))
CONTEXTS = {
    "maybe": MAYBE,
    "word": WORD,
    "text": TEXT,
    "sure": Unknown(reason="a commit", truthy=True),
    "never": Unknown(reason="a branch", never=("main", ""), truthy=True),
    "part": OpenObject({"known": "x"}, rest=MAYBE),
    "list": [{"name": "a"}, {"name": TEXT}, {"other": 1.0}],
    "empty": {},
}


def value_of(text, **contexts):
    return evaluate(parse(text), Scope(contexts={**CONTEXTS, **contexts}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("maybe && false", False),
        ("false && maybe", False),
        ("maybe || true", True),
        ("true || maybe", True),
        ("maybe && true", None),
        ("!maybe", None),
        ("maybe == 'x'", None),
        ("sure || maybe", True),
        ("sure == ''", False),
        ("never == 'MAIN'", False),
        ("never == 'other'", None),
        ("word == 'nvme'", False),
        ("word == 'gpu'", None),
        ("word != ''", True),
        ("word == 'gpu' || word == 'cpu'", None),
        ('contains(fromJSON(\'["gpu", "cpu"]\'), word)', True),
        ("contains(word, 'pu')", True),
        ("startsWith(format('ci-{0}', text), 'ci-')", True),
        ("startsWith(format('ci-{0}', text), 'gpu-')", False),
        ("format('ci-{0}', text) == 'cd-main'", False),
        ("format('ci-{0}', text) == 'ci-main'", None),
        ("contains(format('{0}-main', text), 'main')", True),
        ("contains(text, '')", True),
        ("contains(list.*.name, 'a')", True),
        ("contains(list.*.name, 'z')", None),
        ("contains(list.*.other, 'z')", False),
        ("part.known == 'x'", True),
        ("part.other == 'x'", None),
        ("empty.other == null", True),
        ("case(maybe, 'a', 'b') == 'c'", False),
        ("fromJSON(maybe).x == 1", None),
        ("toJSON(text)", True),
        ("maybe && fromJSON('')", None),
        ("hashFiles('**') == 'x'", None),
    ],
)
def test_three_values(text, expected):
    found = evaluate(
        parse(text, functions={"hashfiles", "contains", "startswith", "format", "fromjson", "tojson", "case"}),
        Scope(contexts=CONTEXTS),
    )
    assert truth(found) is expected


def test_an_unknown_choice_keeps_its_possible_results():
    found = value_of("maybe && 'gpu-pool' || 'ubuntu-latest'")
    assert set(found.options) == {"gpu-pool", "ubuntu-latest"}


def test_an_open_unknown_with_a_fallback_stays_open_and_is_truthy():
    found = value_of("maybe || 'gpu-pool'")
    assert found.options is None
    assert truth(found) is True


def test_taints_travel_through_functions_but_a_comparison_is_a_closed_word():
    assert ATTACKER in value_of("format('{0}!', text)").taints
    assert ATTACKER in value_of("toJSON(list)").taints
    assert set(value_of("text == 'x'").options) == {True, False}


def test_a_null_equals_false_zero_and_the_empty_string():
    assert [value_of(text) for text in ("null == false", "null == ''", "'' == 0", "'false' == false")] == [
        True,
        True,
        True,
        False,
    ]


def test_the_deciding_parts_are_the_smallest():
    node = parse("github.a == 1 && (github.b == 2 || github.c == 3)")
    scope = Scope(contexts={"github": {"a": 1.0, "b": 0.0, "c": 0.0}})
    assert evaluate(node, scope) is False
    source = "github.a == 1 && (github.b == 2 || github.c == 3)"
    assert [source[part.start : part.end] for part, _ in deciding(node, scope)] == ["github.b == 2", "github.c == 3"]


def test_status_functions_are_found_anywhere():
    functions = {"always", "format"}
    assert uses_status(parse("format('{0}', always()) == 'true'", functions=functions))
    assert not uses_status(parse("'always()' == 'x'", functions=functions))


def test_length_is_limited():
    assert parse("'" + "x" * (MAX_LENGTH - 2) + "'") is not None
    with pytest.raises(ExpressionError, match="length 21000"):
        parse("'" + "x" * (MAX_LENGTH - 1) + "'")


@pytest.mark.parametrize(
    "text", ["!" * 60 + "a", "a" + ".b" * 60, "(" * 5000, "[" * 5000, "a[" * 5000, "f(" * 5000, "-" * 5000]
)
def test_deep_and_broken_texts_are_refused_not_crashed(text):
    with pytest.raises(ExpressionError):
        parse(text)


def test_nested_parentheses_cost_no_depth():
    levels = MAX_GROUPS - 1
    assert evaluate(parse("(" * levels + "1" + ")" * levels), Scope(contexts={})) == 1.0


def test_long_chains_are_flat():
    assert value_of(" && ".join(["true"] * 1000)) is True


def test_doubling_texts_stop_at_the_memory_limit():
    text = "'xxxxxxxxxxxxxxxx'"
    for _ in range(20):
        text = f"format('{{0}}{{0}}{{0}}{{0}}', {text})"
    with pytest.raises(EvaluationError, match="memory"):
        value_of(text)


TOKENS = st.sampled_from(
    [
        "github",
        "maybe",
        "text",
        "word",
        "list",
        "part",
        ".",
        ".*",
        "[*]",
        "[",
        "]",
        "(",
        ")",
        ",",
        "!",
        "&&",
        "||",
        "==",
        "!=",
        "<",
        "<=",
        ">",
        ">=",
        "'a'",
        "''",
        "1",
        "-0",
        "0x1F",
        "NaN",
        "null",
        "true",
        "false",
        "name",
        "contains",
        "startsWith",
        "format",
        "join",
        "toJSON",
        "fromJSON",
        "'{0}'",
        "'[1, null]'",
        "case",
        " ",
        "\n",
    ],
)


@given(
    st.one_of(
        st.text(max_size=60), st.lists(TOKENS, max_size=25).map("".join), st.lists(TOKENS, max_size=25).map(" ".join)
    )
)
def test_no_text_crashes_the_parser_or_the_evaluator(text):
    try:
        node = parse(text)
        evaluate(node, Scope(contexts=CONTEXTS))
    except (ExpressionError, EvaluationError):
        return


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.floats(),
        st.text(max_size=5),
        st.builds(
            Unknown,
            reason=st.just("u"),
            options=st.one_of(st.none(), st.lists(st.one_of(st.none(), st.text(max_size=3)), max_size=4).map(tuple)),
        ),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=6,
)


@given(st.lists(TOKENS, max_size=15).map("".join), VALUES, VALUES)
def test_no_value_crashes_the_evaluator(text, first, second):
    try:
        node = parse(text)
        evaluate(
            node,
            Scope(
                contexts={
                    "github": first,
                    "maybe": second,
                    "text": [first, second],
                    "word": WORD,
                    "list": {"a": second},
                }
            ),
        )
    except (ExpressionError, EvaluationError):
        return


@given(
    st.sampled_from(
        [
            "maybe && github",
            "maybe || github",
            "!maybe || github",
            "github == maybe",
            "maybe && github || word",
            "contains(github, maybe)",
        ]
    ),
    VALUES,
)
def test_an_unknown_never_contradicts_one_of_its_values(text, known):
    """Whatever the unknown turns out to be, the three-valued verdict allows it."""
    node = parse(text)
    verdict = truth(evaluate(node, Scope(contexts={**CONTEXTS, "github": known})))
    for actual in ("", "gpu", None, 0.0, True, known):
        if isinstance(actual, Unknown):
            continue
        exact = truth(evaluate(node, Scope(contexts={**CONTEXTS, "maybe": actual, "github": known})))
        assert verdict is None or exact is None or verdict is exact


def test_numbers_print_as_the_original_does():
    assert value_of("format('{0} {1} {2}', 1e20, 1.5e-7, 123456789012345678)") == "1E+20 1.5E-07 1.23456789012346E+17"
