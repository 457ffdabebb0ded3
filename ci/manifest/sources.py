"""Static import edges: what a file's import statements, run or not, may name within the repository."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from ci.impact.blocks import Blocks, parse_tree


def parse_imports(source: bytes, *, blocks: Blocks) -> list[tuple[str, str, int, tuple[str, ...]]]:
    """Give (block, module, level, names) of each import statement, those for type checkers alone left out.

    A file that cannot be parsed has none: it cannot be imported either.
    """
    try:
        tree = parse_tree(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return list(_imports(tree, blocks, "<module>"))


def _imports(node: ast.AST, blocks: Blocks, block: str) -> Iterator[tuple[str, str, int, tuple[str, ...]]]:
    for child in ast.iter_child_nodes(node):
        inner = block
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield block, alias.name, 0, ()
        elif isinstance(child, ast.ImportFrom):
            yield block, child.module or "", child.level, tuple(alias.name for alias in child.names)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([child.lineno, *(item.lineno for item in child.decorator_list)])
            inner = blocks.find(name=child.name, line=first).name
        elif isinstance(child, ast.If) and _is_type_checking(child.test):
            for item in child.orelse:
                yield from _imports(ast.Module(body=[item], type_ignores=[]), blocks, block)
            continue
        yield from _imports(child, blocks, inner)


def _is_type_checking(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else test.id if isinstance(test, ast.Name) else ""
    return name == "TYPE_CHECKING"


def resolve_import(
    path: str, module: str, level: int, names: Collection[str], *, files: Collection[str], bases: Collection[str]
) -> set[str]:
    """Give the files of the repository that an import statement in `path` may run.

    `bases` are the folders of the repository on `sys.path` ("" is its root). A
    name that is no file here is somebody else's.
    """
    folders = bases
    if level:
        parts = path.split("/")[:-level] if level <= path.count("/") + 1 else []
        folders = ["/".join(parts)]
    found: set[str] = set()
    for base in folders:
        parts = module.split(".") if module else []
        place = base
        for part in parts:
            place = f"{place}/{part}" if place else part
            found |= _at(place, files)
        if not parts:
            found |= _at(place, files)
        for name in names:
            found |= _at(f"{place}/{name}" if place else name, files)
    return found


def _at(place: str, files: Collection[str]) -> set[str]:
    init = f"{place}/__init__.py" if place else "__init__.py"
    return {path for path in (f"{place}.py", init) if path in files}
