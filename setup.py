"""Builds the native library of `monitoring`; everything else stands in pyproject.toml.

environment -> `read_options` -> Options -> `cmake_arguments` -> CMake and Ninja -> one extension module

- `LOCKGATE_NATIVE`: `cpu` (default), `cuda`, or `off` (a pure wheel; `SKIP_NATIVE_BUILD=1` means the same)
- `CUDA_ARCHS`: architectures of a CUDA build, default `80;90`
- `LOCKGATE_SANITIZE`: `thread` or `address`; `LOCKGATE_DEBUG=1`: for `invoke build-native` and `invoke test-native`
- `LOCKGATE_FUZZ=1`: drive the fuzz targets by libFuzzer, which needs clang (`CXX=clang++`)
- `LOCKGATE_BUILD_JOBS`: compilers at the same time, default by cores and memory

A build that fails fails the installation. Beside setuptools' commands there are `test_native` (build the C++ tests
and run them) and `clean_native`; `tasks.py` gives them short names.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import ClassVar

from setuptools import Command, Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
SOURCES = ROOT / "monitoring" / "csrc"
BUILDS = ROOT / "build" / "native"
HOOK_TABLE = ROOT / "monitoring" / "hooks" / "sites.py"
MODES = ("cpu", "cuda", "off")
SANITIZERS = ("thread", "address")
CLIENT_TESTS = "^(checksum|clock|encoder|response|client)_test$|^fuzz_"
DEFAULT_ARCHS = "80;90"
# Memory that one compiler needs at most, in bytes.
JOB_MEMORY = {"cpu": 3 << 29, "cuda": 3 << 30}

TOOLS_REMEDY = "install the build tools first: pip install cmake ninja 'nanobind>=3.1,<4' nanobind-backend"
NVCC_REMEDY = (
    "put a CUDA toolkit's nvcc on PATH, or name it in CUDACXX, or install it from PyPI: "
    "pip install nvidia-cuda-nvcc nvidia-cuda-cccl; "
    "or build without CUDA: LOCKGATE_NATIVE=cpu"
)


class NativeBuildError(SystemExit):
    """The native library cannot be built: what was found, and what to do next; ends the build without a traceback."""

    def __init__(self, message: str) -> None:
        """Say it the way setuptools says its errors."""
        super().__init__(f"error: {message}")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is asked for, read from the environment once."""

    mode: str = "cpu"
    archs: str = DEFAULT_ARCHS
    sanitizer: str = ""
    debug: bool = False
    fuzz: bool = False
    tests: bool = False
    jobs: int = 0


@dataclass(frozen=True, kw_only=True)
class Tools:
    """Programs and folders that a build uses; `nvcc` and `cuda_root` are empty in a CPU build."""

    cmake: str
    ninja: str
    nanobind: str
    python: str
    compiler: str = ""
    nvcc: str = ""
    cuda_root: str = ""


@dataclass(frozen=True, kw_only=True)
class HookTable:
    """Version and digest of `monitoring/hooks/sites.py`, compiled in."""

    version: int
    digest: str


def read_options(environ: Mapping[str, str]) -> Options:
    """Read the build's options; every word that is not known is an error that lists the choices."""
    mode = environ.get("LOCKGATE_NATIVE", "") or "cpu"
    if mode not in MODES:
        raise NativeBuildError(f"LOCKGATE_NATIVE is {mode!r}, expected one of: {', '.join(MODES)}")
    if is_on(environ, "SKIP_NATIVE_BUILD"):
        mode = "off"
    sanitizer = environ.get("LOCKGATE_SANITIZE", "")
    if sanitizer and sanitizer not in SANITIZERS:
        raise NativeBuildError(f"LOCKGATE_SANITIZE is {sanitizer!r}, expected one of: {', '.join(SANITIZERS)}")
    if sanitizer and mode == "cuda":
        raise NativeBuildError("LOCKGATE_SANITIZE does not go with LOCKGATE_NATIVE=cuda; sanitize the CPU build")
    jobs = environ.get("LOCKGATE_BUILD_JOBS", "") or "0"
    if not jobs.isdecimal():
        raise NativeBuildError(f"LOCKGATE_BUILD_JOBS is {jobs!r}, expected a number")
    return Options(
        mode=mode,
        archs=parse_archs(environ.get("CUDA_ARCHS", "") or DEFAULT_ARCHS),
        sanitizer=sanitizer,
        debug=is_on(environ, "LOCKGATE_DEBUG"),
        fuzz=is_on(environ, "LOCKGATE_FUZZ"),
        jobs=int(jobs),
    )


def is_on(environ: Mapping[str, str], name: str) -> bool:
    """Whether a switch is set; `0`, `false`, `no`, `off` and nothing mean no."""
    return environ.get(name, "").strip().lower() not in ("", "0", "false", "no", "off")


def parse_archs(text: str) -> str:
    """Check a list of CUDA architectures (`80;90`, also with commas or spaces)."""
    archs = [word for word in re.split(r"[;,\s]+", text.strip()) if word]
    wrong = [word for word in archs if not re.fullmatch(r"[1-9][0-9]{1,2}[af]?", word)]
    if wrong or not archs:
        raise NativeBuildError(
            f"CUDA_ARCHS is {text!r}, expected compute capabilities without the dot, such as {DEFAULT_ARCHS}"
        )
    return ";".join(archs)


def count_jobs(options: Options, *, cores: int, memory: int) -> int:
    """Choose how many compilers run at once, so that they fit into `memory` bytes; at least one."""
    fitting = memory // JOB_MEMORY["cuda" if options.mode == "cuda" else "cpu"]
    return options.jobs or max(1, min(cores, fitting))


def cmake_arguments(options: Options, tools: Tools, table: HookTable, *, version: str, released: bool) -> list[str]:
    """Give CMake's arguments for configuring, without source and build folder.

    `released` means a source distribution: there a warning of a newer compiler
    must not stop an installation.
    """
    arguments = [
        "-G",
        "Ninja",
        f"-DCMAKE_MAKE_PROGRAM={tools.ninja}",
        f"-DCMAKE_BUILD_TYPE={'Debug' if options.debug else 'RelWithDebInfo' if options.sanitizer else 'Release'}",
        f"-DPython_EXECUTABLE={tools.python}",
        f"-Dnanobind_DIR={tools.nanobind}",
        f"-DLOCKGATE_VERSION={version}",
        f"-DLOCKGATE_HOOK_TABLE_VERSION={table.version}",
        f"-DLOCKGATE_HOOK_TABLE_DIGEST={table.digest}",
        f"-DLOCKGATE_SANITIZER={options.sanitizer}",
        f"-DLOCKGATE_BUILD_TESTS={'ON' if options.tests else 'OFF'}",
        f"-DLOCKGATE_BUILD_PYTHON={'OFF' if options.tests else 'ON'}",
        f"-DLOCKGATE_LIBFUZZER={'ON' if options.fuzz else 'OFF'}",
        f"-DLOCKGATE_WERROR={'OFF' if released else 'ON'}",
        f"-DLOCKGATE_CUDA={'ON' if options.mode == 'cuda' else 'OFF'}",
    ]
    if tools.compiler:
        arguments.append(f"-DCMAKE_CXX_COMPILER={tools.compiler}")
    if options.mode == "cuda":
        arguments += [f"-DLOCKGATE_CUDA_ARCHS={options.archs}", f"-DCMAKE_CUDA_COMPILER={tools.nvcc}"]
        if tools.cuda_root:
            arguments.append(f"-DCUDAToolkit_ROOT={tools.cuda_root}")
    return arguments


def hash_inputs(arguments: list[str], environ: Mapping[str, str]) -> str:
    """Give the key of a build folder: what configuring depends on. Sources are Ninja's business."""
    relevant = {name: environ.get(name, "") for name in ("CXX", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CUDAFLAGS")}
    return hashlib.sha256(json.dumps([arguments, relevant]).encode()).hexdigest()[:12]


def read_hook_table(path: Path) -> HookTable:
    """Run the hook table (standard library only) and ask it for its version and digest."""
    name = "_lockgate_hook_table"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise NativeBuildError(f"{path} is missing; the native library is built for its hook table")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
        return HookTable(version=int(module.TABLE_VERSION), digest=str(module.table_digest()))
    finally:
        del sys.modules[name]


def find_tools(options: Options, environ: Mapping[str, str]) -> Tools:
    """Find what a build needs; the error names all that is missing, and the remedy."""
    cmake, ninja = find_program("cmake", environ), find_program("ninja", environ)
    nanobind = find_module("nanobind")
    missing = [name for name, found in (("cmake", cmake), ("ninja", ninja), ("nanobind", nanobind)) if not found]
    if missing:
        raise NativeBuildError(f"{' and '.join(missing)} not found; {TOOLS_REMEDY}")
    nvcc, cuda_root = find_nvcc(environ) if options.mode == "cuda" else ("", "")
    if options.mode == "cuda" and not nvcc:
        raise NativeBuildError(f"LOCKGATE_NATIVE=cuda needs nvcc, which was not found; {NVCC_REMEDY}")
    return Tools(
        cmake=cmake,
        ninja=ninja,
        nanobind=str(Path(nanobind) / "cmake"),
        python=sys.executable,
        compiler=environ.get("CXX", "").strip(),
        nvcc=nvcc,
        cuda_root=cuda_root,
    )


def find_module(name: str) -> str:
    """Give the folder of an installed package, or ""."""
    spec = importlib.util.find_spec(name)
    return str(Path(spec.origin).parent) if spec is not None and spec.origin is not None else ""


def find_program(name: str, environ: Mapping[str, str]) -> str:
    """Find CMake's or Ninja's program: the one installed beside this Python first, then PATH; "" for neither."""
    package = "cmake" if name == "ctest" else name
    if find_module(package):
        module: ModuleType = __import__(package)
        folder = getattr(module, "CMAKE_BIN_DIR", "") or getattr(module, "BIN_DIR", "")
        found = shutil.which(name, path=str(folder)) if folder else None
        if found:
            return found
    return shutil.which(name, path=environ.get("PATH", "")) or ""


def find_nvcc(environ: Mapping[str, str]) -> tuple[str, str]:
    """Find nvcc: CUDACXX, PATH, then PyPI's packages; and the toolkit's root where CMake cannot guess it."""
    named = environ.get("CUDACXX", "").strip()
    if named:
        found = shutil.which(named, path=environ.get("PATH", ""))
        if found is None:
            raise NativeBuildError(f"CUDACXX is {named!r}, and there is no such program; {NVCC_REMEDY}")
        return found, environ.get("CUDAToolkit_ROOT", "")
    found = shutil.which("nvcc", path=environ.get("PATH", ""))
    if found is not None:
        return found, ""
    for folder in sys.path:
        for root in sorted(Path(folder or ".").glob("nvidia/cu[0-9]*"), reverse=True):
            program = root / "bin" / "nvcc"
            if program.is_file():
                return str(program), str(root)
    return "", ""


def available_memory() -> int:
    """Bytes of memory free for use; a guess of 4 GiB where the system does not say."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        found = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
        return int(found.group(1)) * 1024 if found else 4 << 30
    except OSError:
        return 4 << 30


def run_tool(arguments: list[str], environ: Mapping[str, str], *, doing: str) -> None:
    """Run CMake, show its output as it comes; on failure raise with its last lines."""
    lines: list[str] = []
    try:
        child = subprocess.Popen(
            arguments, env=dict(environ), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            text=True, encoding="utf-8", errors="replace",
        )  # fmt: skip
    except OSError as error:
        raise NativeBuildError(f"{arguments[0]} cannot be started: {error.strerror}") from error
    with child:
        for line in child.stdout or ():
            sys.stdout.write(line)
            lines.append(line.rstrip())
    sys.stdout.flush()
    if child.returncode != 0:
        tail = "\n".join(lines[-40:])
        raise NativeBuildError(
            f"{doing} the native library failed (exit code {child.returncode}); its last lines:\n{tail}\n"
            "to install without the native library: LOCKGATE_NATIVE=off"
        )


class NativeExtension(Extension):
    """The extension module; its sources are CMake's business."""

    def __init__(self) -> None:
        """Use the stable ABI of Python 3.10, so one wheel serves every later Python."""
        super().__init__("monitoring._native", sources=[], py_limited_api=True)


def build(options: Options, *, version: str, folder: Path | None, targets: Sequence[str] = ()) -> Path:
    """Configure and build; the build folder, which without `folder` is the tree's own for these inputs."""
    environ = dict(os.environ)
    tools = find_tools(options, environ)
    if tools.cuda_root:
        library = str(Path(tools.cuda_root) / "lib")
        environ["LIBRARY_PATH"] = os.pathsep.join(filter(None, (library, environ.get("LIBRARY_PATH", ""))))
    released = (ROOT / "PKG-INFO").is_file()
    arguments = cmake_arguments(options, tools, read_hook_table(HOOK_TABLE), version=version, released=released)
    if folder is None:
        folder = BUILDS / f"{name_build(options)}-{hash_inputs(arguments, environ)}"
        remove_dead_folders(folder)
    jobs = count_jobs(options, cores=os.cpu_count() or 1, memory=available_memory())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "inputs.json").write_text(json.dumps({"options": asdict(options), "tools": asdict(tools)}, indent=1))
    run_tool([tools.cmake, *arguments, "-S", str(SOURCES), "-B", str(folder)], environ, doing="configuring")
    chosen = ["--target", *targets] if targets else []
    run_tool([tools.cmake, "--build", str(folder), "--parallel", str(jobs), *chosen], environ, doing="building")
    return folder


class NativeBuildExt(build_ext):
    """Configures, builds and installs the native library with CMake and Ninja.

    In the tree (editable installs, `--inplace`) the build folder stays in
    `build/native/`, keyed by what it was configured with; for a wheel it is a
    temporary folder outside the tree. A sanitizer's build stays in its build
    folder: it loads only into a Python that preloads the sanitizer.
    """

    in_tree = False

    def run(self) -> None:
        """Remember whether the build is for the tree, which setuptools forgets on the way."""
        self.in_tree = bool(self.inplace)
        super().run()

    def build_extension(self, ext: Extension) -> None:
        """Build one extension; an error ends the installation."""
        options = read_options(os.environ)
        version = self.distribution.get_version()
        target = Path(self.get_ext_fullpath(ext.name)).resolve()
        if not self.in_tree:
            with tempfile.TemporaryDirectory(prefix="lockgate-native-") as name:
                self.install_module(build(options, version=version, folder=Path(name)), target)
            return
        folder = build(options, version=version, folder=None)
        if options.sanitizer:
            sys.stdout.write(f"the {options.sanitizer} sanitizer's build stays in {folder}\n")
        else:
            self.install_module(folder, target)

    def install_module(self, folder: Path, target: Path) -> None:
        """Put the built module where setuptools expects it."""
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(folder / target.name, target)

    def file_name(self, ext: Extension) -> str:
        """Name the module's file, relative to the packages' root."""
        name: str = self.get_ext_filename(ext.name)  # type: ignore[no-untyped-call]
        return name

    def copy_extensions_to_source(self) -> None:
        """Put the module into the tree in one step: running programs keep the old one."""
        for ext in self.extensions:
            built = Path(self.build_lib) / self.file_name(ext)
            if built.is_file():
                replace_file(built, ROOT / self.file_name(ext))


class NativeTest(Command):
    """Builds the C++ tests in the tree's build folder and runs them by CTest."""

    description = "build and run the C++ unit tests and the bounded fuzz targets"
    user_options: ClassVar[list[tuple[str, str | None, str]]] = [
        ("client-only", None, "only the ClickHouse client library and its tests")
    ]
    boolean_options: ClassVar = ["client-only"]

    def initialize_options(self) -> None:
        """Test everything unless told otherwise."""
        self.client_only = False

    def finalize_options(self) -> None:
        """Nothing depends on other options."""

    def run(self) -> None:
        """Build, then run; a failing test is an error."""
        options = replace(read_options(os.environ), mode="cpu", tests=True)
        targets = ["clickhouse_tests"] if self.client_only else []
        folder = build(options, version=self.distribution.get_version(), folder=None, targets=targets)
        ctest = find_program("ctest", os.environ) or "ctest"
        chosen = ["-R", CLIENT_TESTS] if self.client_only else []
        arguments = [ctest, "--test-dir", str(folder), "--output-on-failure", *chosen]
        run_tool(arguments, os.environ, doing="testing")


class NativeClean(Command):
    """Removes what `build_ext --inplace` and `test_native` leave in the tree."""

    description = "remove native build folders and the module in the tree"
    user_options: ClassVar[list[tuple[str, str | None, str]]] = []

    def initialize_options(self) -> None:
        """Nothing to choose."""

    def finalize_options(self) -> None:
        """Nothing depends on other options."""

    def run(self) -> None:
        """Remove them; what is not there is fine."""
        shutil.rmtree(BUILDS, ignore_errors=True)
        for module in (ROOT / "monitoring").glob("_native*.so"):
            module.unlink()


def name_build(options: Options) -> str:
    """Name a build folder for people: `cpu`, `cpu-thread`, `cuda-debug`."""
    words = (options.mode, options.sanitizer, *(word for word in ("debug", "fuzz", "tests") if getattr(options, word)))
    return "-".join(filter(None, words))


def remove_dead_folders(current: Path) -> None:
    """Remove build folders whose tools are gone (pip's isolated environments are made anew each time)."""
    for inputs in current.parent.glob("*/inputs.json"):
        try:
            alive = Path(json.loads(inputs.read_text())["tools"]["cmake"]).exists()
        except (OSError, ValueError, KeyError):
            alive = False
        if not alive and inputs.parent != current:
            shutil.rmtree(inputs.parent, ignore_errors=True)


def replace_file(source: Path, target: Path) -> None:
    """Copy a file so that the target is at any time the old one or the new one."""
    if not source.is_file():
        raise NativeBuildError(f"the build ended without {source}")
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        shutil.copyfile(source, part)
        part.chmod(0o755)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


class PackagesOnly(build_py):
    """Leaves the C++ sources out of wheels: they belong to the source distribution."""

    def finalize_options(self) -> None:
        """Drop the folder that setuptools takes for a package."""
        super().finalize_options()
        self.packages = [name for name in self.packages or () if not name.startswith("monitoring.csrc")]


if __name__ == "__main__":
    native = read_options(os.environ).mode != "off"
    setup(
        ext_modules=[NativeExtension()] if native else [],
        cmdclass={
            "build_ext": NativeBuildExt,
            "build_py": PackagesOnly,
            "clean_native": NativeClean,
            "test_native": NativeTest,
        },
        options={"bdist_wheel": {"py_limited_api": "cp310"}} if native else {},
    )
