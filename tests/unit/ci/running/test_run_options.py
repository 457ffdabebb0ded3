from __future__ import annotations

from pathlib import Path

import pytest

from ci.errors import UsageError
from ci.running.options import compose_arguments, pair_words
from ci.stages.model import Stage

pytestmark = pytest.mark.cpu

ROOT = Path("/repo")
STAGE = Stage(name="gate", select="cpu and not slow", paths=("tests",), extra_args=("-ra",))


def compose(*rest: str, stage: Stage = STAGE, cwd: Path = ROOT, there: tuple[str, ...] = ()):
    known = {ROOT / name for name in there}
    return compose_arguments(stage, rest, root=ROOT, cwd=cwd, exists=lambda path: path in known)


def test_a_row_alone_gives_its_selection_paths_and_arguments():
    made = compose()
    assert made.words == ("-ra", "-m", "cpu and not slow", "tests")
    assert not made.narrowed
    assert not made.stops_early


def test_a_persons_marker_expression_narrows_the_rows_and_never_replaces_it():
    for words in (("-m", "hf or e2e"), ("-mhf or e2e",)):
        made = compose(*words)
        assert made.words[1:3] == ("-m", "(cpu and not slow) and (hf or e2e)")
        assert made.narrowed


def test_paths_and_node_ids_take_the_place_of_the_rows_paths_and_are_relative_to_where_the_person_stands():
    made = compose("test_a.py::test_b[x]", cwd=ROOT / "tests", there=("tests/test_a.py",))
    assert made.words[-1] == "tests/test_a.py::test_b[x]"
    assert "tests" not in made.words
    assert made.narrowed


def test_the_value_of_an_option_is_no_path_even_if_such_a_file_exists():
    made = compose("--junitxml", "out.xml", "-k", "tests", there=("out.xml", "tests"))
    assert made.words == ("-ra", "-m", "cpu and not slow", "--junitxml", "out.xml", "-k", "tests", "tests")


@pytest.mark.parametrize("words", [("-k", "x"), ("-kx",), ("--lf",), ("--deselect=tests/a.py",), ("--deselect", "a")])
def test_words_that_narrow_are_seen(words):
    assert compose(*words).narrowed


@pytest.mark.parametrize("words", [("-x",), ("--maxfail=2",), ("--maxfail", "2"), ("--exitfirst",)])
def test_words_that_stop_early_are_seen(words):
    assert compose(*words).stops_early


@pytest.mark.parametrize("word", ["--pdb", "--trace", "-n", "-n4", "--dist=each", "--numprocesses=2"])
def test_what_cannot_work_under_supervision_is_refused(word):
    with pytest.raises(UsageError):
        compose(word)


def test_a_node_id_without_a_file_is_refused_instead_of_running_the_whole_stage():
    with pytest.raises(UsageError, match=r"there is no file for 'tests/gone\.py::test_a'"):
        compose("tests/gone.py::test_a")


def test_an_option_without_its_value_is_refused():
    with pytest.raises(UsageError, match="expected a value after it"):
        list(pair_words(["-q", "-k"]))


def test_a_row_without_a_selection_takes_every_test():
    assert compose(stage=Stage(name="all")).words == ()
