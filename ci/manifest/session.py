"""Facts about a pytest session that a manifest's header and checks need: read once, at its start or end."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import subprocess
import sys
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

NARROWING = ("keyword", "lf", "last_failed", "stepwise", "deselect", "failedfirst_only")
"""pytest options that leave tests out of a stage."""


def read_environment(root: str) -> dict[str, str]:
    """Give the fingerprint of this process's environment, without importing what is not yet imported.

    `top_level` names the modules that it can import from outside the repository, so that a plan sees when a new
    file would hide one.
    """
    found: dict[str, str] = {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": f"{sys.platform}-{platform.machine()}",
    }
    versions: dict[str, str] = {}
    importable = set(sys.stdlib_module_names)
    for entry in dict.fromkeys(sys.path):
        inside = (os.path.realpath(entry or ".") + os.sep).startswith(root + os.sep) and "-packages" not in entry
        with contextlib.suppress(OSError):
            for name in os.listdir(entry or "."):
                stem, _, suffix = name.rpartition(".")
                if suffix in ("dist-info", "egg-info"):
                    # The folder's name is "name-version"; reading its files would take longer than many tests.
                    project, _, version = stem.partition("-")
                    versions.setdefault(project.lower().replace("_", "-"), version)
                elif not inside and name.partition(".")[0].isidentifier():
                    importable.add(name.partition(".")[0])
    lines = "\n".join(f"{name}=={version}" for name, version in sorted(versions.items()))
    found["distributions"] = hashlib.blake2b(lines.encode(), digest_size=16).hexdigest()
    found["top_level"] = " ".join(sorted(importable))
    if "torch" in versions:
        found["torch"] = versions["torch"]
        version_of = getattr(sys.modules.get("torch"), "version", None)
        found["cuda"] = str(getattr(version_of, "cuda", "") or "")
    return found


def read_commit(root: str) -> str:
    """Give the id of the commit that is checked out, or "" where git cannot tell."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""


def read_config(config: pytest.Config) -> str:
    """Digest what pytest's configuration means: its values, its marker expression, its outside plugins."""
    with warnings.catch_warnings():
        # The public way gives one value by name; what is set at all is only known here.
        warnings.simplefilter("ignore")
        given = dict(config.inicfg)
    values = {name: repr(getattr(value, "value", value)) for name, value in sorted(given.items())}
    plugins = sorted(
        f"{distribution.project_name}=={distribution.version}"
        for _, distribution in config.pluginmanager.list_plugin_distinfo()
    )
    text = repr((values, config.getoption("markexpr", ""), plugins))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def narrowing(config: pytest.Config) -> list[str]:
    """Name the options and arguments that make this run less than a whole stage."""
    found = [f"--{name}" for name in NARROWING if config.getoption(name, None)]
    return found + [argument for argument in config.args if "::" in argument]


def installed_elsewhere(root: str) -> list[str]:
    """Name loaded modules that the repository holds too, but that came from another place."""
    inside = root + os.sep
    found = []
    bases = [root, os.path.join(root, "src"), os.path.join(root, "lib")]
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if "." in name or not isinstance(path, str) or path.startswith(inside) or name in sys.stdlib_module_names:
            continue
        for base in bases:
            place = os.path.join(base, name)
            if os.path.isfile(f"{place}.py") or os.path.isfile(os.path.join(place, "__init__.py")):
                if not os.path.realpath(path).startswith(inside):
                    found.append(f"{name} ({path})")
                break
    return sorted(found)


def early_modules(root: str) -> list[str]:
    """Name files of the repository that were imported before anything could be recorded."""
    inside = root + os.sep
    paths = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return sorted(path for path in paths if isinstance(path, str) and path.startswith(inside))


def rank_of(environ: Mapping[str, str]) -> tuple[int, int]:
    """Give rank and number of ranks of this process; (0, 0) outside a process group."""
    ranks = environ.get("WORLD_SIZE", "")
    rank = environ.get("RANK", "")
    return (int(rank), int(ranks)) if rank.isdigit() and ranks.isdigit() else (0, 0)


def describe(value: Any) -> str:
    """Give the reason of a skip from pytest's long form (file, line, text)."""
    return str(value[2]) if isinstance(value, tuple | list) and len(value) == 3 else str(value or "")
