"""The project's own tables agree with each other: rows, sessions, groups, lock, markers."""

import ast
import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from ci.docs.variables import VARIABLES
from ci.stages.table import DEFAULT_STAGES, read_markers, read_settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytestmark = pytest.mark.cpu

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TIERS = {"cpu", "native_backend", "gpu", "multi_gpu"}


def sessions():
    tree = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
    return {
        node.name: ast.get_docstring(node)
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and any(ast.unparse(item) == "nox.session" for item in node.decorator_list)
    }


def requirements():
    named = [*PROJECT["project"]["dependencies"]]
    for extra in PROJECT["project"]["optional-dependencies"].values():
        named += extra
    for group in PROJECT["dependency-groups"].values():
        named += [item for item in group if isinstance(item, str)]
    return [Requirement(item) for item in named]


def test_every_stage_has_a_session_of_its_name_with_a_docstring():
    names = sessions()
    assert set(read_settings(ROOT).stages) <= set(names)
    assert all(names.values())


@pytest.mark.parametrize("stage", [stage.name for stage in DEFAULT_STAGES])
def test_every_default_stage_has_a_dependency_group(stage):
    assert stage in PROJECT["dependency-groups"]


def test_the_gate_needs_neither_torch_nor_an_engine():
    groups = PROJECT["dependency-groups"]
    seen = {canonicalize_name(item.name) for item in map(Requirement, PROJECT["project"]["dependencies"])}
    todo = ["cpu_gate"]
    while todo:
        for item in groups[todo.pop()]:
            if isinstance(item, str):
                seen.add(canonicalize_name(Requirement(item).name))
            else:
                todo.append(item["include-group"])
    assert not seen & {"torch", "transformers", "chdb", "cmake", "nanobind", "clickhouse-connect"}


def test_the_lock_pins_every_dependency_to_a_version_that_pyproject_allows():
    pins = {}
    for line in (ROOT / ".ci" / "constraints.txt").read_text(encoding="utf-8").splitlines():
        found = re.match(r"([\w.-]+)==([^\s;]+)", line)
        if found:
            pins.setdefault(canonicalize_name(found[1]), []).append(Version(found[2]))
    for wanted in requirements():
        name = canonicalize_name(wanted.name)
        assert name in pins, f"{name} is not locked; run invoke lock"
        assert all(wanted.specifier.contains(pin) for pin in pins[name]), f"{wanted} is locked to {pins[name]}"


def test_the_lock_names_no_index():
    assert "://" not in (ROOT / ".ci" / "constraints.txt").read_text(encoding="utf-8")


def test_every_selection_uses_registered_markers_only():
    known = {re.split(r"[(:]", line)[0] for line in read_markers(ROOT)}
    assert known >= TIERS
    for stage in read_settings(ROOT).stages.values():
        words = set(re.findall(r"[a-z_]+", stage.select)) - {"and", "or", "not"}
        assert words <= known, stage.name


def test_every_variable_that_the_sources_read_is_documented():
    pattern = re.compile(r"""["'](LOCKGATE_[A-Z_]+|SKIP_NATIVE_BUILD|CUDA_ARCHS|CUDACXX)["']""")
    files = [*ROOT.glob("ci/**/*.py"), *ROOT.glob("monitoring/**/*.py"), ROOT / "setup.py", ROOT / "tasks.py"]
    used = {word for path in files if path.is_file() for word in pattern.findall(path.read_text(encoding="utf-8"))}
    assert used <= {row.name for row in VARIABLES}
