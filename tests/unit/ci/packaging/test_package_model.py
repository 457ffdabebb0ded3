"""What a distribution must and must not hold."""

import pytest

from ci.errors import ConfigError
from ci.packaging.model import Native, PackageRules, check_sdist, check_wheel, parse_rules

pytestmark = pytest.mark.cpu

RULES = PackageRules(
    wheel_must_hold=("pkg/__init__.py", "pkg/_native*.so"),
    wheel_must_not_hold=("tests/*",),
    pure_must_not_hold=("*.so",),
    sdist_must_hold=("setup.py", "pkg/csrc/*.cpp"),
)
GOOD = ["pkg/__init__.py", "pkg/_native.abi3.so", "pkg-1.dist-info/RECORD"]


def test_a_good_native_wheel_has_no_problem():
    assert check_wheel(GOOD, "cp310-abi3-manylinux_2_35_x86_64", RULES, native=Native.CPU) == []


def test_a_native_wheel_without_its_library_is_named_twice():
    problems = check_wheel(["pkg/__init__.py"], "py3-none-any", RULES, native=Native.CPU)
    assert any("lacks pkg/_native*.so" in problem for problem in problems)
    assert any("py3-none-any, expected a platform" in problem for problem in problems)


def test_a_pure_wheel_must_not_hold_the_library_but_need_not_lack_it_by_name():
    assert check_wheel(["pkg/__init__.py"], "py3-none-any", RULES, native=Native.OFF) == []
    problems = check_wheel(GOOD, "cp310-abi3-linux_x86_64", RULES, native=Native.OFF)
    assert len(problems) == 2


@pytest.mark.parametrize("stray", ["tests/test_a.py", "pkg/__pycache__/a.pyc", "pkg/a.o"])
def test_a_stray_file_is_named(stray):
    problems = check_wheel([*GOOD, stray], "cp310-abi3-linux_x86_64", RULES, native=Native.CPU)
    assert any(stray in problem for problem in problems)


def test_an_sdist_must_carry_the_native_sources():
    assert check_sdist(["setup.py", "pkg/csrc/ring.cpp"], RULES) == []
    assert check_sdist(["setup.py"], RULES) == ["the sdist lacks pkg/csrc/*.cpp"]


def test_rules_list_every_problem():
    with pytest.raises(ConfigError) as caught:
        parse_rules({"extra": [], "group": 1, "pure_environment": ["X"]})
    assert all(words in caught.value.message for words in ("'extra'", "group", "NAME=VALUE"))
