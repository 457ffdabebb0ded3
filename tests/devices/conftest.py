"""The fake machine: NVIDIA's management library built from `fake_nvml.c`, and processes that see it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).with_name("fake_nvml.c")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def fake_nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the fake library once; gives the folder for LD_LIBRARY_PATH."""
    folder = tmp_path_factory.mktemp("nvml")
    library = folder / "libnvidia-ml.so.1"
    command = ["cc", "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    command += ["-Wl,-soname,libnvidia-ml.so.1", "-o", os.fspath(library), os.fspath(SOURCE)]
    subprocess.run(command, check=True, timeout=60)
    return folder


@pytest.fixture
def machine(fake_nvml: Path) -> Callable[..., dict[str, str]]:
    """Give a function that turns settings (`COUNT=2`, `GPU0_ECC=3`, ...) into the environment of a process."""

    def build(*, visible: str | None = None, **settings: object) -> dict[str, str]:
        environ = {key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
        environ |= {"LD_LIBRARY_PATH": os.fspath(fake_nvml), "PYTHONPATH": os.fspath(ROOT)}
        for key, value in settings.items():
            environ["FAKE_NVML_" + key.removeprefix("GPU")] = str(value)
        if visible is not None:
            environ["CUDA_VISIBLE_DEVICES"] = visible
        return environ

    return build


@pytest.fixture
def show(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Give a function that runs `python -m ci.devices` on a machine."""

    def run(environ: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ci.devices", *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=dict(environ), capture_output=True, text=True, timeout=60, check=False
        )

    return run


@pytest.fixture
def inventory(show: Callable[..., subprocess.CompletedProcess[str]]) -> Callable[..., dict[str, Any]]:
    """Give a function that reads a machine's inventory as JSON values."""

    def read(environ: Mapping[str, str]) -> dict[str, Any]:
        done = show(environ, "--json")
        document: dict[str, Any] = json.loads(done.stdout)
        document["exit_code"] = done.returncode
        return document

    return read
