"""Mentioned names: narrow a change at module level to those who use a name that changed.

Off unless a row switches it on. The module block is split into statements. A
plain one (a function without decorators, a constant that no call computes)
taints the names that it binds; within the module taint spreads over the
statements that mention such a name. Then every block of the repository that
mentions a tainted name counts as changed. Whatever cannot be followed so gives
None: the caller falls back on every importer.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ci.impact.blocks import MODULE, Blocks, docstring_of, header_digest, parse_blocks
from ci.impact.changes import Change
from ci.impact.facts import Effect, View
from ci.impact.names import DYNAMIC, looks_up_dynamically, parse_or_none
from ci.impact.reasons import Reason
from ci.manifest.model import Bits

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
EVERY = "*"
"""What code mentions that can meet any name."""

IMPURE = (ast.Call, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A top-level statement: the names it binds and mentions at import, or `is_opaque` where more happens."""

    binds: frozenset[str]
    mentions: frozenset[str]
    digest: str
    is_opaque: bool


def narrow(change: Change, view: View, *, before: bytes, after: bytes) -> list[Effect] | None:
    """Give the effects of a module-level change by the names that changed, or None where that is not certain."""
    tainted = changed_names(before, after)
    texts = view.span.texts
    if not tainted or not texts:
        return None
    # Another name for the same thing, wherever it is imported under one.
    tainted |= {alias for text in texts.values() for name, alias in aliases(text) if name in tainted}
    tests, users = 0, []
    for path, text in texts.items():
        found = _users(path, text, tainted, view)
        if found:
            tests |= found
            users.append(path)
    for name in tainted:
        tests |= view.manifest.executed.get(change.path, {}).get(name, 0)
    names = ", ".join(sorted(tainted))
    where = f"in {len(users)} files" if users else "nowhere"
    detail = f"{change.path}: {names} changed, mentioned {where}"
    if not tests:
        return [Effect(path=change.path, reason=Reason.UNUSED_DEFINITION, detail=detail)]
    return [Effect(path=change.path, reason=Reason.MENTIONED_NAME, detail=detail, tests=tests)]


def changed_names(before: bytes, after: bytes) -> frozenset[str]:
    """Name what a module-level change can be seen by; nothing where it cannot be followed by names."""
    one, two = parse_or_none(before), parse_or_none(after)
    if one is None or two is None:
        return frozenset()
    old, new = [_statement(node) for node in one.body], [_statement(node) for node in two.body]
    differing = Counter(item.digest for item in old)
    differing.subtract(item.digest for item in new)
    stays_old = [item.digest for item in old if not differing[item.digest]]
    stays_new = [item.digest for item in new if not differing[item.digest]]
    changed = [item for item in (*old, *new) if differing[item.digest]]
    if stays_old != stays_new or any(item.is_opaque for item in changed):
        return frozenset()
    tainted = {name for item in changed for name in item.binds}
    if any(name.startswith("__") for name in tainted) or _has_hooks(one) or _has_hooks(two):
        return frozenset()
    while True:
        reached = [item for item in (*old, *new) if item.mentions & tainted and not item.binds <= tainted]
        if any(item.is_opaque for item in (*old, *new) if item.mentions & tainted):
            return frozenset()
        if not reached:
            return frozenset(tainted)
        tainted |= {name for item in reached for name in item.binds}


def _has_hooks(tree: ast.Module) -> bool:
    return any(isinstance(node, FunctionNode) and node.name in ("__getattr__", "__dir__") for node in tree.body)


def _statement(node: ast.stmt) -> Statement:
    binds: frozenset[str] = frozenset()
    is_opaque = True
    parts: Iterable[ast.AST] = (node,)
    if isinstance(node, FunctionNode):
        arguments = node.args
        parts = [*arguments.defaults, *(item for item in arguments.kw_defaults if item is not None)]
        hints = [item.annotation for item in ast.walk(arguments) if isinstance(item, ast.arg) and item.annotation]
        parts += [*hints, *([node.returns] if node.returns else [])]
        binds, is_opaque = frozenset({node.name}), bool(node.decorator_list) or _is_impure(parts)
    elif isinstance(node, ast.Assign) and all(isinstance(target, ast.Name) for target in node.targets):
        binds = frozenset(target.id for target in node.targets if isinstance(target, ast.Name))
        is_opaque = _is_impure([node.value])
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        binds, is_opaque = frozenset({node.target.id}), _is_impure([node])
    mentions = frozenset(word for part in parts for _, words in _mentions(part) for word in words)
    return Statement(binds=binds, mentions=mentions - binds, digest=header_digest(node), is_opaque=is_opaque)


def _is_impure(parts: Iterable[ast.AST]) -> bool:
    return any(isinstance(node, IMPURE) for part in parts for node in ast.walk(part))


def aliases(text: bytes) -> frozenset[tuple[str, str]]:
    """List (name, other name) pairs under which a file imports or assigns plain names."""
    if b" as " not in text:
        return frozenset()
    tree = parse_or_none(text)
    nodes = ast.walk(tree) if tree is not None else ()
    return frozenset(
        (alias.name.rpartition(".")[2], alias.asname)
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if alias.asname
    )


def _users(path: str, text: bytes, tainted: frozenset[str], view: View) -> Bits:
    """Give the tests that ran a block of a file which mentions a tainted name, or that import it if it does so."""
    words = frozenset(re.findall(r"\w+", text.decode("utf-8", "replace")))
    if not words & tainted and not (words & {*DYNAMIC, "getattr"} and looks_up_dynamically(text)):
        return 0
    tree = parse_or_none(text)
    if tree is None:
        return view.importers(path)
    blocks = parse_blocks(text)
    holders = {
        holder
        for line, found in _mentions(tree)
        if found & tainted or EVERY in found
        for holder in _holders(blocks, line)
    }
    tests = 0
    for holder in holders:
        bits = view.manifest.executed.get(path, {}).get(holder, 0) if holder != MODULE else 0
        # What nobody was seen to run may run unseen, as for a changed body.
        tests |= bits or view.importers(path) | view.by_file.get(path, 0)
    return tests


def _holders(blocks: Blocks, line: int) -> set[str]:
    """Name the block of a line; a function on one line shares it with its own header."""
    block = blocks.find(name="", line=line)
    return {block.name, MODULE} if block.body == block.first else {block.name}


def _mentions(root: ast.AST) -> list[tuple[int, frozenset[str]]]:
    """List (line, words) of what code mentions: names, attributes, words in strings; `EVERY` where it may be any.

    An import alone uses nothing, and a docstring is text.
    """
    texts = {id(docstring.value) for node in ast.walk(root) if isinstance(docstring := docstring_of(node), ast.Expr)}
    found = []
    for node in ast.walk(root):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Name):
            found.append((line, frozenset({node.id, EVERY} if node.id in DYNAMIC else {node.id})))
        elif isinstance(node, ast.Attribute):
            found.append((node.end_lineno or line, frozenset({node.attr, EVERY} if node.attr in DYNAMIC else {node.attr})))
        elif isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            found.append((line, frozenset({EVERY})))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in texts or ">>>" in node.value:
                found.append((line, frozenset(re.findall(r"\w+", node.value))))
        elif isinstance(node, ast.Call) and _is_computed(node):
            found.append((line, frozenset({EVERY})))
    return found


def _is_computed(node: ast.Call) -> bool:
    """Whether a call looks a name up that it computes: getattr, import_module, __import__."""
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    place = {"getattr": 1, "setattr": 1, "attrgetter": 0, "import_module": 0, "__import__": 0}.get(name)
    return place is not None and (len(node.args) <= place or not isinstance(node.args[place], ast.Constant))


def wants_texts(changes: Iterable[Change], sources: Mapping[str, bytes]) -> bool:
    """Whether any change can be narrowed by names, so that the texts of the repository are needed."""
    for change in changes:
        if change.path.endswith(".py") and change.before is not None and change.after is not None:
            before, after = sources.get(change.before.blob), sources.get(change.after.blob)
            if before is not None and after is not None and changed_names(before, after):
                return True
    return False
