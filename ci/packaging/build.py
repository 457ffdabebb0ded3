"""Build distributions and read what is in them."""

from __future__ import annotations

import shutil
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from ci.context import Context
from ci.errors import PackageError
from ci.packaging.model import Native
from ci.process import run

BUILD_LIMIT = 1800.0
CHECK_LIMIT = 300.0


def build_sdist(context: Context, folder: Path) -> Path:
    """Build the sdist of the source tree, isolated."""
    _build(context, ["--sdist", "--outdir", str(folder), str(context.root)], environ=context.environ)
    return only(folder, "*.tar.gz")


def build_wheel(context: Context, sdist: Path, folder: Path, *, environ: Mapping[str, str]) -> Path:
    """Build a wheel from the unpacked sdist, isolated, with `environ` added to the environment."""
    source = folder / "source"
    with tarfile.open(sdist) as archive:
        archive.extractall(source, filter="data")
    _build(
        context,
        ["--wheel", "--outdir", str(folder), str(next(source.iterdir()))],
        environ={**context.environ, **environ},
    )
    shutil.rmtree(source)
    return only(folder, "*.whl")


def repair_wheel(context: Context, wheel: Path, folder: Path) -> Path:
    """Let auditwheel check the wheel's libraries and give it its true platform tag."""
    run(
        [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(folder), str(wheel)],
        cwd=context.root,
        environ=context.environ,
        limit=CHECK_LIMIT,
        capture=True,
        announce=context.out.step,
        hint="the wheel links a library that other machines may lack",
    )
    return only(folder, "*.whl")


def check_metadata(context: Context, *files: Path) -> None:
    """Let twine read the metadata and the long description as an index would."""
    run(
        [sys.executable, "-m", "twine", "check", "--strict", *map(str, files)],
        cwd=context.root,
        environ=context.environ,
        limit=CHECK_LIMIT,
        capture=True,
        announce=context.out.step,
    )


def read_sdist_names(sdist: Path) -> list[str]:
    """List the files of an sdist, relative to its top folder."""
    with tarfile.open(sdist) as archive:
        return [name.partition("/")[2] for name in archive.getnames() if "/" in name]


def read_wheel_names(wheel: Path) -> list[str]:
    """List the files of a wheel; a damaged archive is a `PackageError`."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            broken = archive.testzip()
            names = archive.namelist()
    except (zipfile.BadZipFile, zlib.error) as error:
        raise PackageError(f"{wheel.name} is damaged: {error}") from error
    if broken is not None:
        raise PackageError(f"{wheel.name} is damaged at {broken}")
    return names


def wheel_tag(wheel: Path) -> str:
    """Give the compatibility tag in a wheel's file name: `cp310-abi3-linux_x86_64`."""
    return "-".join(wheel.stem.split("-")[-3:])


def native_environment(native: Native) -> dict[str, str]:
    """Say to the build which native part is asked for."""
    return {"LOCKGATE_NATIVE": native.value}


def only(folder: Path, pattern: str) -> Path:
    """Give the one file that a build must have left; anything else is a `PackageError`."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "nothing"
        raise PackageError(f"expected one {pattern} in {folder}, found {names}")
    return found[0]


def _build(context: Context, arguments: list[str], *, environ: Mapping[str, str]) -> None:
    installer = ["--installer", "uv"] if shutil.which("uv", path=environ.get("PATH")) else []
    run(
        [sys.executable, "-m", "build", *installer, *arguments],
        cwd=context.root,
        environ=environ,
        limit=BUILD_LIMIT,
        capture=True,
        announce=context.out.step,
        hint="the lines above are the build's own; `pip install build` if it is missing",
    )
