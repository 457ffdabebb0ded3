"""What source says about names: tests it defines, modules it imports, what a new file can be imported as."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Mapping

from ci.impact.blocks import header_digest, parse_tree
from ci.impact.changes import Tree

DYNAMIC = (
    "DocTestFinder", "Fire", "PluginManager", "__dict__", "autodiscover", "dir", "eval", "exec", "getmembers",
    "getmembers_static", "globals", "iter_modules", "locals", "modules", "pkgutil", "pluggy", "pydoc", "testmod",
    "vars", "walk_packages",
)  # fmt: skip
"""Words of code that can meet a definition without naming it."""

BUILTINS = frozenset(dir(builtins))


def parse_or_none(source: bytes) -> ast.Module | None:
    """Parse, or give None for what this interpreter cannot parse."""
    try:
        return parse_tree(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def parse_tests(source: bytes) -> tuple[str, ...]:
    """Name the tests that a file defines by pytest's default names, as `f` or `C::f`; parameters unknown."""
    tree = parse_or_none(source)
    return () if tree is None else tuple(_tests(tree.body, ""))


def _tests(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            yield prefix + node.name
        elif isinstance(node, ast.ClassDef) and (node.name.startswith("Test") or _is_test_case(node)):
            yield from _tests(node.body, f"{prefix}{node.name}::")
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from _tests(node.body, prefix)


def _is_test_case(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).endswith("TestCase") for base in node.bases)


def importable_names(path: str, tree: Tree) -> list[tuple[str, str]]:
    """List (folder on the search path, dotted name) under which a Python file can be imported.

    Regular packages are climbed; the folders above them may be namespace
    packages, down to the repository's root.
    """
    parts = path.removesuffix(".pyw").removesuffix(".py").split("/")
    if parts[-1] in ("__init__", "__main__"):
        parts = parts[:-1]
    names = []
    for place in range(len(parts) - 1, -1, -1):
        folder = "/".join(parts[:place])
        is_package = bool(folder) and f"{folder}/__init__.py" in tree
        if not is_package and all(part.isidentifier() for part in parts[place:]):
            names.append((folder, ".".join(parts[place:])))
    return names


def imported_words(source: bytes) -> frozenset[str]:
    """Collect every word by which a file may import something: parts of imports, and words in strings."""
    tree = parse_or_none(source)
    if tree is None:
        return frozenset(re.findall(r"\w+", source.decode("utf-8", "replace")))
    words: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            words.update(part for alias in node.names for part in alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            words.update((node.module or "").split("."))
            words.update(alias.name for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            words.update(re.findall(r"\w+", node.value))
    words.discard("")
    return frozenset(words)


def star_imports(source: bytes) -> bool:
    """Whether a file imports every name of some module."""
    tree = parse_or_none(source)
    return tree is None or any(
        isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names) for node in ast.walk(tree)
    )


def parse_imports(source: bytes) -> frozenset[tuple[int, str]]:
    """List (level of relative import, dotted name); `from a import b` gives `a` and `a.b`."""
    tree = parse_or_none(source)
    found: set[tuple[int, str]] = set()
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Import):
            found.update((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            found.add((node.level, module))
            found.update((node.level, f"{module}.{alias.name}".lstrip(".")) for alias in node.names)
    return frozenset(found)


def resolve_imports(path: str, imports: frozenset[tuple[int, str]], suffixes: Mapping[str, frozenset[str]]) -> set[str]:
    """Find the files of a tree that imports may mean; `suffixes` is `module_suffixes` of the tree.

    An absolute name matches every file whose path ends so, because any folder
    may be on the search path.
    """
    found: set[str] = set()
    for level, name in imports:
        parts = [part for part in name.split(".") if part]
        if level:
            folder = path.split("/")[:-level]
            stem = "/".join([*folder, *parts])
            candidates = (f"{stem}.py", f"{stem}/__init__.py" if stem else "__init__.py")
            found.update(one for one in candidates if one in suffixes.get(one, ()))
        for size in range(len(parts) if not level else 0, 0, -1):
            stem = "/".join(parts[:size])
            found.update(suffixes.get(f"{stem}.py", ()))
            found.update(suffixes.get(f"{stem}/__init__.py", ()))
    return found


def module_suffixes(tree: Tree) -> dict[str, frozenset[str]]:
    """Map every tail of a Python path (`b/c.py` of `a/b/c.py`) to the paths that end so."""
    found: dict[str, set[str]] = {}
    for path in tree:
        if path.endswith(".py"):
            parts = path.split("/")
            for place in range(len(parts)):
                found.setdefault("/".join(parts[place:]), set()).add(path)
    return {suffix: frozenset(paths) for suffix, paths in found.items()}


def looks_up_dynamically(source: bytes) -> bool:
    """Whether code in a file can meet names that it does not mention."""
    tree = parse_or_none(source)
    if tree is None:
        return True
    for node in ast.walk(tree):
        words = (
            (node.id,) if isinstance(node, ast.Name)
            else (node.attr,) if isinstance(node, ast.Attribute)
            else tuple(item.name.split(".")[0] for item in node.names) if isinstance(node, ast.Import | ast.ImportFrom)
            else ()
        )  # fmt: skip
        if any(word in DYNAMIC for word in words):
            return True
        if isinstance(node, ast.Call) and _computes_a_name(node):
            return True
    return False


def _computes_a_name(node: ast.Call) -> bool:
    """Whether a call is a `getattr` of a name that is no constant: it can be any name."""
    is_getattr = isinstance(node.func, ast.Name) and node.func.id == "getattr"
    return is_getattr and (len(node.args) < 2 or not isinstance(node.args[1], ast.Constant))


def added_functions(before: bytes, after: bytes) -> frozenset[str]:
    """Name the plain functions that are all that a module gained outside function bodies; else nothing.

    Plain: no decorator, defaults that are constants, annotations that cannot
    fail, a name that neither Python nor pytest looks for and that the module
    did not hold before in any role. A docstring with examples is not plain,
    because doctest runs it.
    """
    one, two = parse_or_none(before), parse_or_none(after)
    if one is None or two is None:
        return frozenset()
    old = [header_digest(node) for node in one.body]
    added: set[str] = set()
    place = 0
    for node in two.body:
        if place < len(old) and header_digest(node) == old[place]:
            place += 1
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_plain(node):
            added.add(node.name)
        else:
            return frozenset()
    words = frozenset(re.findall(r"\w+", before.decode("utf-8", "replace")))
    defines = [node.name for node in two.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    is_clear = place == len(old) and not added & words and len(defines) == len(set(defines) | added)
    looked_up = "__getattr__" in words or "__dir__" in words or star_imports(before)
    return frozenset(added) if is_clear and not looked_up else frozenset()


def _is_plain(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    arguments = node.args
    defaults = [item for item in (*arguments.defaults, *arguments.kw_defaults) if item is not None]
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    annotations = [item.annotation for item in named if item is not None] + [node.returns]
    return (
        not node.decorator_list
        and not getattr(node, "type_params", ())
        and all(isinstance(item, ast.Constant) for item in defaults)
        and all(_cannot_fail(item) for item in annotations)
        and not node.name.startswith(("__", "pytest_", "test"))
        and ">>>" not in (ast.get_docstring(node, clean=False) or "")
    )


def _cannot_fail(annotation: ast.expr | None) -> bool:
    if annotation is None or isinstance(annotation, ast.Constant):
        return True
    return isinstance(annotation, ast.Name) and annotation.id in BUILTINS
