"""The package imports, selects and explains itself where neither torch nor the native library is installed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.cpu

ROOT = Path(__file__).parents[4]

BLOCK = """
import sys
class Blocked:
    NAMES = ("torch", "transformers", "numpy", "chdb", "monitoring._native")
    def find_spec(self, name, path=None, target=None):
        if name in self.NAMES or name.split(".")[0] in self.NAMES:
            raise ModuleNotFoundError(f"No module named {name!r} (blocked)", name=name)
sys.meta_path.insert(0, Blocked())
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    script = BLOCK + textwrap.dedent(code)
    command = [sys.executable, "-W", "error", "-c", script]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT, check=False)


def check(code: str) -> str:
    done = run(code)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_package_its_table_and_its_errors_import():
    out = check(
        """
        import monitoring
        from monitoring import errors, policy, step, stats, rows
        from monitoring.hooks import select, sites
        sites = select.parse_selection("full").sites
        print(len(sites), issubclass(monitoring.IncompleteRun, monitoring.MonitoringError))
        """
    )
    assert out == "23 True"


def test_every_public_name_loads():
    out = check(
        """
        import monitoring
        print([name for name in monitoring.__all__ if getattr(monitoring, name) is None], "watch" in dir(monitoring))
        """
    )
    assert out == "[] True"


def test_nothing_heavy_is_loaded_by_the_import():
    out = check("import monitoring; print(sorted(n for n in sys.modules if n.startswith('monitoring')))")
    assert out == "['monitoring']"


def test_read_is_the_function_whatever_was_imported_first():
    out = check(
        """
        import monitoring.read
        from monitoring.read import find_run
        print(callable(monitoring.read), monitoring.read.__name__)
        """
    )
    assert out == "True read"


def test_an_unknown_name_is_an_attribute_error():
    out = check(
        """
        import monitoring
        try:
            monitoring.wacth
        except AttributeError as error:
            print(error)
        """
    )
    assert "wacth" in out


def test_watching_without_torch_says_what_is_missing():
    out = check(
        """
        import monitoring
        try:
            monitoring.watch(object())
        except monitoring.MonitoringError as error:
            print(type(error).__name__, str(error))
        """
    )
    assert out.startswith("MissingDependency")
    assert "torch" in out
    assert "pip install" in out


def test_the_demonstration_without_torch_is_a_clear_error():
    done = run("from monitoring.demo import main; import tempfile; sys.exit(main(['--out', tempfile.gettempdir()]))")
    assert done.returncode == 1
    assert "torch" in done.stderr
    assert "hint:" in done.stderr
    assert "Traceback" not in done.stderr
