"""Where a command finds its repository."""

import pytest

from ci.context import find_root

pytestmark = pytest.mark.cpu


def test_the_nearest_project_or_checkout_is_the_root(tmp_path):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert find_root(inner) == inner
    (tmp_path / ".git").mkdir()
    assert find_root(inner) == tmp_path
    (tmp_path / "a" / "pyproject.toml").touch()
    assert find_root(inner) == tmp_path / "a"
