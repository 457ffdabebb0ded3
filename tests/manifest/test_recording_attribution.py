"""Each rule of attribution, on a real recording: who owns the code that ran."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.cpu, pytest.mark.slow]

Record = Callable[..., Any]

CORE = """\
import functools

LIMIT = 3

def helper(x):
    return x + LIMIT

@functools.lru_cache
def memo():
    return helper(1)

def one_line(x): return x + 1

def unused(): return 2
"""


def test_memoised_state_belongs_to_every_test_that_used_it(record: Record) -> None:
    done = record({
        "src/core.py": CORE,
        "tests/test_memo.py": "import core\ndef test_a():\n    assert core.memo() == 4\ndef test_b():\n"
        "    assert core.memo() == 4\n",
    })  # fmt: skip
    assert done.code == 0, done.output
    assert {"helper", "memo"} <= done.blocks("::test_a")
    assert {"helper", "memo"} <= done.blocks("::test_b")
    assert done.manifest.header.isolation == "fork"


def test_a_one_line_function_is_not_executed_by_being_defined(record: Record) -> None:
    done = record({
        "src/core.py": CORE + "\nEAGER = one_line(1)\n",
        "tests/test_line.py": "import core\ndef test_a(): assert core.EAGER == 2\n"
        "def test_b(): assert core.unused() == 2\n",
    })  # fmt: skip
    assert done.blocks("::test_a") == {"one_line", "test_a"}
    assert done.blocks("::test_b") == {"one_line", "unused", "test_b"}


def test_a_shared_process_credits_what_ran_earlier(record: Record) -> None:
    files = {
        "src/core.py": CORE,
        "tests/test_memo.py": (
            "import core\ndef test_a():\n    assert core.memo() == 4\n"
            "def test_b():\n    assert core.memo() == 4\n"
            "def test_c():\n    assert core.one_line(1) == 2\n"
        ),
    }
    done = record(files, environ={"LOCKGATE_RECORD_ISOLATION": "shared"})
    assert done.manifest.header.isolation == "shared"
    assert "helper" in done.blocks("::test_b")
    assert "one_line" not in done.blocks("::test_b")
    assert "helper" in done.blocks("::test_c"), "an earlier test's code may have left state behind"


def test_two_orders_narrow_a_shared_process(record: Record) -> None:
    files = {
        "src/core.py": CORE,
        "tests/test_memo.py": (
            "import core\ndef test_a():\n    assert core.memo() == 4\n"
            "def test_b():\n    assert core.memo() == 4\n"
            "def test_c():\n    assert core.one_line(1) == 2\n"
        ),
    }
    done = record(
        files,
        environ={"LOCKGATE_RECORD_ISOLATION": "shared"},
        runs=({}, {"LOCKGATE_RECORD_ORDER": "reverse"}),
    )
    assert not done.refusal, done.build_output
    assert {"helper", "memo"} <= done.blocks("::test_a")
    assert {"helper", "memo"} <= done.blocks("::test_b"), "memoised by test_a in one order"
    assert "helper" not in done.blocks("::test_c"), "in the other order nothing ran before it"


def test_wide_fixtures_belong_to_all_their_tests(record: Record) -> None:
    fixtures = (
        "import pytest, core\n"
        "@pytest.fixture(scope='module')\ndef wide():\n    yield core.helper(1)\n    core.one_line(1)\n"
        "@pytest.fixture(scope='session')\ndef late():\n    return core.memo()\n"
    )
    tests = (
        "def test_a(wide):\n    pass\n"
        "def test_b(wide):\n    pass\n"
        "def test_c():\n    pass\n"
        "def test_d(request):\n    request.getfixturevalue('late')\n"
        "def test_e(request):\n    request.getfixturevalue('late')\n"
        "class TestOld:\n    @classmethod\n    def setup_class(cls):\n        import core\n"
        "        cls.value = core.unused()\n"
        "    def test_f(self):\n        pass\n    def test_g(self):\n        pass\n"
    )
    done = record({"src/core.py": CORE, "tests/conftest.py": fixtures, "tests/test_wide.py": tests})
    for test in ("::test_a", "::test_b"):
        assert {"helper", "wide", "one_line"} <= done.blocks(test), "its setup and its teardown"
    assert "memo" in done.blocks("::test_d")
    assert "memo" in done.blocks("::test_e")
    assert "unused" in done.blocks("::test_f")
    assert "unused" in done.blocks("::test_g")
    assert not {"helper", "memo", "unused"} & done.blocks("::test_c")


def test_wide_fixtures_in_a_shared_process_are_contexts_of_their_own(record: Record) -> None:
    fixtures = (
        "import pytest, core\n@pytest.fixture(scope='module')\n"
        "def wide():\n    yield core.helper(1)\n    core.one_line(1)\n"
    )
    tests = "def test_a(wide):\n    pass\ndef test_b(wide):\n    pass\n"
    done = record(
        {"src/core.py": CORE, "tests/conftest.py": fixtures, "tests/test_wide.py": tests},
        environ={"LOCKGATE_RECORD_ISOLATION": "shared"},
    )
    for test in ("::test_a", "::test_b"):
        assert {"helper", "wide", "one_line"} <= done.blocks(test), "its setup and its teardown"


def test_import_time_code_counts_for_whoever_imports_the_module(record: Record) -> None:
    done = record({
        "src/base.py": "def build():\n    return [1]\ndef other():\n    return 2\n",
        "src/table.py": "import base\nROWS = base.build()\n",
        "src/facade.py": "from table import ROWS\n",
        "tests/test_x_uses.py": "import facade\ndef test_uses():\n    assert facade.ROWS\n",
        "tests/test_y_not.py": "import base\ndef test_not():\n    assert base.other() == 2\n",
    })  # fmt: skip
    assert "build" in done.blocks("::test_uses")
    assert {"src/facade.py", "src/table.py", "src/base.py"} <= done.atoms("::test_uses").modules
    assert "build" not in done.blocks("::test_not")
    assert "src/table.py" not in done.atoms("::test_not").modules


def test_lazy_imports_count_where_they_are_run(record: Record) -> None:
    done = record({
        "src/lazy.py": "def load():\n    import heavy\n    return heavy.VALUE\ndef plain():\n    return 1\n",
        "src/heavy.py": "VALUE = 2\n",
        "src/named.py": "import importlib\ndef load(name):\n    return importlib.import_module(name).VALUE\n",
        "tests/test_lazy.py": (
            "import lazy, named\ndef test_load():\n    assert lazy.load() == 2\n"
            "def test_plain():\n    assert lazy.plain() == 1\n"
            "def test_string():\n    assert named.load('hea' + 'vy') == 2\n"
        ),
    })  # fmt: skip
    assert "src/heavy.py" in done.atoms("::test_load").modules
    assert "src/heavy.py" in done.atoms("::test_string").modules
    assert "src/heavy.py" not in done.atoms("::test_plain").modules


def test_collection_belongs_to_the_tests_below(record: Record) -> None:
    done = record({
        "src/cases.py": "def one():\n    return [1, 2]\ndef two():\n    return [1]\n",
        "tests/conftest.py": (
            "import cases\n"
            "def pytest_generate_tests(metafunc):\n"
            "    if 'case' in metafunc.fixturenames:\n        metafunc.parametrize('case', cases.one())\n"
        ),
        "tests/sub/conftest.py": "import cases\ndef pytest_collection_modifyitems(items):\n    cases.two()\n",
        "tests/test_param.py": "def test_p(case):\n    assert case\n",
        "tests/sub/test_other.py": "def test_o():\n    pass\n",
    })  # fmt: skip
    assert "one" in done.blocks("::test_p[1]")
    assert "one" in done.blocks("::test_p[2]")
    assert "one" not in done.blocks("::test_o")
    assert "two" in done.blocks("::test_p[1]"), "a hook that sees all items belongs to all tests"
    assert {"tests/conftest.py", "tests/sub/conftest.py"} <= done.atoms("::test_o").modules


def test_outcomes_reach_pytest_from_the_forks(record: Record) -> None:
    done = record({
        "tests/test_kinds.py": (
            "import os, pytest\n"
            "def test_pass():\n    pass\n"
            "def test_fail():\n    assert 1 == 2, 'seen here'\n"
            "def test_skip():\n    pytest.skip('not now')\n"
            "@pytest.mark.xfail\ndef test_xfail():\n    assert False\n"
            "@pytest.fixture\ndef broken():\n    raise ValueError('setup')\n"
            "def test_error(broken):\n    pass\n"
            "def test_crash():\n    os.kill(os.getpid(), 11)\n"
            "def test_exit():\n    os._exit(0)\n"
        ),
    })  # fmt: skip
    outcomes = {test.id.rpartition("::")[2]: test.outcome for test in done.manifest.tests}
    assert outcomes == {
        "test_pass": "passed", "test_fail": "failed", "test_skip": "skipped", "test_xfail": "xfailed",
        "test_error": "error", "test_crash": "failed", "test_exit": "failed",
    }  # fmt: skip
    assert "seen here" in done.output
    assert "SIGSEGV in the middle of the test" in done.output
    assert "exit code 0 in the middle of the test" in done.output
    assert done.code == 1
    assert not done.refusal, "a failed test does not spoil the evidence of the others"


def test_a_test_that_removes_the_trace_function_is_opaque(record: Record) -> None:
    if sys.version_info >= (3, 12):
        pytest.skip("the trace function is not the recorder here")
    done = record({
        "tests/test_trace.py": "import sys\ndef test_off():\n    sys.settrace(None)\ndef test_on():\n    pass\n",
    })  # fmt: skip
    assert done.atoms("::test_off").opaque == ("trace-function-changed",)
    assert done.atoms("::test_on").opaque == ()


def test_coverage_reports_come_from_the_same_run(record: Record) -> None:
    if sys.version_info >= (3, 12):
        pytest.skip("coverage is measured in a second pass here")
    import coverage

    done = record({
        "src/core.py": CORE,
        "tests/test_memo.py": "import core\ndef test_a():\n    assert core.memo() == 4\n",
    })  # fmt: skip
    data = coverage.CoverageData(basename=str(done.root / "merged"))
    for path in (done.root / ".lockgate" / "record").glob("coverage-*.data"):
        one = coverage.CoverageData(basename=str(path))
        one.read()
        data.update(one)
    lines = data.lines(str(done.root / "src" / "core.py"))
    assert lines is not None
    assert {6, 10} <= set(lines), "bodies of helper and memo, which only a fork's child ran"


def test_the_sysmon_core_is_refused_by_name(record: Record) -> None:
    with pytest.raises(Exception, match=r"no records|no folder"):
        record({"tests/test_a.py": "def test_a():\n    pass\n"}, environ={"LOCKGATE_RECORD_CORE": "coverage-sysmon"})
