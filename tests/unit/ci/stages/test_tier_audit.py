from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ci.stages.markers import TIERS, MarkedTest, audit_tiers

pytestmark = pytest.mark.cpu

SOURCES = Path(__file__).resolve().parents[4]


def test_exactly_one_tier_per_test():
    tests = [
        MarkedTest(id="one", marks=frozenset({"cpu", "slow"})),
        MarkedTest(id="none", marks=frozenset({"slow"})),
        MarkedTest(id="two", marks=frozenset({"cpu", "gpu"})),
    ]
    assert audit_tiers(tests) == [
        "none has no tier, expected exactly one of cpu, native_backend, gpu, multi_gpu",
        "two has 2 tiers (cpu, gpu), expected exactly one",
    ]
    assert TIERS == ("cpu", "native_backend", "gpu", "multi_gpu")


def collect(tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "test_a.py").write_text(textwrap.dedent(text), encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    cpu\n    gpu\n    slow\n", encoding="utf-8")
    words = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--lockgate-audit", "-p", "ci.pytest_plugin"]
    environ = {"PYTHONPATH": str(SOURCES), "PATH": "/usr/bin"}
    return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, env=environ)


def test_the_audit_follows_aliases_and_marks_of_modules_and_classes_by_collecting(tmp_path):
    done = collect(
        tmp_path,
        """
        import pytest
        fast = pytest.mark.cpu
        class TestA:
            pytestmark = fast
            def test_one(self): pass
        @fast
        def test_two(): pass
        """,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_audit_fails_and_lists_the_tests_also_those_that_are_deselected(tmp_path):
    done = collect(
        tmp_path,
        """
        import pytest
        def test_bare(): pass
        @pytest.mark.cpu
        @pytest.mark.gpu
        def test_both(): pass
        """,
    )
    assert done.returncode == 4
    assert "test_a.py::test_bare has no tier" in done.stderr + done.stdout
    assert "test_a.py::test_both has 2 tiers" in done.stderr + done.stdout
