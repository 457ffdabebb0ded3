"""pip's settings, given on to uv."""

import pytest

from ci.installer import parse_pip_config, read_uv_environment, uv_environment

pytestmark = pytest.mark.cpu


def test_pips_list_is_read_and_the_environment_wins():
    text = ":env:.find-links='/b'\nglobal.find-links='/a'\nglobal.constraint='/c.txt /d.txt'\nnoise\n"
    assert parse_pip_config(text) == {"find-links": "/b", "constraint": "/c.txt /d.txt"}


def test_several_values_are_joined_as_uv_wants_them():
    config = {"find-links": "/a\n/b", "constraint": "/c.txt /d.txt"}
    assert uv_environment(config, {}) == {"UV_FIND_LINKS": "/a,/b", "UV_CONSTRAINT": "/c.txt /d.txt"}


def test_what_the_person_has_set_stays():
    assert uv_environment({"find-links": "/a"}, {"UV_FIND_LINKS": "/mine"}) == {}


def test_a_python_without_pip_has_no_settings(tmp_path):
    assert read_uv_environment(python="/nonexistent/python", cwd=tmp_path, environ={}) == {}
