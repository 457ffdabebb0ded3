"""Files, folders, libraries and children of recorded tests."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.cpu, pytest.mark.slow]

Record = Callable[..., Any]
LIBRARY = "def work(x):\n    return x + 1\ndef other():\n    return 2\n"


def test_files_are_dependencies_of_who_opened_listed_or_looked_for_them(record: Record) -> None:
    done = record({
        "src/loader.py": (
            "import pathlib\nHERE = pathlib.Path(__file__).parent\n"
            "AT_IMPORT = (HERE / 'import.txt').read_text()\n"
            "def load(name):\n    return (HERE / name).read_text()\n"
        ),
        "src/import.txt": "i", "src/data.txt": "d", "src/fixture.txt": "f",
        "tests/conftest.py": (
            "import pytest, loader\n@pytest.fixture(scope='session')\ndef text():\n"
            "    return loader.load('fixture.txt')\n"
        ),
        "tests/test_files.py": (
            "import loader, os, inspect\n"
            "def test_reads():\n    assert loader.load('data.txt') == 'd'\n"
            "def test_fixture(text):\n    assert text == 'f'\n"
            "def test_lists():\n    assert 'data.txt' in os.listdir(loader.HERE)\n"
            "def test_globs():\n    assert list(loader.HERE.glob('*.txt'))\n"
            "def test_asks():\n    assert not (loader.HERE / 'absent.cfg').exists()\n"
            "def test_in_vain():\n"
            "    try:\n        open('config.ini')\n    except FileNotFoundError:\n        pass\n"
            "    try:\n        import plugin_of_mine\n    except ImportError:\n        pass\n"
            "def test_source():\n    assert 'def load' in inspect.getsource(loader.load)\n"
            "def test_none():\n    pass\n"
        ),
    })  # fmt: skip
    assert done.atoms("::test_reads").opened == {"src/import.txt", "src/data.txt"}
    assert done.atoms("::test_fixture").opened == {"src/import.txt", "src/fixture.txt"}
    assert "src" in done.atoms("::test_lists").listed
    assert "src" in done.atoms("::test_globs").listed
    assert "src/absent.cfg" in done.atoms("::test_asks").probed
    assert {"config.ini", "src/plugin_of_mine.py", "src/plugin_of_mine/__init__.py"} <= done.atoms(
        "::test_in_vain"
    ).probed
    assert "src/loader.py" in done.atoms("::test_source").opened
    assert done.atoms("::test_none").opened == {"src/import.txt"}, "read while its module was imported"
    assert not done.atoms("::test_none").listed, "pytest's own walk is no dependency"
    assert done.manifest.listings["src"]


def test_links_lead_to_the_file_and_are_dependencies_themselves(record: Record, tmp_path: Path) -> None:
    root = tmp_path / "repo"
    (root / "real").mkdir(parents=True)
    (root / "real" / "data.txt").write_text("x")
    (root / "real" / "mod.py").write_text("def f():\n    return 1\n")
    (root / "link").symlink_to("real")
    done = record({
        "tests/test_link.py": (
            "import sys\nsys.path.insert(0, 'link')\nimport mod\n"
            "def test_open():\n    assert open('link/data.txt').read()\n"
            "def test_code():\n    assert mod.f()\n"
        ),
    })  # fmt: skip
    assert {"real/data.txt", "link"} <= done.atoms("::test_open").opened
    assert ("real/mod.py", "f") in done.atoms("::test_code").blocks
    assert "link" in done.atoms("::test_code").opened


def test_what_a_test_wrote_itself_is_no_input_but_other_untracked_files_are(record: Record, tmp_path: Path) -> None:
    (tmp_path / "repo" / "made").mkdir(parents=True)
    (tmp_path / "repo" / "made" / "config.txt").write_text("local")
    done = record({
        "tests/test_made.py": (
            "import pathlib\n"
            "def test_own():\n    p = pathlib.Path('made/own.txt')\n    p.write_text('1')\n"
            "    assert p.read_text() == '1'\n"
            "def test_foreign():\n    assert pathlib.Path('made/config.txt').read_text()\n"
            "def test_git():\n    assert pathlib.Path('.git/HEAD').read_text()\n"
        ),
    })  # fmt: skip
    assert done.atoms("::test_own").opaque == ()
    assert done.atoms("::test_foreign").opaque == ("untracked-input: made/config.txt",)
    assert done.atoms("::test_git").opaque == ("reads-git",)


@pytest.mark.parametrize(
    "how", ["subprocess", "fork", "fork-exit", "spawn", "forkserver", "pool", "sigterm", "exec", "nested"]
)
def test_children_report_to_the_test_that_started_them(record: Record, how: str) -> None:
    bodies = {
        "subprocess": "    subprocess.run([sys.executable, '-c', 'import lib; lib.work(1)'], check=True)\n",
        "fork": "    pid = os.fork()\n    if pid == 0:\n        lib.work(1)\n        os._exit(0)\n"
        "    os.waitpid(pid, 0)\n",
        "fork-exit": (
            "    pid = os.fork()\n    if pid == 0:\n        try:\n            lib.work(1)\n        finally:\n"
            "            os._exit(3)\n"
            "    os.waitpid(pid, 0)\n"
        ),
        "spawn": (
            "    p = multiprocessing.get_context('spawn').Process(target=lib.work, args=(1,))\n    p.start()\n"
            "    p.join()\n"
            "    assert p.exitcode == 0\n"
        ),
        "forkserver": (
            "    p = multiprocessing.get_context('forkserver').Process(target=lib.work, args=(1,))\n"
            "    p.start()\n    p.join()\n"
            "    assert p.exitcode == 0\n"
        ),
        "pool": (
            "    with multiprocessing.get_context('fork').Pool(1) as pool:\n"
            "        assert pool.map(lib.work, [1]) == [2]\n"
            "        pool.terminate()\n        pool.join()\n"
        ),
        "sigterm": (
            "    code = 'import lib, time; lib.work(1); print(1, flush=True); time.sleep(60)'\n"
            "    p = subprocess.Popen([sys.executable, '-c', code],"
            " stdout=subprocess.PIPE)\n    p.stdout.readline()\n    p.terminate()\n    assert p.wait() == -15\n"
            "    p.stdout.close()\n"
        ),
        "exec": (
            "    pid = os.fork()\n    if pid == 0:\n"
            "        os.execv(sys.executable, [sys.executable, '-c', 'import lib; lib.work(1)'])\n"
            "    os.waitpid(pid, 0)\n"
        ),
        "nested": (
            "    code = 'import subprocess, sys; '"
            '\'subprocess.run([sys.executable, "-c", "import lib; lib.work(1)"], check=True)\'\n'
            "    subprocess.run([sys.executable, '-c', code], check=True)\n"
        ),
    }
    done = record({
        "src/lib.py": LIBRARY,
        "tests/test_child.py": (
            "import multiprocessing, os, subprocess, sys\nimport lib\n"
            "os.environ['PYTHONPATH'] = os.environ['PYTHONPATH'] + os.pathsep + os.path.abspath('src')\n"
            f"def test_child():\n{bodies[how]}\ndef test_quiet():\n    pass\n"
        ),
    })  # fmt: skip
    assert done.code == 0, done.output
    assert "work" in done.blocks("::test_child")
    assert done.atoms("::test_child").opaque == ()
    assert "work" not in done.blocks("::test_quiet")


@pytest.mark.parametrize(
    ("name", "body", "reason"),
    [
        ("isolated", "subprocess.run([sys.executable, '-I', '-c', 'pass'])", "child-missing: 0 of 1 reported"),
        ("no-site", "subprocess.run([sys.executable, '-S', '-c', 'pass'])", "child-missing: 0 of 1 reported"),
        ("bare", "subprocess.run([sys.executable, '-c', 'pass'], env={})", "child-missing: 0 of 1 reported"),
        ("killed", "subprocess.run([sys.executable, '-c', 'import os; os.kill(os.getpid(), 9)'])", "child-killed"),
        ("aborted", "subprocess.run([sys.executable, '-c', 'import os; os.abort()'])", "child-killed"),
        ("shell", "os.system('true')", "child-shell"),
        ("sh", "subprocess.run('true', shell=True)", "child-not-python: "),
        ("reader", "subprocess.run(['git', 'status'], capture_output=True)", "child-not-python: git"),
    ],
)
def test_a_child_that_cannot_be_followed_makes_its_test_opaque(
    record: Record, name: str, body: str, reason: str
) -> None:
    done = record({
        "tests/test_child.py": (
            f"import os, subprocess, sys\ndef test_child():\n    {body}\ndef test_quiet():\n    pass\n"
        ),
    })  # fmt: skip
    assert any(word.startswith(reason) for word in done.atoms("::test_child").opaque), (
        name,
        done.atoms("::test_child"),
    )
    assert done.atoms("::test_quiet").opaque == ()


def test_programs_outside_the_repository_are_followed_by_their_arguments(record: Record) -> None:
    done = record({
        "data.txt": "x\n",
        "tests/test_child.py": (
            "import os, subprocess\n"
            "def test_away(tmp_path):\n    subprocess.run(['git', 'init', '-q', '.'], cwd=tmp_path, check=True)\n"
            "def test_cat(tmp_path):\n"
            "    subprocess.run(['cat', os.path.abspath('data.txt')], cwd=tmp_path, check=True)\n"
            "def test_absent(tmp_path):\n"
            "    try:\n        subprocess.run(['no-such-program'])\n    except FileNotFoundError:\n        pass\n"
        ),
    })  # fmt: skip
    for test in ("::test_away", "::test_cat", "::test_absent"):
        assert done.atoms(test).opaque == (), test
    assert "data.txt" in done.atoms("::test_cat").opened


def test_a_program_that_sees_only_its_arguments_makes_nothing_opaque_in_the_repository(record: Record) -> None:
    done = record({
        "data.txt": "x\n",
        "tests/test_child.py": (
            "import subprocess\n"
            "def test_machine():\n    subprocess.run(['uname', '-m'], check=True)\n"
            "def test_cat():\n    subprocess.run(['cat', 'data.txt'], check=True)\n"
            "def test_listing():\n    subprocess.run(['ls'], check=True)\n"
            "def test_copy(tmp_path):\n    subprocess.run(['cp', '-r', '.', str(tmp_path / 'x')], check=True)\n"
        ),
    })  # fmt: skip
    assert done.atoms("::test_machine").opaque == ()
    assert done.atoms("::test_cat").opaque == ()
    assert "data.txt" in done.atoms("::test_cat").opened
    assert done.atoms("::test_listing").opaque == ("child-not-python: ls",)
    assert done.atoms("::test_copy").opaque == ("child-not-python: cp",)


def test_the_constants_that_hypothesis_collects_tie_no_test_to_every_file(record: Record) -> None:
    done = record({
        "src/m.py": "def value():\n    return 12345\n",
        "tests/test_property.py": (
            "import m\nfrom hypothesis import given, strategies as st\n"
            "@given(st.integers() | st.text())\ndef test_drawn(x):\n    assert x is not None\n"
            "def test_read():\n    assert open(m.__file__).read()\n"
        ),
    })  # fmt: skip
    assert "src/m.py" not in done.atoms("::test_drawn").opened
    assert "src/m.py" in done.atoms("::test_read").opened


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("build", ["depfile", "none"])
def test_a_native_library_leads_to_its_sources(record: Record, tmp_path: Path, build: str) -> None:
    root = tmp_path / "repo"
    (root / "made").mkdir(parents=True)
    sources = {"csrc/add.c": '#include "add.h"\nint add(int a) { return a + ONE; }\n', "csrc/add.h": "#define ONE 1\n"}
    for name, text in sources.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    flags = ["-MMD", "-MF", "made/add.d"] if build == "depfile" else []
    subprocess.run(["cc", "-shared", "-fPIC", *flags, "-o", "made/libadd.so", "csrc/add.c"], cwd=root, check=True)
    done = record({
        "src/native.py": "import ctypes\ndef load():\n    return ctypes.CDLL('made/libadd.so')\n",
        "tests/test_native.py": (
            "import native\ndef test_native():\n    assert native.load().add(1) == 2\ndef test_python():\n    pass\n"
        ),
    })  # fmt: skip
    assert done.atoms("::test_native").libraries == {"made/libadd.so"}
    assert done.atoms("::test_python").libraries == frozenset()
    library = done.manifest.libraries["made/libadd.so"]
    assert library.is_known == (build == "depfile")
    assert library.sources == (frozenset(sources) if build == "depfile" else frozenset())


def test_the_suffix_of_extensions_is_known() -> None:
    from ci.manifest.translate import LIBRARY_SUFFIXES

    assert str(sysconfig.get_config_var("EXT_SUFFIX")).endswith(LIBRARY_SUFFIXES)


def test_data_and_source_that_loaders_hand_out_are_read_by_the_test(record: Record) -> None:
    done = record({
        "src/pkg/__init__.py": "", "src/pkg/data.txt": "d",
        "src/pkg/code.py": "def f():\n    return 1\n",
        "tests/conftest.py": "import inspect\nfrom pkg import code\ninspect.getsource(code.f)\n",
        "tests/test_data.py": (
            "import importlib.resources, inspect, pkgutil, traceback\nfrom pkg import code\n"
            "def test_pkgutil():\n    assert pkgutil.get_data('pkg', 'data.txt') == b'd'\n"
            "def test_resources():\n"
            "    assert importlib.resources.files('pkg').joinpath('data.txt').read_text() == 'd'\n"
            "def test_source():\n    assert 'return' in inspect.getsource(code.f)\n"
            "def test_loader():\n    assert 'return' in code.__loader__.get_source('pkg.code')\n"
        ),
    })  # fmt: skip
    assert "src/pkg/data.txt" in done.atoms("::test_pkgutil").opened
    assert "src/pkg/data.txt" in done.atoms("::test_resources").opened
    assert "src/pkg/code.py" in done.atoms("::test_source").opened, "its lines were cached before the test"
    assert "src/pkg/code.py" in done.atoms("::test_loader").opened


def test_a_module_that_is_loaded_by_its_path_has_its_loader_as_importer(record: Record) -> None:
    done = record({
        "tools/helper.py": "def build():\n    return 7\nVALUE = build()\n",
        "tests/conftest.py": (
            "import importlib.util\n"
            "spec = importlib.util.spec_from_file_location('helper', 'tools/helper.py')\n"
            "helper = importlib.util.module_from_spec(spec)\nspec.loader.exec_module(helper)\n"
            "import builtins\nbuiltins.HELPER = helper\n"
        ),
        "tests/test_path.py": "def test_path():\n    assert HELPER.VALUE == 7\n",
    })  # fmt: skip
    assert "tools/helper.py" in done.atoms("::test_path").modules
    assert "build" in done.blocks("::test_path")


def test_a_file_inside_an_archive_belongs_to_the_archive(record: Record, tmp_path: Path) -> None:
    import zipfile

    (tmp_path / "repo").mkdir()
    with zipfile.ZipFile(tmp_path / "repo" / "packed.zip", "w") as archive:
        archive.writestr("inside.py", "def f():\n    return 1\n")
    done = record({
        "tests/test_zip.py": (
            "import sys\ndef test_zip():\n    sys.path.insert(0, 'packed.zip')\n    import inside\n"
            "    assert inside.f()\n"
        ),
    })  # fmt: skip
    assert done.atoms("::test_zip").opaque == ()
    assert "packed.zip" in done.atoms("::test_zip").opened


def test_what_children_are_given_and_what_compilers_take_are_dependencies(record: Record) -> None:
    done = record({
        "tool.sh": "true\n",
        "src/jit.py": "def kernel():\n    return 1\ndef plain():\n    return 2\n",
        "tests/test_given.py": (
            "import inspect, os, pathlib, sqlite3, subprocess\nimport jit\n"
            "def test_shell():\n    subprocess.run(['sh', 'tool.sh'], check=True)\n"
            "def test_system():\n    assert os.system('sh tool.sh') == 0\n"
            "def test_code():\n    assert jit.kernel.__code__.co_code\n"
            "def test_signature():\n    assert not inspect.signature(jit.kernel).parameters\n"
            "def test_sqlite():\n    sqlite3.connect(pathlib.Path('tool.sh')).close()\n"
        ),
    })  # fmt: skip
    assert "tool.sh" in done.atoms("::test_shell").opened
    assert "tool.sh" in done.atoms("::test_system").opened
    assert "tool.sh" in done.atoms("::test_sqlite").opened
    assert "kernel" in done.blocks("::test_code")
    assert "plain" not in done.blocks("::test_code")
    assert "kernel" not in done.blocks("::test_signature")


def test_code_on_a_command_line_is_no_path(record: Record) -> None:
    done = record({
        "tests/test_code.py": (
            "import subprocess, sys\nCODE = 'import os\\nx = 1\\n'\n"
            "def test_code():\n    subprocess.run([sys.executable, '-c', CODE], check=True)\n"
            "def test_killed():\n    subprocess.run([sys.executable, '-c', CODE + 'os.kill(os.getpid(), 9)'])\n"
        ),
    })  # fmt: skip
    assert not done.refusal, done.build_output
    assert done.build_code == 0
    assert done.atoms("::test_code").opaque == ()
    assert all("\n" not in reason for reason in done.atoms("::test_killed").opaque)


def test_who_imports_an_untracked_module_at_import_time_is_opaque(record: Record, tmp_path: Path) -> None:
    (tmp_path / "repo" / "made").mkdir(parents=True)
    (tmp_path / "repo" / "made" / "generated.py").write_text("VALUE = 1\n")
    files = {
        "src/m.py": "import sys\nsys.path.insert(0, 'made')\nimport generated\n",
        "tests/test_m.py": "import m\ndef test_m():\n    assert m.generated.VALUE\n",
        "tests/test_n.py": "def test_n():\n    pass\n",
    }
    done = record(files)
    assert done.atoms("::test_m").opaque == ("untracked-input: made/generated.py",)
    assert done.atoms("::test_n").opaque == ()
