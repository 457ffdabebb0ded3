from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.running.inventory import could_select, find_names, find_required, find_unseen

pytestmark = pytest.mark.cpu

GPU = "gpu and not multi_gpu and not slow"


@pytest.mark.parametrize(
    ("expression", "names", "required"),
    [
        ("cpu", {"cpu"}, {"cpu"}),
        (GPU, {"gpu", "multi_gpu", "slow"}, {"gpu"}),
        ("not manual", {"manual"}, set()),
        ("a or b", {"a", "b"}, set()),
        ("(a or b) and c", {"a", "b", "c"}, {"c"}),
        ("multi_gpu(nproc=2)", {"multi_gpu"}, {"multi_gpu"}),
        ("", set(), set()),
        ("a and (", set(), set()),
    ],
)
def test_names_and_required_names(expression, names, required):
    assert find_names(expression) == names
    assert find_required(expression) == required


def test_a_file_could_hold_a_selected_test_only_if_it_mentions_what_the_expression_needs():
    assert could_select(GPU, {"gpu", "slow"})
    assert not could_select(GPU, {"slow", "cpu"})
    assert could_select("not manual", set())
    assert could_select("", set())


def test_an_expression_that_cannot_be_read_may_select_anything():
    assert could_select("a and (", set())


NAMES = ("a", "b", "c")
EXPRESSIONS = st.recursive(
    st.sampled_from(NAMES),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda part: f"({part[0]} {part[1]} {part[2]})"),
        inner.map(lambda part: f"(not {part})"),
    ),
    max_leaves=6,
)


@given(EXPRESSIONS, st.sets(st.sampled_from(NAMES)))
def test_agrees_with_trying_every_subset_of_marks(expression, present):
    subsets = itertools.chain.from_iterable(itertools.combinations(sorted(present), size) for size in range(4))
    tried = any(eval(expression, {}, {name: name in subset for name in NAMES}) for subset in map(set, subsets))
    assert could_select(expression, present) == tried


def test_files_of_which_nothing_was_shown_are_read_for_the_markers():
    sources = {
        "tests/test_seen.py": "pytestmark = pytest.mark.gpu",
        "tests/test_hidden.py": "pytest.importorskip('torch')\npytestmark = [pytest.mark.gpu, pytest.mark.hf]",
        "tests/test_other.py": "pytestmark = pytest.mark.cpu",
    }
    assert find_unseen(GPU, sources, shown=["tests/test_seen.py"]) == ["tests/test_hidden.py"]
