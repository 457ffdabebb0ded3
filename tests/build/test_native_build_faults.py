"""Building for real: what a missing or broken tool does to an installation, and CUDA mode without a device."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ci.stages.guards import require_nvcc

pytestmark = [pytest.mark.cpu, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def setup(tmp_path):
    """Run setup.py's build into a folder of the test's own."""
    missing = [name for name in ("cmake", "nanobind", "ninja", "setuptools") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"needs build tools: {', '.join(missing)}; pip install --group native")

    def run(**environ):
        command = [
            sys.executable,
            "setup.py",
            "-q",
            "build_ext",
            f"--build-lib={tmp_path}",
            f"--build-temp={tmp_path}/t",
        ]
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, **environ}, capture_output=True, text=True, timeout=1500, check=False
        )
        return done, sorted(tmp_path.glob("monitoring/_native*"))

    return run


def without(program):
    """PATH without the folders that hold a program."""
    folders = os.environ["PATH"].split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if shutil.which(program, path=folder) is None)


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_broken_compiler_fails_the_build_with_its_message(setup, tmp_path):
    compiler = script(tmp_path / "cxx", "echo 'cxx: fatal error: the disk of the compiler is full' >&2; exit 1")
    done, built = setup(CXX=compiler, LOCKGATE_NATIVE="cpu")
    assert done.returncode == 1
    assert built == []
    assert "error: configuring the native library failed" in done.stderr
    assert "cxx: fatal error: the disk of the compiler is full" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_cuda_without_nvcc_is_an_error_never_a_cpu_build(setup, monkeypatch):
    done, built = setup(LOCKGATE_NATIVE="cuda", PATH=without("nvcc"), CUDACXX="", PYTHONPATH="")
    if built:
        pytest.skip("needs an environment without PyPI's nvcc")
    assert done.returncode == 1
    assert "LOCKGATE_NATIVE=cuda needs nvcc, which was not found; put a CUDA toolkit's nvcc on PATH" in done.stderr
    assert "Traceback" not in done.stderr


@require_nvcc()
def test_cuda_mode_builds_and_imports_without_a_device(setup):
    done, built = setup(LOCKGATE_NATIVE="cuda", CUDA_ARCHS="90")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    (module,) = built
    probe = (
        "import _native, json; print(_native.features()['mode'], _native.features()['cuda_archs'], "
        "_native.cuda_device_count() >= 0, _native.cuda_status().startswith('built with CUDA, '))"
    )
    environ = {**os.environ, "PYTHONPATH": str(module.parent)}
    command = [sys.executable, "-c", probe]
    shown = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert shown.stdout.strip() == "cuda [90] True True", shown.stderr
