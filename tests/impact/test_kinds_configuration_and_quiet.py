# ruff: noqa: E501 - a row of a table is one line
"""Kinds of change in hooks, fixtures, settings and the environment; and the kinds that must select nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

pytestmark = [pytest.mark.cpu, pytest.mark.slow]

ONE = "def value():\n    return 1\n"
TEST_M = "import m\n\n\ndef test_m():\n    assert m.value() == 1\n"
SETTINGS = '[tool.pytest.ini_options]\npythonpath = ["src"]\ntestpaths = ["tests"]\n{pytest}\n[tool.lockgate.stages.unit]\nselect = ""\n{row}\n{rest}'


def settings(*, pytest: str = "", row: str = "", rest: str = "") -> dict[str, str]:
    return {"pyproject.toml": SETTINGS.format(pytest=pytest, row=row, rest=rest)}


def row(name: str, files: Mapping[str, Any], change: Mapping[str, Any], reason: str, **more: Any) -> dict[str, Any]:
    base = {"src/m.py": ONE, "tests/sub/test_m.py": TEST_M}
    return {"name": name, "files": {**base, **files}, "change": change, "reason": reason, **more}


FIXTURE = "import pytest\n\n\n@pytest.fixture\ndef x():\n    return 1\n"
USER = {"tests/sub/test_m.py": "def test_m(x):\n    assert x == 1\n"}
CASE = "import unittest\n\n\nclass Base(unittest.TestCase):\n    def check(self):\n        assert True\n"
WARNS = {"tests/sub/test_m.py": "import warnings\n\n\ndef test_m():\n    warnings.warn('old', UserWarning)\n"}
REQUIRES = {
    "requirements.txt": "one==1\n",
    "tests/sub/test_m.py": "from pathlib import Path\n\n\ndef test_m():\n    assert 'one==1' in Path('requirements.txt').read_text()\n",
}

KINDS = [
    row("conftest fixture", {"tests/sub/conftest.py": FIXTURE, **USER}, {"tests/sub/conftest.py": FIXTURE.replace("1", "2")}, "conftest"),
    row("conftest of the root", {"conftest.py": FIXTURE, **USER}, {"conftest.py": FIXTURE.replace("1", "2")}, "conftest", wide=True),
    row("conftest hook", {"tests/sub/conftest.py": "def pytest_runtest_setup(item):\n    pass\n"}, {"tests/sub/conftest.py": "def pytest_runtest_setup(item):\n    raise ValueError\n"}, "conftest"),
    row("conftest that cannot be imported", {"tests/sub/conftest.py": "X = 1\n"}, {"tests/sub/conftest.py": "import nowhere_at_all\n"}, "conftest"),
    row("collection hook", {"tests/conftest.py": "def pytest_collection_modifyitems(items):\n    pass\n"}, {"tests/conftest.py": "def pytest_collection_modifyitems(items):\n    for item in items:\n        item.add_marker('usefixtures')\n        item.fixturenames.append('no_such')\n"}, "conftest", wide=True),
    row("new conftest", {}, {"tests/sub/conftest.py": "import pytest\n\n\n@pytest.fixture(autouse=True)\ndef bad():\n    raise ValueError\n"}, "conftest"),
    row("conftest removed", {"tests/sub/conftest.py": FIXTURE, **USER}, {"tests/sub/conftest.py": None}, "conftest"),
    row("autouse added", {"tests/sub/conftest.py": "import pytest\n\n\n@pytest.fixture\ndef bad():\n    raise ValueError\n"}, {"tests/sub/conftest.py": "import pytest\n\n\n@pytest.fixture(autouse=True)\ndef bad():\n    raise ValueError\n"}, "conftest"),
    row("autouse added in a test file", {}, {"tests/sub/test_m.py": "import pytest\n\n\n@pytest.fixture(autouse=True)\ndef bad():\n    raise ValueError\n\n\n" + TEST_M}, "test-file"),
    row("plugin module", {"src/plug.py": FIXTURE, "conftest.py": "pytest_plugins = ['plug']\n", **USER}, {"src/plug.py": FIXTURE.replace("1", "2")}, "body-executed"),
    row("plugin named by a setting", {"src/plug.py": "def pytest_runtest_setup(item):\n    pass\n", **settings(pytest='addopts = ["-p", "plug"]')}, {"src/plug.py": "def pytest_runtest_setup(item):\n    if 'sub' in item.nodeid:\n        raise ValueError\n"}, "body-executed", wide=True),
    row("new pytest.ini", WARNS, {"pytest.ini": "[pytest]\npythonpath = src\nfilterwarnings = error\n"}, "pytest-config", sweeping=True),
    row("pytest settings", {**WARNS, **settings()}, settings(pytest='filterwarnings = ["error"]'), "pytest-config", sweeping=True),
    row("tox.ini of pytest", WARNS | {"tox.ini": "[testenv]\n"}, {"tox.ini": "[testenv]\n[pytest]\nfilterwarnings = error\n", "pyproject.toml": "[tool.lockgate.stages.unit]\nselect = ''\n"}, "pytest-config", sweeping=True),
    row("requirements", REQUIRES, {"requirements.txt": "one==2\n"}, "environment-changed", sweeping=True),
    row("test helper", {"tests/helper.py": "def expect():\n    return 1\n", "tests/sub/test_m.py": "import sys, pathlib\nsys.path.insert(0, str(pathlib.Path(__file__).parents[1]))\nimport helper\n\n\ndef test_m():\n    assert helper.expect() == 1\n"}, {"tests/helper.py": "def expect():\n    return 2\n"}, "body-executed"),
    row("base class of tests", {"src/cases.py": CASE, "tests/sub/test_m.py": "from cases import Base\n\n\nclass TestM(Base):\n    def test_a(self):\n        self.check()\n"}, {"src/cases.py": CASE.replace("True", "False")}, "body-executed"),
    row("inherited test added", {"src/cases.py": CASE, "tests/sub/test_m.py": "from cases import Base as _B\n\n\nclass TestM(_B):\n    def test_a(self):\n        self.check()\n"}, {"src/cases.py": CASE + "\n    def test_b(self):\n        assert False\n"}, "module-level"),
    row("test body", {}, {"tests/sub/test_m.py": TEST_M.replace("== 1", "== 2")}, "test-changed"),
    row("new test", {}, {"tests/sub/test_m.py": TEST_M + "\n\ndef test_n():\n    assert 0\n"}, "test-file"),
    row("new test file", {}, {"tests/sub/test_new.py": "def test_n():\n    assert 0\n"}, "new-test"),
    row("test parametrized further", {"tests/sub/test_m.py": "import pytest\n\n\n@pytest.mark.parametrize('x', [1])\ndef test_m(x):\n    assert x == 1\n"}, {"tests/sub/test_m.py": "import pytest\n\n\n@pytest.mark.parametrize('x', [1, 2])\ndef test_m(x):\n    assert x == 1\n"}, "test-file"),
    row("parameters made by a hook", {"src/cases.py": "def cases():\n    return [1]\n", "tests/sub/conftest.py": "import cases\n\n\ndef pytest_generate_tests(metafunc):\n    metafunc.parametrize('x', cases.cases())\n", **USER}, {"src/cases.py": "def cases():\n    return [1, 2]\n"}, "body-executed"),
    row("two tests of one name", {}, {"tests/sub/test_calm.py": "def test_x():\n    assert 0\n"}, "shadows-module", sweeping=True),
    row("init added beside tests", {"tests/sub/helper_x.py": "X = 1\n", "tests/sub/test_m.py": "import helper_x\n\n\ndef test_m():\n    assert helper_x.X == 1\n"}, {"tests/sub/__init__.py": "", "tests/__init__.py": ""}, "package-init", wide=True),
    row("failing before, fails still", {"tests/sub/test_m.py": "import pytest\n\n\n@pytest.mark.xfail(strict=True)\ndef test_m():\n    assert 0\n\n\ndef test_n():\n    import m\n    assert m.value() == 1\n"}, {"src/m.py": "def value():\n    return 2\n"}, "body-executed"),
    row("test that removes the recorder's hooks", {"tests/sub/test_m.py": "import sys, threading\nimport m\n\n\ndef test_m():\n    sys.settrace(None)\n    threading.settrace(None)\n    assert m.value() == 1\n"}, {"src/m.py": "def value():\n    return 2\n"}, "opaque"),
]  # fmt: skip

PLAIN = "def used():\n    return 1\n\n\ndef unused():\n    return 1\n"
USES_PLAIN = {
    "src/plain/p.py": PLAIN,
    "tests/sub/test_m.py": "import sys\nsys.path.insert(0, 'src/plain')\nimport p\n\n\ndef test_m():\n    assert p.used() == 1\n",
}
WORKFLOW = "on: push\njobs:\n  a:\n    runs-on: x\n    steps:\n      - run: lockgate run {stage}\n"


def quiet(name: str, files: Mapping[str, Any], change: Mapping[str, Any], reason: str) -> dict[str, Any]:
    return row(name, files, change, reason, quiet=True)


QUIET = [
    quiet("comments", {}, {"src/m.py": "# why\ndef value():  # what\n    return 1\n"}, "same-meaning"),
    quiet("blank lines and layout", {}, {"src/m.py": "\n\n\ndef value(\n):\n\n    return (1)\n"}, "same-meaning"),
    quiet("line ends of a source", {}, {"src/m.py": b"def value():\r\n    return 1\r\n"}, "same-meaning"),
    quiet("comments in a test", {}, {"tests/sub/test_m.py": "# why\n" + TEST_M}, "same-meaning"),
    quiet("comments in a conftest", {"tests/conftest.py": "X = 1\n"}, {"tests/conftest.py": "X = 1  # one\n"}, "same-meaning"),
    quiet("unused function added", {}, {"src/m.py": ONE + "\n\ndef quite_fresh(a, b=None):\n    return a\n"}, "unused-definition"),
    quiet("unexecuted body of plain Python", USES_PLAIN, {"src/plain/p.py": PLAIN.replace("unused():\n    return 1", "unused():\n    return 2")}, "plain-unexecuted"),
    quiet("readme", {"README.md": "x"}, {"README.md": "y"}, "documentation"),
    quiet("documentation", {"docs/conf.py": "x = 1\n"}, {"docs/conf.py": "x = 2\n", "docs/new/page.rst": "x"}, "documentation"),
    quiet("settings of other tools", settings(rest="[tool.ruff]\nline-length = 1\n"), settings(rest="[tool.ruff]\nline-length = 2\n[project]\ndescription = 'x'\n"), "same-meaning"),
    quiet("another stage's row", settings(), settings(rest="[tool.lockgate.stages.other]\ntimeout = 5\n"), "same-meaning"),
    quiet("comments of requirements", {"requirements.txt": "one==1\n"}, {"requirements.txt": "# pinned\none==1\n"}, "same-meaning"),
    quiet("another stage's workflow", {".github/workflows/a.yml": WORKFLOW.format(stage="unit"), ".github/workflows/b.yml": WORKFLOW.format(stage="other")}, {".github/workflows/b.yml": WORKFLOW.format(stage="third")}, "other-workflow"),
    quiet("comments of a workflow", {".github/workflows/a.yml": WORKFLOW.format(stage="unit")}, {".github/workflows/a.yml": "# x\n" + WORKFLOW.format(stage="unit")}, "same-meaning"),
    quiet("a tool that no test uses", {}, {"tools/lonely.py": "x = 1\n"}, "not-imported"),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind["name"]))
def test_no_failing_test_is_missed(kind: Mapping[str, Any], check_kind: Callable[[Mapping[str, Any]], None]) -> None:
    check_kind(kind)


@pytest.mark.parametrize("kind", QUIET, ids=lambda kind: str(kind["name"]))
def test_a_quiet_kind_selects_nothing(kind: Mapping[str, Any], check_kind: Callable[[Mapping[str, Any]], None]) -> None:
    check_kind(kind)


@pytest.mark.xfail(strict=True, reason="the one declared hole: a test of line numbers sees a comment above its code")
def test_line_numbers_are_the_declared_hole(check_kind: Callable[[Mapping[str, Any]], None]) -> None:
    text = "import m\n\n\ndef test_m():\n    assert m.value.__code__.co_firstlineno == 1\n"
    check_kind(row("line numbers", {"tests/sub/test_m.py": text}, {"src/m.py": "# why\n" + ONE}, "same-meaning"))
