"""The distribution as its users get it: metadata, entry points, imports that stay light."""

import json
import subprocess
import sys
from importlib import metadata

import pytest

pytestmark = pytest.mark.native_backend


def ask(code):
    """Run code in a fresh interpreter that ignores the current folder and the environment's paths."""
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


def test_the_version_is_the_same_in_metadata_and_package():
    assert ask("import ci, json; print(json.dumps(ci.__version__))") == metadata.version("lockgate")


def test_the_command_and_the_pytest_plugin_are_registered():
    points = {(point.group, point.name): point.value for point in metadata.distribution("lockgate").entry_points}
    assert points[("console_scripts", "lockgate")] == "ci.cli:main"
    assert points[("pytest11", "ci.pytest_plugin")] == "ci.pytest_plugin"


@pytest.mark.parametrize("package", ["ci.cli", "monitoring"])
def test_importing_pulls_in_neither_torch_nor_the_engine(package):
    heavy = ask(
        f"import {package}, sys, json; print(json.dumps([m for m in ('torch', 'chdb', 'numpy') if m in sys.modules]))"
    )
    assert heavy == []


def test_the_native_library_loads_and_says_how_it_was_built():
    features = ask(
        "from monitoring import native; import json; print(json.dumps(native.load_native().features(), default=str))"
    )
    assert features["mode"] in ("cpu", "cuda")


def test_the_types_are_shipped():
    files = {str(path) for path in metadata.files("lockgate") or []}
    editable = any(name.startswith("__editable__") for name in files)
    assert editable or {"ci/py.typed", "monitoring/py.typed", "monitoring/_native.pyi"} <= files
