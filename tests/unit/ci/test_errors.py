"""The error tree: one code per kind, none that means something else."""

import pytest

from ci import errors

pytestmark = pytest.mark.cpu


def kinds(kind=errors.CiError):
    children = kind.__subclasses__()
    return [*children, *(grand for child in children for grand in kinds(child))]


def test_every_kind_has_a_code_of_its_own():
    own = [kind.exit_code for kind in [errors.CiError, *(k for k in kinds() if "exit_code" in vars(k))]]
    assert len(own) == len(set(own))


def test_no_code_is_a_verdict_or_pytests_empty_selection():
    assert not {0, 1, 5} & {kind.exit_code for kind in kinds()}


def test_the_hint_is_kept_apart_and_printed_last():
    error = errors.UsageError("found 3, expected 2", hint="take one away")
    assert (error.message, error.hint) == ("found 3, expected 2", "take one away")
    assert str(error) == "found 3, expected 2\ntake one away"
    assert str(errors.UsageError("found 3")) == "found 3"
