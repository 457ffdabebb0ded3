"""Dependency files of compilers and of Ninja."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ci.manifest.native import find_builds, link_sources, parse_depfile, parse_ninja_deps, read_native

pytestmark = pytest.mark.cpu


def test_depfiles_may_break_lines_escape_spaces_and_hold_phony_targets() -> None:
    text = "a.o: src/a.cpp \\\n  inc/with\\ space.h \\\n  c$$d.h\ninc/phony.h:\n# a comment: with colon\nb.o c.o: x.h\n"
    assert parse_depfile(text) == {
        "a.o": {"src/a.cpp", "inc/with space.h", "c$d.h"}, "inc/phony.h": frozenset(), "b.o": {"x.h"}, "c.o": {"x.h"},
    }  # fmt: skip


def test_depfiles_of_windows_keep_drive_letters() -> None:
    assert parse_depfile("a.obj: C:/inc/a.h b.h\r\n") == {"a.obj": {"C:/inc/a.h", "b.h"}}


def test_ninja_deps_are_read_until_the_next_target() -> None:
    text = (
        "a.o: #deps 2, deps mtime 5 (VALID)\n    ../a.cpp\n    ../a.h\n\n"
        "b.o: #deps 1, deps mtime 6 (STALE)\n    ../b.cpp\n"
    )
    assert parse_ninja_deps(text) == {"a.o": {"../a.cpp", "../a.h"}, "b.o": {"../b.cpp"}}
    assert parse_ninja_deps("nonsense\n    x\n") == {}


def test_a_library_leads_through_its_objects() -> None:
    assert link_sources(["a.o", "script.ld"], {"a.o": frozenset({"a.c"}), "z.o": frozenset({"z.c"})}) == {
        "a.o", "script.ld", "a.c",
    }  # fmt: skip


@pytest.mark.skipif(not (shutil.which("ninja") and shutil.which("cc")), reason="needs ninja and a C compiler")
def test_a_real_ninja_build_names_sources_headers_and_build_files(tmp_path: Path) -> None:
    for name, text in {
        "CMakeLists.txt": "", "csrc/CMakeLists.txt": "", "csrc/a.c": '#include "a.h"\nint a(void) { return A; }\n',
        "csrc/a.h": "#define A 1\n", "csrc/unused.c": "int z;\n",
        "build/build.ninja": (
            "rule cc\n command = cc -fPIC -MMD -MF $out.d -c $in -o $out\n depfile = $out.d\n deps = gcc\n"
            "rule link\n command = cc -shared $in -o $out\n"
            "build a.o: cc ../csrc/a.c\nbuild unused.o: cc ../csrc/unused.c\nbuild libx.so: link a.o\n"
        ),
    }.items():  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    build = tmp_path / "build"
    assert find_builds(tmp_path) == [build]
    unbuilt = read_native(tmp_path, [build], environ=os.environ)
    assert unbuilt.sources == {}, "sources of a library that was never built are unknown, not few"
    assert unbuilt.notes
    subprocess.run(["ninja", "-C", "build"], cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "pkg").mkdir()
    shutil.copy(build / "libx.so", tmp_path / "pkg" / "libx.so")
    found = read_native(tmp_path, [build], environ=os.environ)
    expected = {"csrc/a.c", "csrc/a.h", "csrc/CMakeLists.txt", "CMakeLists.txt"}
    assert found.sources == {"build/libx.so": expected, "pkg/libx.so": expected}
    assert found.notes == ()


def test_without_ninja_the_sources_are_unknown_and_the_reason_is_told(tmp_path: Path) -> None:
    (tmp_path / "build.ninja").write_text("")
    found = read_native(tmp_path, [tmp_path], environ={"PATH": "/nonexistent"})
    assert found.sources == {}
    assert "ninja" in found.notes[0]
