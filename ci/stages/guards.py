"""Guards: marks that skip a test for want of something, decided when the test is set up.

`require_gpus(2)` gives a mark; nothing is probed and nothing heavy imported until
`ci.pytest_plugin` sets a test up that bears it. The reason names the class of the
skip (`allow_skips` in a stage row speaks of it), what is missing and how to get it.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ci.devices.probe import probe_devices
from ci.stages.markers import GUARD

PING_LIMIT = 2.0
SIMULATED = "LOCKGATE_SIMULATED"
CLICKHOUSE_PROGRAMS = ("clickhouse-server", "clickhouse")


def require_cuda() -> pytest.MarkDecorator:
    """Need one real CUDA device and a torch, if there is one, that is built for CUDA."""
    return _guard("cuda")


def require_gpus(count: int) -> pytest.MarkDecorator:
    """Need `count` devices in this process; devices of a simulated run count, since its ranks stand for them."""
    return _guard("gpus", count)


def require_clickhouse(url: str = "") -> pytest.MarkDecorator:
    """Need a ClickHouse server that answers at `url`, or without one a server program that the test can start."""
    return _guard("clickhouse", url)


def require_model_cache(*models: str) -> pytest.MarkDecorator:
    """Need these Hugging Face models (`org/name`) in the local cache: tests never download."""
    return _guard("model-cache", *models)


def require_nvcc() -> pytest.MarkDecorator:
    """Need the CUDA compiler."""
    return _guard("nvcc")


def _guard(need: str, *details: object) -> pytest.MarkDecorator:
    mark: pytest.MarkDecorator = getattr(pytest.mark, GUARD)
    return mark.with_args(need, *details)


def find_missing_cuda(environ: Mapping[str, str]) -> str:
    """Say why CUDA cannot be used here; "" when it can."""
    inventory = probe_devices(environ)
    if not inventory.devices:
        why = inventory.fault.message if inventory.fault else "0 devices are visible"
        return f"no CUDA device can be used ({why}); `python -m ci.devices` shows what is here"
    if importlib.util.find_spec("torch") is not None:
        version = importlib.metadata.version("torch")
        if version.endswith("+cpu"):
            return f"torch {version} is no CUDA build; install one with CUDA"
    return ""


def find_missing_gpus(environ: Mapping[str, str], count: int) -> str:
    """Say that fewer than `count` devices can be used here; "" when there are enough."""
    simulated = environ.get(SIMULATED, "")
    found = int(simulated) if simulated.isdigit() else len(probe_devices(environ).devices)
    if found >= count:
        return ""
    return f"{count} devices, {found} can be used here; run it on a bigger machine or with --simulate {count}"


def find_missing_clickhouse(environ: Mapping[str, str], url: str = "") -> str:
    """Say that no ClickHouse server answers (or none can be started); "" otherwise."""
    if not url:
        names = [environ["LOCKGATE_CLICKHOUSE"]] if environ.get("LOCKGATE_CLICKHOUSE") else list(CLICKHOUSE_PROGRAMS)
        if any(shutil.which(name, path=environ.get("PATH")) for name in names):
            return ""
        return f"no {' or '.join(names)} on PATH; on Debian: apt-get install clickhouse-server"
    parts = urlsplit(url)
    server = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"  # /ping asks for no credentials
    try:
        with urllib.request.urlopen(f"{server}/ping", timeout=PING_LIMIT) as answer:  # noqa: S310 - a test's own address
            answer.read()
    except (OSError, ValueError) as error:
        return f"no server answers at {server} ({error}); `invoke clickhouse-up` starts one"
    return ""


def find_missing_models(environ: Mapping[str, str], *models: str) -> str:
    """Say which models are not in the Hugging Face cache; "" when all are there."""
    home = environ.get("HF_HOME") or str(Path(environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "huggingface")
    cache = Path(environ.get("HF_HUB_CACHE") or str(Path(home, "hub")))
    lost = [name for name in models if not any((cache / f"models--{name.replace('/', '--')}" / "snapshots").glob("*"))]
    if not lost:
        return ""
    return f"{', '.join(lost)} is not in {cache}; `hf download {lost[0]}` puts it there"


def find_missing_nvcc(environ: Mapping[str, str]) -> str:
    """Say that there is no CUDA compiler; "" when there is."""
    named = environ.get("CUDACXX", "")
    places = [Path(environ[name], "bin", "nvcc") for name in ("CUDA_HOME", "CUDA_PATH") if environ.get(name)]
    found = shutil.which(named or "nvcc", path=environ.get("PATH")) or any(map(os.path.exists, places))
    return "" if found else "no nvcc (CUDACXX, CUDA_HOME, PATH); install a CUDA toolkit"


FINDERS: Mapping[str, Callable[..., str]] = {
    "cuda": find_missing_cuda,
    "gpus": find_missing_gpus,
    "clickhouse": find_missing_clickhouse,
    "model-cache": find_missing_models,
    "nvcc": find_missing_nvcc,
}
"""Class of a skip -> what finds the missing thing."""


def find_missing(marks: list[pytest.Mark], environ: Mapping[str, str]) -> str:
    """Evaluate a test's guards; gives the reason to skip it, or "".

    Raises `ValueError` for a guard that nobody knows: a misspelt one must not let a test through.
    """
    for mark in marks:
        name, *details = mark.args
        if name not in FINDERS:
            raise ValueError(f"there is no guard {name!r}, expected one of: {', '.join(FINDERS)}")
        missing = FINDERS[name](environ, *details)
        if missing:
            return f"needs {name}: {missing}"
    return ""
