"""Static import edges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.impact.blocks import parse_blocks
from ci.manifest.sources import parse_imports, resolve_import

pytestmark = pytest.mark.cpu

FILES = {"pkg/__init__.py", "pkg/a.py", "pkg/sub/__init__.py", "pkg/sub/b.py", "src/lib.py", "top.py"}


def imports(text: str) -> list[tuple[str, str, int, tuple[str, ...]]]:
    """Parse some text."""
    source = text.encode()
    return parse_imports(source, blocks=parse_blocks(source))


def test_imports_belong_to_the_function_that_holds_them() -> None:
    found = imports(
        "import os, pkg.a\n"
        "class C:\n    from . import x\n    def m(self):\n        import top\n"
        "def f():\n    def g():\n        from ..y import z as w\n    return g\n"
    )
    assert found == [
        ("<module>", "os", 0, ()), ("<module>", "pkg.a", 0, ()), ("<module>", "", 1, ("x",)), ("C.m", "top", 0, ()),
        ("f.<locals>.g", "y", 2, ("z",)),
    ]  # fmt: skip


def test_imports_for_type_checkers_never_run() -> None:
    text = (
        "import typing\nif typing.TYPE_CHECKING:\n    import a\nelse:\n    import b\nif TYPE_CHECKING:\n    import c\n"
    )
    assert [item[1] for item in imports(text)] == ["typing", "b"]
    assert imports("not python (") == []


@pytest.mark.parametrize(
    ("path", "module", "level", "names", "found"),
    [
        ("top.py", "pkg.a", 0, (), {"pkg/__init__.py", "pkg/a.py"}),
        ("top.py", "pkg", 0, ("a", "sub"), {"pkg/__init__.py", "pkg/a.py", "pkg/sub/__init__.py"}),
        ("pkg/sub/b.py", "", 1, ("b",), {"pkg/sub/__init__.py", "pkg/sub/b.py"}),
        ("pkg/sub/b.py", "a", 2, ("x",), {"pkg/a.py"}),
        ("pkg/sub/b.py", "", 9, ("x",), set()),
        ("top.py", "lib", 0, (), {"src/lib.py"}),
        ("top.py", "os.path", 0, (), set()),
    ],
)
def test_names_resolve_to_files(path: str, module: str, level: int, names: tuple[str, ...], found: set[str]) -> None:
    assert resolve_import(path, module, level, names, files=FILES, bases=("", "src")) == found


@given(st.text(max_size=80))
def test_no_text_breaks_the_parser(text: str) -> None:
    imports(text.encode("utf-8", "surrogatepass").decode("utf-8", "replace"))
