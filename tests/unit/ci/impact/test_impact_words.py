"""Patterns, meanings of configuration, names in sources, links, reasons: small pure parts."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.impact.changes import Entry, compare_trees, folders_of, resolve_link
from ci.impact.git import parse_renames
from ci.impact.meaning import (
    ini_difference,
    python_files,
    requirements_difference,
    toml_difference,
    yaml_differs,
)
from ci.impact.names import (
    added_functions,
    importable_names,
    imported_words,
    looks_up_dynamically,
    module_suffixes,
    parse_imports,
    parse_tests,
    resolve_imports,
)
from ci.impact.patterns import matches
from ci.impact.reasons import Reason
from ci.impact.reference import render_reasons

pytestmark = pytest.mark.cpu


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("*.md", "a/b/README.md", True),
        ("*.md", "a.mdx", False),
        ("docs/**", "docs/a/b.txt", True),
        ("docs/**", "other/docs/a.txt", False),
        ("docs/", "docs/a", True),
        ("**/data/*.txt", "data/a.txt", True),
        ("**/data/*.txt", "x/y/data/a.txt", True),
        ("src/*.py", "src/a/b.py", False),
        ("LICENSE*", "LICENSE.txt", True),
        ("a[0-9].txt", "a5.txt", True),
        ("a[!0-9].txt", "a5.txt", False),
        ("a?c", "abc", True),
        ("[", "[", True),
        ("**", "a\nb", True),
        ("/docs/**", "docs/a", True),
    ],
)
def test_a_pattern_fits_names_or_whole_paths(pattern: str, path: str, fits: bool) -> None:
    # "**" has no slash, so it is a pattern of names.
    assert bool(matches(path, [pattern])) is fits


@given(st.text(max_size=12), st.text(max_size=12))
def test_no_pattern_raises(pattern: str, path: str) -> None:
    matches(path, [pattern])


@pytest.mark.parametrize(
    ("before", "after", "keys"),
    [
        ("", "[tool.ruff]\nx = 1", []),
        ("[tool.ruff]\nx = 1", "[tool.ruff]\nx = 2\n[tool.mypy]\ny = 1", []),
        ("[project]\ndescription = 'a'", "[project]\ndescription = 'b'", []),
        ("[project]\nversion = '1'", "[project]\nversion = '2'", ["project.version"]),
        ("[tool.pytest.ini_options]\na = 1", "[tool.pytest.ini_options]\na = 2", ["tool.pytest.ini_options.a"]),
        ("", "[tool.lockgate.stages.gpu]\nranks = 2", ["tool.lockgate.stages.gpu"]),
        ("[build-system]\nrequires = []", "", ["build-system.requires"]),
        ("x = [1]  # a", "x = [ 1 ]", []),
        ("x = 1", "x = (", ["(not valid TOML"]),
    ],
)
def test_toml_is_compared_by_meaning(before: str, after: str, keys: list[str]) -> None:
    found = toml_difference(before.encode(), after.encode())
    assert len(found) == len(keys)
    assert all(name.startswith(key) for name, key in zip(found, keys, strict=True))


@pytest.mark.parametrize(
    ("before", "after", "sections"),
    [
        ("[pytest]\na = 1", "[pytest]\n# x\na=1", []),
        ("[pytest]\na = 1", "[pytest]\na = 2", ["pytest"]),
        ("[flake8]\na = 1", "[flake8]\na = 2", []),
        ("[mypy-x.*]\na = 1", "", []),
        ("[tool:pytest]\na = 1", "", ["tool:pytest"]),
        ("a = 1", "b", ["(not valid: File contains no section headers.)"]),
    ],
)
def test_ini_is_compared_by_meaning(before: str, after: str, sections: list[str]) -> None:
    assert ini_difference(before.encode(), after.encode()) == sections


def test_an_ini_file_that_comes_or_goes_differs_even_if_empty() -> None:
    assert ini_difference(None, b"") == ["(the file itself)"]


def test_requirements_and_yaml_are_compared_by_meaning() -> None:
    assert not requirements_difference(b"a==1\n", b"# x\n\na==1  # y\n")
    assert requirements_difference(b"a==1 --hash=sha256:x#y\n", b"a==1\n")
    assert not yaml_differs(b"a: [1]\n", b"# x\na:\n  - 1\n")
    assert yaml_differs(b"on: push\n", b"on: pull_request\n")
    assert yaml_differs(b"a: !!python/object:os.x {}\n", b"a: 1\n")
    assert yaml_differs(None, b"")


@pytest.mark.parametrize(
    ("contents", "names"),
    [
        ({}, ("test_*.py", "*_test.py")),
        ({"pytest.ini": b"[pytest]\npython_files = a_*.py b.py"}, ("a_*.py", "b.py")),
        ({"pyproject.toml": b"[tool.pytest.ini_options]\npython_files = ['x_*.py']"}, ("x_*.py",)),
        ({"pyproject.toml": b"[tool.pytest]\npython_files = 'x_*.py'"}, ("x_*.py",)),
        ({"pyproject.toml": b"broken ["}, ("test_*.py", "*_test.py")),
        ({"setup.cfg": b"[tool:pytest]\npython_files = y.py"}, ("y.py",)),
    ],
)
def test_names_of_test_files_are_read(contents: Mapping[str, bytes], names: tuple[str, ...]) -> None:
    assert python_files(contents) == names


def test_tests_of_a_source_are_named() -> None:
    source = b"""
import unittest
def helper(): pass
async def test_a(): pass
class TestB:
    def test_c(self): pass
    class TestD:
        def test_e(self): pass
class Case(unittest.TestCase):
    def test_f(self): pass
class Plain:
    def test_g(self): pass
if True:
    def test_h(): pass
"""
    names = ("test_a", "TestB::test_c", "TestB::TestD::test_e", "Case::test_f", "test_h")
    assert parse_tests(source) == names
    assert parse_tests(b"def (") == ()


def tree(*paths: str) -> dict[str, Entry]:
    return {path: Entry(mode="100644", blob=path) for path in paths}


def test_a_file_can_be_imported_from_above_its_packages() -> None:
    files = tree("src/p/__init__.py", "src/p/q/__init__.py", "src/p/q/m.py")
    assert importable_names("src/p/q/m.py", files) == [("src", "p.q.m"), ("", "src.p.q.m")]
    assert importable_names("src/p/q/__init__.py", files)[0] == ("src", "p.q")
    assert importable_names("tests/a-b/x.py", files) == [("tests/a-b", "x")]


def test_imports_resolve_to_every_file_that_they_may_mean() -> None:
    files = tree("src/p/__init__.py", "src/p/m.py", "other/p/m.py", "src/p/sub/n.py")
    imports = parse_imports(b"import p.m\nfrom . import m\nfrom .sub.n import x\n")
    found = resolve_imports("src/p/here.py", imports, module_suffixes(files))
    assert found == {"src/p/__init__.py", "src/p/m.py", "other/p/m.py", "src/p/sub/n.py"}


def test_words_of_imports_and_strings_count_as_naming_a_module() -> None:
    source = b"import a.b\nfrom .c import d as e\nX = 'f.g'\nh = 1  # i\n"
    assert imported_words(source) == {"a", "b", "c", "d", "f", "g"}
    assert "anything" in imported_words(b"def ( anything")


@pytest.mark.parametrize(
    ("source", "is_dynamic"),
    [
        ("dir(x)", True),
        ("x.__dict__", True),
        ("import pkgutil", True),
        ("getattr(x, name)", True),
        ("getattr(x, 'name')", False),
        ("# dir", False),
        ("'globals'", False),
        ("def (", True),
    ],
)
def test_code_that_looks_names_up_is_found(source: str, is_dynamic: bool) -> None:
    assert looks_up_dynamically(source.encode()) is is_dynamic


@pytest.mark.parametrize(
    ("added", "names"),
    [
        ("def g(a, b=1, *c: int, **d) -> None:\n    return 2\n", {"g"}),
        ("def g(a=f): pass\n", set()),
        ("@f\ndef g(): pass\n", set()),
        ("def g(a: Unknown): pass\n", set()),
        ("def f(): pass\n", set()),
        ("def X(): pass\n", set()),
        ("def test_g(): pass\n", set()),
        ("def pytest_g(): pass\n", set()),
        ("def __getattr__(n): pass\n", set()),
        ("def g():\n    '''>>> 1'''\n", set()),
        ("Y = 1\n", set()),
        ("def g(): pass\ndef h(): pass\n", {"g", "h"}),
    ],
)
def test_only_plain_new_functions_are_harmless(added: str, names: set[str]) -> None:
    before = "X = 1\n\ndef f():\n    return X\n"
    assert added_functions(before.encode(), (before + added).encode()) == names
    assert added_functions(before.encode(), (added + before).encode()) == names


def test_a_star_import_or_a_lookup_hook_makes_no_function_harmless() -> None:
    for before in ("from m import *\n", "def __getattr__(n):\n    pass\n"):
        assert not added_functions(before.encode(), (before + "def g(): pass\n").encode())


@pytest.mark.parametrize(
    ("link", "target", "path"),
    [
        ("a/link", "../b", "b"),
        ("link", "b/c", "b/c"),
        ("a/link", "x", "a/x"),
        ("link", "../out", ""),
        ("link", "/etc", ""),
    ],
)
def test_links_are_resolved_inside_the_repository(link: str, target: str, path: str) -> None:
    assert resolve_link(link, target) == path


def test_trees_differ_by_content_and_mode() -> None:
    before = {
        "a": Entry(mode="100644", blob="1"),
        "b": Entry(mode="100644", blob="2"),
        "c": Entry(mode="100644", blob="3"),
    }
    after = {
        "a": Entry(mode="100755", blob="1"),
        "c": Entry(mode="100644", blob="3"),
        "d": Entry(mode="100644", blob="2"),
    }
    changes = compare_trees(before, after, renames={"d": "b"})
    assert [str(change) for change in changes] == [
        "a changed its mode",
        "b removed (renamed to d)",
        "d added (renamed from b)",
    ]
    assert folders_of("a/b/c.py") == ["a/b", "a", ""]


def test_raw_diffs_are_read_whatever_the_names_hold() -> None:
    zero = b"0" * 40
    raw = b":100644 100644 %b %b R100\0old\tname\0new\nname\0:100644 100644 %b %b M\0:odd\0" % (zero, zero, zero, zero)
    assert parse_renames(raw) == [("old\tname", "new\nname")]
    assert parse_renames(b"") == []


def test_every_reason_is_explained_once_in_the_reference() -> None:
    text = render_reasons()
    for reason in Reason:
        assert reason.meaning
        assert text.count(f"| `{reason}` | {reason.meaning} |") == 1
