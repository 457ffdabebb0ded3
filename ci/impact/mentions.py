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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ci.impact.blocks import MODULE, Blocks, docstring_of, header_digest, parse_blocks
from ci.impact.changes import Change
from ci.impact.facts import Effect, View
from ci.impact.names import BUILTINS, DYNAMIC, looks_up_dynamically, parse_or_none
from ci.impact.reasons import Reason
from ci.manifest.model import Bits

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
EVERY = "*"
"""What code mentions that can meet any name."""


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A top-level statement: the names it binds, needs and mentions at import; `is_opaque` where more may happen."""

    binds: frozenset[str]
    needs: frozenset[str]
    mentions: frozenset[str]
    digest: str
    is_opaque: bool


@dataclass(frozen=True, kw_only=True)
class Taint:
    """Names that a change can be seen by; `removed` are those that no longer exist, so that importing one fails."""

    names: frozenset[str]
    removed: frozenset[str] = frozenset()


NOTHING = Taint(names=frozenset())


def narrow(change: Change, view: View, *, before: bytes, after: bytes) -> list[Effect] | None:
    """Give the effects of a module-level change by the names that changed, or None where that is not certain."""
    taint = changed_names(before, after)
    texts = view.span.texts
    if not taint.names or not texts:
        return None
    # Another name for the same thing, wherever it is imported under one.
    tainted = taint.names | {alias for text in texts.values() for name, alias in aliases(text) if name in taint.names}
    tests, users = 0, []
    for path, text in texts.items():
        found = _users(path, text, tainted, taint.removed, view, is_own=path == change.path)
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


def changed_names(before: bytes, after: bytes) -> Taint:
    """Name what a module-level change can be seen by; nothing where it cannot be followed by names."""
    one, two = parse_or_none(before), parse_or_none(after)
    if one is None or two is None or _has_hooks(one) or _has_hooks(two):
        return NOTHING
    old, new = [_statement(node) for node in one.body], [_statement(node) for node in two.body]
    differing = Counter(item.digest for item in old)
    differing.subtract(item.digest for item in new)
    stays_old = [item.digest for item in old if not differing[item.digest]]
    stays_new = [item.digest for item in new if not differing[item.digest]]
    changed = [item for item in (*old, *new) if differing[item.digest]]
    tainted = _spread({name for item in changed for name in item.binds}, [*old, *new])
    touched = [item for item in (*old, *new) if differing[item.digest] or item.mentions & tainted]
    # A name bound twice has the value of its last statement, whichever changed.
    rebound = [item for item in new if item.binds & tainted and item not in touched]
    if stays_old != stays_new or rebound or any(item.is_opaque for item in touched):
        return NOTHING
    if any(name.startswith("__") for name in tainted) or not _is_bound_in_order(new, touched):
        return NOTHING
    bound = {name for item in new for name in item.binds}
    return Taint(names=tainted, removed=frozenset(tainted - bound))


def _spread(names: set[str], statements: Iterable[Statement]) -> frozenset[str]:
    """Add the names of every statement that mentions one of them, as long as there are any."""
    tainted = set(names)
    while True:
        more = {name for item in statements if item.mentions & tainted for name in item.binds} - tainted
        if not more:
            return frozenset(tainted)
        tainted |= more


def _is_bound_in_order(statements: Iterable[Statement], touched: Iterable[Statement]) -> bool:
    """Whether each touched statement finds the names that it needs, so that importing cannot fail in it."""
    bound = set(BUILTINS)
    wanted = {item.digest for item in touched}
    for item in statements:
        if item.digest in wanted and not item.needs <= bound:
            return False
        bound |= item.binds
    return True


def _has_hooks(tree: ast.Module) -> bool:
    return any(isinstance(node, FunctionNode) and node.name in ("__getattr__", "__dir__") for node in tree.body)


def _statement(node: ast.stmt) -> Statement:
    binds = frozenset(_bound(node))
    parts: list[ast.AST] = [node]
    is_opaque = True
    if isinstance(node, FunctionNode):
        arguments = node.args
        parts = [*arguments.defaults, *(item for item in arguments.kw_defaults if item is not None)]
        parts += [item.annotation for item in ast.walk(arguments) if isinstance(item, ast.arg) and item.annotation]
        parts += [node.returns] if node.returns else []
        is_opaque = bool(node.decorator_list) or not all(_cannot_fail(part) for part in parts)
    elif isinstance(node, ast.Assign) and all(isinstance(target, ast.Name) for target in node.targets):
        parts = [node.value]
        is_opaque = not _cannot_fail(node.value)
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
        parts = [node.value, node.annotation]
        is_opaque = not all(_cannot_fail(part) for part in parts)
    mentions = frozenset(word for part in parts for _, words in _mentions(part) for word in words)
    needs = frozenset(item.id for part in parts for item in ast.walk(part) if isinstance(item, ast.Name))
    return Statement(
        binds=binds, needs=needs, mentions=mentions - binds, digest=header_digest(node), is_opaque=is_opaque
    )


def _bound(node: ast.stmt) -> Iterator[str]:
    """Give the names that a top-level statement may bind."""
    if isinstance(node, FunctionNode | ast.ClassDef):
        yield node.name
        return
    for item in ast.walk(node):
        if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store):
            yield item.id
        elif isinstance(item, FunctionNode | ast.ClassDef):
            yield item.name
        elif isinstance(item, ast.alias):
            yield item.asname or item.name.partition(".")[0]


def _cannot_fail(node: ast.AST) -> bool:
    """Whether evaluating an expression can neither fail nor act, given that its names exist."""
    if isinstance(node, ast.Constant | ast.Name):
        return True
    if isinstance(node, ast.Tuple | ast.List):
        return all(_cannot_fail(item) for item in node.elts)
    if isinstance(node, ast.Set):
        return all(isinstance(item, ast.Constant) for item in node.elts)
    if isinstance(node, ast.Dict):
        return all(isinstance(key, ast.Constant) for key in node.keys) and all(map(_cannot_fail, node.values))
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and _is_number(node.operand)
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Add | ast.Sub | ast.Mult) and _is_number(node.left) and _is_number(node.right)
    return False


def _is_number(node: ast.AST) -> bool:
    return (isinstance(node, ast.Constant) and isinstance(node.value, int | float)) or (
        isinstance(node, ast.BinOp) and _cannot_fail(node)
    )


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


def _users(
    path: str, text: bytes, tainted: frozenset[str], removed: frozenset[str], view: View, *, is_own: bool
) -> Bits:
    """Give the tests that ran a block of a file which mentions a tainted name, or that import it if it does so.

    The module block of the changed file itself (`is_own`) was followed statement by statement.
    """
    words = frozenset(re.findall(r"\w+", text.decode("utf-8", "replace")))
    if not words & tainted and not (words & {*DYNAMIC, "getattr"} and looks_up_dynamically(text)):
        return 0
    tree = parse_or_none(text)
    if tree is None:
        return view.importers(path)
    blocks = parse_blocks(text)
    holders = {
        holder
        for line, found in _mentions(tree, imports=removed)
        if found & tainted or EVERY in found
        for holder in _holders(blocks, line)
        if not (is_own and holder == MODULE)
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


def _mentions(root: ast.AST, *, imports: frozenset[str] = frozenset()) -> list[tuple[int, frozenset[str]]]:
    """List (line, words) of what code mentions: names, attributes, words in strings; `EVERY` where it may be any.

    An import alone uses nothing, unless it is of one of the names in
    `imports`; a docstring is text.
    """
    texts = {id(docstring.value) for node in ast.walk(root) if isinstance(docstring := docstring_of(node), ast.Expr)}
    found = []
    for node in ast.walk(root):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Name):
            found.append((line, frozenset({node.id, EVERY} if node.id in DYNAMIC else {node.id})))
        elif isinstance(node, ast.Attribute):
            words = frozenset({node.attr, EVERY} if node.attr in DYNAMIC else {node.attr})
            found.append((node.end_lineno or line, words))
        elif isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            found.append((line, frozenset({EVERY})))
        elif isinstance(node, ast.ImportFrom) and imports:
            found.append((line, imports & {alias.name for alias in node.names}))
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
            if before is not None and after is not None and changed_names(before, after).names:
                return True
    return False
