"""How the native build is decided: options, tools, CMake's arguments, the build folder's key. No compiler runs here."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.cpu

ROOT = Path(__file__).parents[2]
GIB = 1 << 30


@pytest.fixture(scope="module")
def build():
    spec = importlib.util.spec_from_file_location("lockgate_setup", ROOT / "setup.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def tools(build, **changes):
    values = {"cmake": "/bin/cmake", "ninja": "/bin/ninja", "nanobind": "/nb/cmake", "python": "/bin/python", **changes}
    return build.Tools(**values)


def arguments(build, options, **changes):
    table = build.HookTable(version=3, digest="abc")
    return build.cmake_arguments(options, tools(build, **changes), table, version="1.2", released=False)


@pytest.mark.parametrize(
    ("environ", "mode"),
    [
        ({}, "cpu"),
        ({"LOCKGATE_NATIVE": ""}, "cpu"),
        ({"LOCKGATE_NATIVE": "cuda"}, "cuda"),
        ({"LOCKGATE_NATIVE": "off"}, "off"),
        ({"SKIP_NATIVE_BUILD": "1"}, "off"),
        ({"LOCKGATE_NATIVE": "cuda", "SKIP_NATIVE_BUILD": "yes"}, "off"),
        ({"SKIP_NATIVE_BUILD": "0"}, "cpu"),
        ({"SKIP_NATIVE_BUILD": "off"}, "cpu"),
    ],
)
def test_the_mode_is_asked_for_never_guessed(build, environ, mode):
    assert build.read_options(environ).mode == mode


@pytest.mark.parametrize(
    ("environ", "problem"),
    [
        ({"LOCKGATE_NATIVE": "gpu"}, "LOCKGATE_NATIVE is 'gpu', expected one of: cpu, cuda, off"),
        ({"LOCKGATE_SANITIZE": "memory"}, "LOCKGATE_SANITIZE is 'memory', expected one of: thread, address"),
        ({"LOCKGATE_SANITIZE": "thread", "LOCKGATE_NATIVE": "cuda"}, "does not go with LOCKGATE_NATIVE=cuda"),
        ({"LOCKGATE_BUILD_JOBS": "many"}, "LOCKGATE_BUILD_JOBS is 'many', expected a number"),
        ({"CUDA_ARCHS": "sm_90"}, "CUDA_ARCHS is 'sm_90', expected compute capabilities without the dot"),
        ({"CUDA_ARCHS": ";"}, "CUDA_ARCHS is ';'"),
        ({"CUDA_ARCHS": "9.0"}, "CUDA_ARCHS is '9.0'"),
    ],
)
def test_words_that_are_not_known_are_errors(build, environ, problem):
    with pytest.raises(build.NativeBuildError) as caught:
        build.read_options(environ)
    assert problem in str(caught.value)
    assert isinstance(caught.value, SystemExit)


@pytest.mark.parametrize("text", ["80;90", "80,90", " 80 90 ", "80; 90;"])
def test_architectures_may_be_separated_by_anything_usual(build, text):
    assert build.parse_archs(text) == "80;90"
    assert build.parse_archs("90a;120f") == "90a;120f"


def test_jobs_fit_into_cores_and_memory(build):
    cpu, cuda = build.Options(), build.Options(mode="cuda")
    assert build.count_jobs(cpu, cores=8, memory=64 * GIB) == 8
    assert build.count_jobs(cpu, cores=8, memory=3 * GIB) == 2
    assert build.count_jobs(cuda, cores=8, memory=6 * GIB) == 2
    assert build.count_jobs(cuda, cores=8, memory=0) == 1
    assert build.count_jobs(build.Options(jobs=5), cores=1, memory=0) == 5


@given(cores=st.integers(1, 1024), memory=st.integers(0, 1 << 44))
def test_there_is_always_a_job_and_never_more_than_cores(build, cores, memory):
    assert 1 <= build.count_jobs(build.Options(), cores=cores, memory=memory) <= cores


def test_a_cpu_build_knows_nothing_of_cuda(build):
    found = arguments(build, build.Options(archs="80"))
    assert "-DLOCKGATE_CUDA=OFF" in found
    assert not any("CUDA_COMPILER" in word or "ARCHS" in word for word in found)
    for word in (
        "-GNinja",
        "-DCMAKE_BUILD_TYPE=Release",
        "-DLOCKGATE_HOOK_TABLE_VERSION=3",
        "-DLOCKGATE_HOOK_TABLE_DIGEST=abc",
    ):
        assert word in found or word == "-GNinja"
    assert found[:2] == ["-G", "Ninja"]


def test_a_cuda_build_names_compiler_root_and_architectures(build):
    found = arguments(build, build.Options(mode="cuda", archs="90"), nvcc="/cuda/bin/nvcc", cuda_root="/cuda")
    assert {
        "-DLOCKGATE_CUDA=ON",
        "-DLOCKGATE_CUDA_ARCHS=90",
        "-DCMAKE_CUDA_COMPILER=/cuda/bin/nvcc",
        "-DCUDAToolkit_ROOT=/cuda",
    } <= set(found)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"debug": True}, "-DCMAKE_BUILD_TYPE=Debug"),
        ({"sanitizer": "thread"}, "-DLOCKGATE_SANITIZER=thread"),
        ({"sanitizer": "address"}, "-DCMAKE_BUILD_TYPE=RelWithDebInfo"),
        ({"tests": True}, "-DLOCKGATE_BUILD_TESTS=ON"),
        ({"fuzz": True}, "-DLOCKGATE_LIBFUZZER=ON"),
    ],
)
def test_each_option_reaches_cmake_and_names_its_folder(build, change, expected):
    options = build.Options(**change)
    assert expected in arguments(build, options)
    assert build.name_build(options) != build.name_build(build.Options())


def test_a_source_distribution_survives_a_newer_compilers_warnings(build):
    table = build.HookTable(version=1, digest="")
    for released, word in ((True, "OFF"), (False, "ON")):
        found = build.cmake_arguments(build.Options(), tools(build), table, version="1", released=released)
        assert f"-DLOCKGATE_WERROR={word}" in found


def test_the_build_folders_key_follows_every_input(build):
    base = build.hash_inputs(["-DA=1"], {})
    assert base == build.hash_inputs(["-DA=1"], {"UNRELATED": "1"})
    assert base != build.hash_inputs(["-DA=2"], {})
    for name in ("CXX", "CXXFLAGS", "LDFLAGS", "CUDAFLAGS"):
        assert base != build.hash_inputs(["-DA=1"], {name: "x"})


def test_the_hook_table_is_read_without_importing_the_package(build, tmp_path):
    found = build.read_hook_table(ROOT / "monitoring" / "hooks" / "sites.py")
    assert found.version >= 1
    assert len(found.digest) == 64
    with pytest.raises(build.NativeBuildError, match=r"sites\.py is missing"):
        build.read_hook_table(tmp_path / "sites.py")


def test_nvcc_is_found_by_name_on_path_or_in_pypis_packages(build, tmp_path, monkeypatch):
    def program(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        return str(path)

    on_path = program(tmp_path / "bin" / "nvcc")
    named = program(tmp_path / "other" / "nvcc-13")
    from_pypi = program(tmp_path / "site" / "nvidia" / "cu13" / "bin" / "nvcc")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    assert build.find_nvcc({"PATH": str(tmp_path / "bin"), "CUDACXX": named}) == (named, "")
    assert build.find_nvcc({"PATH": str(tmp_path / "bin")}) == (on_path, "")
    assert build.find_nvcc({"PATH": ""}) == (from_pypi, str(tmp_path / "site" / "nvidia" / "cu13"))
    monkeypatch.setattr(sys, "path", [])
    assert build.find_nvcc({"PATH": ""}) == ("", "")
    with pytest.raises(build.NativeBuildError, match="CUDACXX is '/no/nvcc', and there is no such program; put a CUDA"):
        build.find_nvcc({"CUDACXX": "/no/nvcc", "PATH": ""})


def test_missing_tools_are_named_together_with_the_remedy(build, monkeypatch):
    monkeypatch.setattr(build, "find_module", lambda name: "")
    with pytest.raises(build.NativeBuildError) as caught:
        build.find_tools(build.Options(), {"PATH": ""})
    assert "cmake and ninja and nanobind not found; install the build tools first: pip install cmake ninja" in str(
        caught.value
    )


def test_a_missing_nvcc_is_an_error_with_the_remedy(build, monkeypatch, tmp_path):
    for name in ("cmake", "ninja"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(build, "find_module", lambda name: str(tmp_path) if name == "nanobind" else "")
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(build.NativeBuildError) as caught:
        build.find_tools(build.Options(mode="cuda"), {"PATH": str(tmp_path)})
    for part in ("needs nvcc, which was not found", "CUDACXX", "nvidia-cuda-nvcc", "LOCKGATE_NATIVE=cpu"):
        assert part in str(caught.value)


def test_a_failing_tool_fails_the_build_with_its_last_lines(build, capsys):
    script = "import sys; print('error: no such thing'); sys.exit(3)"
    with pytest.raises(build.NativeBuildError) as caught:
        build.run_tool([sys.executable, "-c", script], os.environ, doing="building")
    assert "building the native library failed (exit code 3)" in str(caught.value)
    assert "error: no such thing" in str(caught.value)
    assert "LOCKGATE_NATIVE=off" in str(caught.value)
    assert "error: no such thing" in capsys.readouterr().out
    with pytest.raises(build.NativeBuildError, match="/no/tool cannot be started"):
        build.run_tool(["/no/tool"], os.environ, doing="building")


def test_a_file_is_replaced_in_one_step(build, tmp_path):
    source, target = tmp_path / "new", tmp_path / "module.so"
    source.write_bytes(b"new")
    target.write_bytes(b"old")
    with target.open("rb") as held:
        build.replace_file(source, target)
        assert held.read() == b"old"
    assert target.read_bytes() == b"new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["module.so", "new"]
    with pytest.raises(build.NativeBuildError, match="ended without"):
        build.replace_file(tmp_path / "absent", target)


def test_build_folders_whose_tools_are_gone_are_removed(build, tmp_path):
    def folder(name, cmake):
        made = tmp_path / name
        made.mkdir()
        (made / "inputs.json").write_text(json.dumps({"tools": {"cmake": cmake}}))
        return made

    dead, alive, current = folder("a", "/gone/cmake"), folder("b", sys.executable), folder("c", "/gone/cmake")
    broken = folder("d", "")
    (broken / "inputs.json").write_text("{")
    stranger = tmp_path / "e"
    stranger.mkdir()
    build.remove_dead_folders(current)
    assert [path.exists() for path in (dead, alive, current, broken, stranger)] == [False, True, True, False, True]


@pytest.mark.parametrize(
    ("environ", "problem"),
    [
        ({"LOCKGATE_NATIVE": "gpu"}, "error: LOCKGATE_NATIVE is 'gpu'"),
        ({"CUDA_ARCHS": "x"}, "error: CUDA_ARCHS is 'x'"),
    ],
)
def test_a_users_mistake_ends_setup_without_a_traceback(environ, problem):
    done = subprocess.run(
        [sys.executable, "setup.py", "--version"], cwd=ROOT, env={**os.environ, **environ},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith(problem)
    assert "Traceback" not in done.stderr


def test_every_source_file_is_listed_in_cmake_and_shipped():
    csrc = ROOT / "monitoring" / "csrc"
    listed = "".join(path.read_text() for path in csrc.rglob("CMakeLists.txt"))
    for path in csrc.rglob("*"):
        if path.suffix in {".cpp", ".cu"}:
            name = path.relative_to(csrc).as_posix()
            entry = path.stem if name.startswith("tests/") else name
            assert entry in listed, f"{name} is not built by CMake"
        assert path.is_dir() or path.suffix in {".h", ".cpp", ".cu", ".txt"}, f"{path} is not in MANIFEST.in"
