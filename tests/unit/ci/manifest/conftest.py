"""A small manifest to build upon, and a repository's worth of nothing around it."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ci.context import Context
from ci.impact.blocks import BLOCKS_VERSION
from ci.manifest.model import Core, Header, Kind, Library, Manifest, SourceFile, TestRecord, listings_of
from ci.output import Output

NOW = 1_800_000_000.0
COMMIT = "a" * 40


def make_header(**values: Any) -> Header:
    """Give a header of a good recording, one hour old."""
    header = Header(
        tool="0",
        blocks_version=BLOCKS_VERSION,
        stage="cpu_gate",
        source=COMMIT,
        started=NOW - 3600,
        created=NOW - 3500,
        is_complete=True,
        is_publishable=True,
        core=Core.CTRACE,
        python="3.11.7",
        environment={"python": "CPython 3.11.7"},
    )
    return replace(header, **values)


def make_manifest(**values: Any) -> Manifest:
    """Give a small manifest with one of everything."""
    files = {
        "src/a.py": SourceFile(path="src/a.py", blob="1" * 40, kind=Kind.PYTHON, blocks={"<module>": "m", "f": "x"}),
        "tests/test_a.py": SourceFile(
            path="tests/test_a.py", blob="2" * 40, kind=Kind.PYTHON, blocks={"<module>": "n"}
        ),
        "data.txt": SourceFile(path="data.txt", blob="3" * 40),
    }
    tests = (
        TestRecord(id="tests/test_a.py::test_1", path="tests/test_a.py", outcome="passed", duration=0.5),
        TestRecord(id="tests/test_a.py::test_2", path="tests/test_a.py", outcome="passed", opaque=("child-shell",)),
        TestRecord(id="tests/test_a.py::test_3", path="tests/test_a.py", outcome="failed"),
    )
    manifest = Manifest(
        header=make_header(),
        files=files,
        tests=tests,
        executed={"src/a.py": {"f": 0b011}},
        imported={"src/a.py": 0b111, "tests/test_a.py": 0b111},
        opened={"data.txt": 0b001},
        listed={"": 0b010},
        listings={"": listings_of(files)[""]},
        probed={"absent.cfg": 0b100},
        libraries={"build/lib.so": Library(path="build/lib.so", sources=frozenset({"csrc/a.c"}), tests=0b100)},
        edges={"tests/test_a.py": frozenset({"src/a.py"})},
    )
    return replace(manifest, **values)


@pytest.fixture
def manifest() -> Manifest:
    """Give the small manifest."""
    return make_manifest()


@pytest.fixture
def build() -> Callable[..., Manifest]:
    """Give the function that makes one with other fields."""
    return make_manifest


@pytest.fixture
def header() -> Callable[..., Header]:
    """Give the function that makes a header with other fields."""
    return make_header


@pytest.fixture
def now() -> float:
    """Give the present of these tests."""
    return NOW


@pytest.fixture
def context(tmp_path: Path) -> tuple[Context, io.StringIO]:
    """Give a context in an empty folder, and what it says."""
    stream = io.StringIO()
    console = Console(file=stream, width=400, emoji=False)
    out = Output(stdout=console, stderr=console)
    return Context(root=tmp_path, cwd=tmp_path, environ={}, out=out, clock=lambda: NOW), stream
