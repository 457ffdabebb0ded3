"""The project's own rows: documentation needs no GPU, a C++ file needs the tests that load the native library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import ci
from ci.impact.decide import decide
from ci.impact.facts import Facts
from ci.impact.plan import Decision
from ci.stages.model import Stage
from ci.stages.table import read_settings

pytestmark = pytest.mark.cpu

ROOT = Path(ci.__file__).parents[1]
NATIVE = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "monitoring/csrc").rglob("*.cpp"))
GPU, PLAIN = "tests/gpu/test_ring.py::test_ring", "tests/gpu/test_hooks.py::test_hooks"
LIBRARY = "monitoring/_native.abi3.so"


def row(name: str) -> Stage:
    return read_settings(ROOT).stage(name)


def files() -> dict[str, str]:
    texts = dict.fromkeys(NATIVE, "int x;\n")
    return {
        **texts,
        "docs/impact.md": "a",
        "README.md": "a",
        "tests/gpu/test_ring.py": "",
        "tests/gpu/test_hooks.py": "",
    }


@pytest.mark.parametrize("stage", ["gpu_smoke", "multi_gpu", "cpu_gate", "package"])
@pytest.mark.parametrize("path", ["docs/impact.md", "README.md", "CHANGELOG.md", "docs/pictures/new.svg"])
def test_documentation_needs_no_test(facts_of: Callable[..., Facts], stage: str, path: str) -> None:
    plan = decide(facts_of(files(), {**files(), path: "b"}, tests=(GPU, PLAIN), stage=row(stage)))
    assert plan.decision is Decision.NONE
    assert [str(cause.reason) for cause in plan.causes] == ["documentation"]


@pytest.mark.skipif(not NATIVE, reason="the installed package has no native sources: run in a clone")
@pytest.mark.parametrize("stage", ["gpu_smoke", "package"])
def test_a_native_source_needs_the_tests_that_loaded_it(facts_of: Callable[..., Facts], stage: str) -> None:
    libraries = {LIBRARY: (NATIVE, [GPU])}
    for path in (NATIVE[0], NATIVE[-1]):
        changed = {**files(), path: "int y;\n"}
        plan = decide(facts_of(files(), changed, tests=(GPU, PLAIN), libraries=libraries, stage=row(stage)))
        assert {item.id for item in plan.tests} - {"tests/gpu/test_ring.py"} == {GPU}
        assert plan.skipped == (PLAIN,)
        assert "native-loaded" in plan.reasons


@pytest.mark.skipif(not NATIVE, reason="the installed package has no native sources: run in a clone")
def test_a_native_source_without_dependency_files_needs_everything(facts_of: Callable[..., Facts]) -> None:
    plan = decide(facts_of(files(), {**files(), NATIVE[0]: "int y;\n"}, tests=(GPU, PLAIN), stage=row("gpu_smoke")))
    assert list(plan.reasons) == ["unknown-native"]
