# ruff: noqa: E501 - a row of a table is one line
"""Kinds of change in files that are read, and in code that other processes, threads and compilers run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from typing import Any

import pytest

pytestmark = [pytest.mark.cpu, pytest.mark.slow]

TEST_M = "import m\n\n\ndef test_m():\n    assert m.value() == 1\n"
ONE = "def value():\n    return 1\n"
TWO = "def value():\n    return 2\n"


def row(name: str, files: Mapping[str, Any], change: Mapping[str, Any], reason: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "files": files, "change": change, "reason": reason, **more}


def reads(
    name: str, test: str, change: Mapping[str, Any], reason: str, *, data: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """Make a kind in which a test uses data files in its folder `D`, by default `a.txt` and `b.txt` (holding 1)."""
    head = "from pathlib import Path\nD = Path(__file__).parent / 'd'\n"
    files = data or {"tests/d/a.txt": "1", "tests/d/b.txt": "1"}
    return row(name, {**files, "tests/test_m.py": head + test}, change, reason, **more)


DATA = [
    reads("data read in a test", "def test_m():\n    assert (D / 'a.txt').read_text() == '1'\n", {"tests/d/a.txt": "2"}, "data-read"),
    reads("data read at import", "X = (D / 'a.txt').read_text()\ndef test_m():\n    assert X == '1'\n", {"tests/d/a.txt": "2"}, "data-read"),
    reads(
        "data read by a session fixture",
        "import pytest\n@pytest.fixture(scope='session')\ndef x():\n    return (D / 'a.txt').read_text()\n"
        "def test_m(x):\n    assert x == '1'\ndef test_n(x):\n    assert x == '1'\n",
        {"tests/d/a.txt": "2"},
        "data-read",
    ),
    reads(
        "data read by a fixture asked for by name",
        "import pytest\n@pytest.fixture(scope='module')\ndef x():\n    return (D / 'a.txt').read_text()\n"
        "def test_m(request):\n    assert request.getfixturevalue('x') == '1'\n"
        "def test_n(request):\n    assert request.getfixturevalue('x') == '1'\n",
        {"tests/d/a.txt": "2"},
        "data-read",
    ),
    reads("data listed", "def test_m():\n    assert len(list(D.iterdir())) == 2\n", {"tests/d/c.txt": "2"}, "folder-listed"),
    reads("data found by a deep glob", "def test_m():\n    assert len(list(D.rglob('*.txt'))) == 2\n", {"tests/d/x/y/c.txt": "2"}, "folder-listed"),
    reads("data deleted", "def test_m():\n    assert (D / 'a.txt').read_text() == '1'\n", {"tests/d/a.txt": None}, "data-read"),
    reads(
        "data renamed, only its case",
        "def test_m():\n    assert (D / 'a.txt').read_text() == '1'\n",
        {"tests/d/a.txt": None, "tests/d/A.txt": "1"},
        "data-read",
        sweeping=True,
    ),
    reads("path that appears", "def test_m():\n    assert not (D / 'c.txt').exists()\n", {"tests/d/c.txt": "2"}, "path-probed"),
    reads("path that goes", "import os\ndef test_m():\n    assert os.path.isfile(D / 'a.txt')\n", {"tests/d/a.txt": None}, "path-probed"),
    reads("line ends of data", "def test_m():\n    assert (D / 'c.txt').read_bytes() == b'x\\n'\n", {"tests/d/c.txt": b"x\r\n"}, "data-read", data={"tests/d/c.txt": b"x\n"}),
    reads(
        "database opened by C",
        "import sqlite3\ndef test_m():\n    c = sqlite3.connect(D / 'x.sqlite')\n    assert c.execute('pragma user_version').fetchone() == (0,)\n    c.close()\n",
        {"tests/d/x.sqlite": b"not a database at all, but long enough to be read as one"},
        "invisible-data",
        sweeping=True,
        data={"tests/d/x.sqlite": b""},
    ),
    row(
        "data of a package at import",
        {"src/p/__init__.py": "from importlib.resources import files\nX = (files('p') / 'v.txt').read_text()\n", "src/p/v.txt": "1", "tests/test_m.py": "import p\ndef test_m():\n    assert p.X == '1'\n"},
        {"src/p/v.txt": "2"},
        "data-read",
    ),
    row(
        "configuration outside the test folder",
        {"conf/app.toml": "x = 1\n", "src/m.py": "import pathlib\nX = pathlib.Path(__file__).parents[1].joinpath('conf/app.toml').read_text()\ndef value():\n    return int(X[-2])\n", "tests/test_m.py": TEST_M},
        {"conf/app.toml": "x = 2\n"},
        "data-read",
    ),
    row(
        "parametrize values that keep their ids",
        {"src/cases.py": "import pytest\nCASES = [pytest.param(1, id='a')]\n", "tests/test_m.py": "import pytest, cases\n@pytest.mark.parametrize('x', cases.CASES)\ndef test_m(x):\n    assert x == 1\n"},
        {"src/cases.py": "import pytest\nCASES = [pytest.param(2, id='a')]\n"},
        "module-level",
    ),
    row(
        "parameters read from a file",
        {"tests/cases.txt": "1", "tests/test_m.py": "import pathlib, pytest\nCASES = (pathlib.Path(__file__).parent / 'cases.txt').read_text().split()\n@pytest.mark.parametrize('x', CASES)\ndef test_m(x):\n    assert x == '1'\n"},
        {"tests/cases.txt": "1 2"},
        "data-read",
    ),
    row(
        "source text read by a test",
        {"src/m.py": ONE, "tests/test_m.py": "import inspect, m\ndef test_m():\n    assert '#' not in inspect.getsource(m.value)\n"},
        {"src/m.py": "def value():\n    return 1  # why\n"},
        "source-read",
    ),
    row(
        "source scanned by a test",
        {"src/m.py": ONE, "tests/test_m.py": "import pathlib\ndef test_m():\n    for f in pathlib.Path(__file__).parents[1].joinpath('src').glob('m*.py'):\n        assert 'TODO' not in f.read_text()\n"},
        {"src/m.py": "def value():\n    return 1  # TODO\n"},
        "source-read",
    ),
    row(
        "doctest of a module",
        {"src/m.py": 'def value():\n    """\n    >>> value()\n    1\n    """\n    return 1\n', "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["src"]\ntestpaths = ["tests", "src"]\naddopts = ["--doctest-modules"]\n[tool.lockgate.stages.unit]\nselect = ""\n'},
        {"src/m.py": 'def value():\n    """\n    >>> value()\n    2\n    """\n    return 1\n'},
        "test-file",
    ),
    row(
        "doctest of a text file",
        {"tests/guide.rst": ">>> 1 + 1\n2\n", "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["src"]\ntestpaths = ["tests"]\naddopts = ["--doctest-glob=*.rst"]\n[tool.lockgate.stages.unit]\nselect = ""\ndocumentation = ["*.rst"]\n'},
        {"tests/guide.rst": ">>> 1 + 1\n3\n"},
        "test-file",
    ),
    row(
        "exec of a file",
        {"scripts/x.py": "X = 1\n", "tests/test_m.py": "import pathlib\ndef test_m():\n    names = {}\n    exec(pathlib.Path(__file__).parents[1].joinpath('scripts/x.py').read_text(), names)\n    assert names['X'] == 1\n"},
        {"scripts/x.py": "X = 2\n"},
        "source-read",
    ),
    row(
        "script run by runpy",
        {"scripts/x.py": "X = 1\n", "tests/test_m.py": "import pathlib, runpy\ndef test_m():\n    assert runpy.run_path(str(pathlib.Path(__file__).parents[1] / 'scripts/x.py'))['X'] == 1\n"},
        {"scripts/x.py": "X = 2\n"},
        "module-level",
    ),
    row(
        "generated file, its template",
        {"template.txt": "1", "tests/test_m.py": "import pathlib\ndef test_m():\n    assert pathlib.Path('build/out.txt').read_text() == '1'\n"},
        {"template.txt": "2"},
        "unknown-file",
        sweeping=True,
        setup="import os,shutil; os.makedirs('build', exist_ok=True); shutil.copy('template.txt', 'build/out.txt')",
    ),
    row(
        "generated file, its generator",
        {"tools/gen.py": "TEXT = '1'\n", "tests/test_m.py": "import pathlib\ndef test_m():\n    assert pathlib.Path('build/out.txt').read_text() == '1'\n"},
        {"tools/gen.py": "TEXT = '2'\n"},
        "opaque",
        setup="import os,sys; sys.path.insert(0,'tools'); import gen; os.makedirs('build', exist_ok=True); open('build/out.txt','w').write(gen.TEXT)",
    ),
    row(
        "generated module, its generator",
        {"tools/gen.py": "TEXT = 'X = 1'\n", "src/m.py": "import sys\nsys.path.insert(0, 'build')\nimport made\ndef value():\n    return made.X\n", "tests/test_m.py": TEST_M},
        {"tools/gen.py": "TEXT = 'X = 2'\n"},
        "opaque",
        setup="import os,sys; sys.path.insert(0,'tools'); import gen; os.makedirs('build', exist_ok=True); open('build/made.py','w').write(gen.TEXT)",
    ),
]  # fmt: skip

CHILD = "import subprocess, sys, os\nENV = {**os.environ, 'PYTHONPATH': 'src' + os.pathsep + os.environ.get('PYTHONPATH', '')}\n"


def forks(name: str, test: str, reason: str = "body-executed", **more: Any) -> dict[str, Any]:
    """Make a kind in which the body of `m.value` changes and only another process runs it."""
    files = {"src/m.py": ONE, "tests/test_m.py": CHILD + test}
    return row(name, files, {"src/m.py": TWO}, reason, **more)


PROCESSES = [
    forks("subprocess with -c", "def test_m():\n    subprocess.run([sys.executable, '-c', 'import m; assert m.value() == 1'], env=ENV, check=True)\n"),
    forks("subprocess that exits at once", "def test_m():\n    code = 'import m, os; os._exit(m.value() - 1)'\n    subprocess.run([sys.executable, '-c', code], env=ENV, check=True)\n"),
    forks("subprocess of a subprocess", "def test_m():\n    code = 'import subprocess, sys; subprocess.run([sys.executable, \"-c\", \"import m; assert m.value() == 1\"], check=True)'\n    subprocess.run([sys.executable, '-c', code], env=ENV, check=True)\n"),
    forks("fork", "def test_m():\n    import m\n    pid = os.fork()\n    if not pid:\n        os._exit(0 if m.value() == 1 else 3)\n    assert os.waitpid(pid, 0)[1] == 0\n"),
    forks("shell", "def test_m():\n    assert os.system(f'PYTHONPATH=src:$PYTHONPATH {sys.executable} -c \"import m; assert m.value() == 1\"') == 0\n"),
    forks("exec", "def test_m():\n    pid = os.fork()\n    if not pid:\n        os.execve(sys.executable, [sys.executable, '-c', 'import m; assert m.value() == 1'], ENV)\n    assert os.waitpid(pid, 0)[1] == 0\n"),
    forks(
        "spawned worker",
        "import multiprocessing\ndef work(q):\n    import m\n    q.put(m.value())\n"
        "def test_m():\n    c = multiprocessing.get_context('spawn')\n    q = c.Queue()\n    p = c.Process(target=work, args=(q,))\n    p.start()\n    assert q.get() == 1\n    p.join()\n",
    ),
    forks(
        "pool of forked workers",
        "import multiprocessing\ndef work(x):\n    import m\n    return m.value()\n"
        "def test_m():\n    with multiprocessing.get_context('fork').Pool(1) as pool:\n        assert pool.map(work, [0]) == [1]\n",
        reason="module-level",
    )
    | {"change": {"src/m.py": "X = 2\ndef value():\n    return X\n"}},
    forks(
        "child killed before it can report",
        "import signal\ndef test_m():\n    code = 'import m, os, sys; sys.stdout.write(str(m.value())); sys.stdout.flush(); os.kill(os.getpid(), 9)'\n"
        "    done = subprocess.run([sys.executable, '-c', code], env=ENV, capture_output=True)\n    assert done.stdout == b'1'\n",
        reason="opaque",
    ),
    forks("child without site", "def test_m():\n    code = 'import sys; sys.path.insert(0, \"src\"); import m; assert m.value() == 1'\n    subprocess.run([sys.executable, '-I', '-S', '-c', code], check=True)\n", reason="opaque"),
    forks("thread", "import threading\ndef test_m():\n    import m\n    got = []\n    t = threading.Thread(target=lambda: got.append(m.value()))\n    t.start()\n    t.join()\n    assert got == [1]\n"),
    forks("setUpClass", "import unittest, m\nclass TestM(unittest.TestCase):\n    @classmethod\n    def setUpClass(cls):\n        cls.x = m.value()\n    def test_a(self):\n        assert self.x == 1\n    def test_b(self):\n        assert self.x == 1\n"),
    forks("setup_class", "import m\nclass TestM:\n    @classmethod\n    def setup_class(cls):\n        cls.x = m.value()\n    def test_a(self):\n        assert self.x == 1\n    def test_b(self):\n        assert self.x == 1\n"),
    forks("module fixture", "import pytest, m\n@pytest.fixture(scope='module')\ndef x():\n    return m.value()\ndef test_a(x):\n    assert x == 1\ndef test_b(x):\n    assert x == 1\n"),
    forks("teardown", "import pytest, m\n@pytest.fixture\ndef x():\n    yield 1\n    assert m.value() == 1\ndef test_a(x):\n    pass\n"),
    forks("trace function removed", "import m\ndef test_m():\n    sys.settrace(None)\n    assert m.value() == 1\n", reason="opaque", versions=(3, 11)),
    forks(
        "JIT from source",
        "import inspect, textwrap, m\ndef test_m():\n    names = {}\n    exec(inspect.getsource(m.value), names)\n    assert names['value']() == 1\n",
        reason="source-read",
    ),
    forks("JIT from bytecode", "import m\ndef test_m():\n    assert 1 in m.value.__code__.co_consts\n"),
    forks(
        "JIT from bytecode, run plainly by another test",
        "import m\ndef test_m():\n    assert 1 in m.value.__code__.co_consts\ndef test_n():\n    assert m.value() == 1\n",
    ),
    row(
        "generator that a fixture started",
        {"src/m.py": "def values():\n    yield 0\n    yield 1\n", "tests/test_m.py": "import pytest, m\n@pytest.fixture(scope='module')\ndef g():\n    it = m.values()\n    next(it)\n    return it\ndef test_m(g):\n    assert next(g) == 1\n"},
        {"src/m.py": "def values():\n    yield 0\n    yield 2\n"},
        "body-executed",
    ),
    row(
        "shell script",
        {"tool.sh": "#!/bin/sh\nexit 0\n", "tests/test_m.py": "import subprocess\ndef test_m():\n    subprocess.run(['sh', 'tool.sh'], check=True)\n"},
        {"tool.sh": "#!/bin/sh\nexit 1\n"},
        "data-read",
    ),
    row(
        "permission of a script",
        {"tool.sh": "#!/bin/sh\nexit 0\n", "tests/test_m.py": "import subprocess\ndef test_m():\n    subprocess.run(['./tool.sh'], check=True)\n"},
        {},
        "mode-changed",
        modes={"tool.sh": 0o644},
    ),
]  # fmt: skip

NATIVE = row(
    "native source",
    {
        "csrc/one.c": '#include "one.h"\nint one(void) { return ONE; }\n',
        "csrc/one.h": "#define ONE 1\n",
        "src/m.py": "import ctypes, pathlib\ndef value():\n    return ctypes.CDLL(str(pathlib.Path(__file__).parents[1] / 'build/libone.so')).one()\n",
        "tests/test_m.py": TEST_M,
    },
    {"csrc/one.h": "#define ONE 2\n"},
    "native-loaded",
    setup="import os, subprocess; os.makedirs('build', exist_ok=True); "
    "subprocess.run('cc -MMD -MF build/one.o.d -fPIC -c csrc/one.c -o build/one.o && cc -shared build/one.o -o build/libone.so', shell=True, check=True)",
)  # fmt: skip

KINDS = [*DATA, *PROCESSES]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind["name"]))
def test_no_failing_test_is_missed(kind: Mapping[str, Any], check_kind: Callable[[Mapping[str, Any]], None]) -> None:
    check_kind(kind)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler: install gcc")
def test_a_native_header_selects_who_loaded_the_library(check_kind: Callable[[Mapping[str, Any]], None]) -> None:
    check_kind(NATIVE)
