"""Python source -> hashed blocks: the module block and one block per function body.

A block is what changes and executes as one. The **module block** holds what
runs when the module is imported: every statement outside a function, class
bodies included, and the header of every function that such a statement
defines (name, arguments, defaults, decorators, annotations, docstring, and
whether it is a generator). A **body block** holds the statements of one
function; lambdas, comprehensions and class bodies inside it belong to it, a
nested function's body is a block of its own.

Digests are taken over meaning: comments, blank lines, line ends, quotes and
layout vanish. They do not depend on the version of Python, as far as its
parsers agree: empty fields are left out, so that a field which a newer grammar
adds to every node changes nothing.
"""

from __future__ import annotations

import ast
import hashlib
import warnings
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

BLOCKS_VERSION = 1
"""Grows whenever digests of unchanged source would differ; a manifest stores it."""

MODULE = "<module>"
"""The name of the module block."""

IGNORED_FIELDS = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
"""Fields that follow from the place of a node, or that no interpreter reads."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True)
class Block:
    """One block: its qualified name, where it stands, and the digest of its meaning.

    Lines count from 1. `first` is the line of the first decorator or of `def`
    (what a code object calls `co_firstlineno`), `body` the first line of the
    statements, `last` the last line. A name that occurs again in its scope (a
    property's setter, a conditional definition) gets `#2`, `#3`.
    """

    name: str
    first: int
    body: int
    last: int
    digest: str


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """All blocks of one file, the module block first.

    `problem` says why a file could not be parsed; it then has the module block
    alone, over its bytes, so that any change of it changes everything.
    """

    blocks: tuple[Block, ...]
    problem: str = ""

    @property
    def module(self) -> Block:
        """The module block."""
        return self.blocks[0]

    @cached_property
    def digests(self) -> dict[str, str]:
        """Digest of each block by name."""
        return {block.name: block.digest for block in self.blocks}

    @cached_property
    def _by_first(self) -> dict[int, tuple[Block, ...]]:
        found: dict[int, tuple[Block, ...]] = {}
        for block in self.blocks[1:]:
            found[block.first] = (*found.get(block.first, ()), block)
        return found

    @cached_property
    def _nesting(self) -> tuple[tuple[int, ...], tuple[Block, ...]]:
        bodies = sorted(self.blocks[1:], key=lambda block: (block.body, -block.last))
        return tuple(block.body for block in bodies), tuple(bodies)

    def find(self, *, name: str, line: int) -> Block:
        """Give the block of a code object by its `co_name` and `co_firstlineno`.

        A function is found where it starts. Anything else (a lambda, a
        comprehension, a class body) belongs to the innermost function whose
        statements contain its line, else to the module.
        """
        for block in self._by_first.get(line, ()):
            if simple_name(block.name) == name:
                return block
        lines, bodies = self._nesting
        for place in range(bisect_right(lines, line) - 1, -1, -1):
            if bodies[place].last >= line:
                return bodies[place]
        return self.module


def simple_name(name: str) -> str:
    """Give the last part of a qualified name, without the mark of a repeated one."""
    return name.partition("#")[0].rpartition(".")[2]


def parse_blocks(source: bytes, *, docstrings_inert: bool = False) -> Blocks:
    """Split a file into blocks; never raises, whatever the bytes are.

    Docstrings count (command-line tools print them, doctests run them) unless
    `docstrings_inert`.
    """
    try:
        tree = parse_tree(source)
        return _Splitter(docstrings_inert=docstrings_inert).split(tree, lines=source.count(b"\n") + 1)
    except (SyntaxError, ValueError) as error:
        return whole_file(source, problem=f"not valid Python for this interpreter: {error}")
    except (RecursionError, MemoryError):
        return whole_file(source, problem="nested too deeply to be parsed")


def parse_tree(source: bytes) -> ast.Module:
    """Parse without a word about doubtful escapes; raises what `ast.parse` raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


def compile_notes(source: bytes) -> frozenset[str]:
    """Give what this interpreter's compiler has to say: its warnings, or the error that stops it.

    A body can keep its module from being imported although it parses: `break`
    outside a loop is an error of the compiler, and its warnings are errors for
    whoever turned them into some.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            compile(source, "<changed>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            return frozenset({f"error: {error.msg if isinstance(error, SyntaxError) else error}"})
        except (RecursionError, MemoryError):
            return frozenset({"error: nested too deeply to be compiled"})
    return frozenset(f"{item.category.__name__}: {item.message}" for item in caught)


def whole_file(source: bytes, *, problem: str) -> Blocks:
    """Give one block over the bytes of a file that has no finer structure."""
    last = source.count(b"\n") + 1
    digest = _digest(["bytes", source.hex()])
    return Blocks(blocks=(Block(name=MODULE, first=1, body=1, last=last, digest=digest),), problem=problem)


def header_digest(node: ast.stmt) -> str:
    """Give the digest of what the module block holds of one statement: everything but function bodies."""
    words: list[str] = []
    _Splitter(docstrings_inert=False).node(node, words, "")
    return _digest(words)


def docstring_of(node: ast.AST) -> ast.stmt | None:
    """Give the statement that is a node's docstring, if it has one."""
    if isinstance(node, ast.Module | ast.ClassDef | Function) and node.body:
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            return first
    return None


@dataclass(kw_only=True)
class _Splitter:
    """Walks a tree once, writing each block's words into a list of its own."""

    docstrings_inert: bool
    bodies: list[tuple[Block, list[str]]] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)

    def split(self, tree: ast.Module, *, lines: int) -> Blocks:
        words: list[str] = []
        self.node(tree, words, "")
        module = Block(name=MODULE, first=1, body=1, last=lines, digest=_digest(words))
        rest = (
            Block(name=block.name, first=block.first, body=block.body, last=block.last, digest=_digest(body))
            for block, body in self.bodies
        )
        return Blocks(blocks=(module, *rest))

    def node(self, node: ast.AST, words: list[str], prefix: str) -> None:
        """Write a node's words; the header alone of a function."""
        if isinstance(node, Function):
            self.function(node, words, prefix)
            return
        inside = f"{prefix}{node.name}." if isinstance(node, ast.ClassDef) else prefix
        docstring = docstring_of(node) if self.docstrings_inert else None
        words.append(f"({type(node).__name__}")
        for name in node._fields:
            value = getattr(node, name, None)
            if value is None and not (name == "value" and isinstance(node, ast.Constant)):
                continue
            if name in IGNORED_FIELDS or value == []:
                continue
            words.append(name)
            if isinstance(value, list):
                for item in value:
                    if item is not docstring:
                        self.value(item, words, inside)
                words.append(";")
            else:
                self.value(value, words, inside)
        words.append(")")

    def value(self, value: object, words: list[str], prefix: str) -> None:
        if isinstance(value, ast.AST):
            self.node(value, words, prefix)
        elif isinstance(value, int) and not isinstance(value, bool):
            # Decimal text of a long integer is refused by newer interpreters.
            words.append(f"int {value:x}")
        else:
            words.append(f"{type(value).__name__} {value!r}")

    def function(self, node: Function, words: list[str], prefix: str) -> None:
        name = f"{prefix}{node.name}"
        self.seen[name] += 1
        if self.seen[name] > 1:
            name += f"#{self.seen[name]}"
        docstring = docstring_of(node)
        words.append(f"({type(node).__name__} {node.name}")
        for part in (*node.decorator_list, node.args, node.returns, *getattr(node, "type_params", ())):
            self.value(part, words, prefix)
        if docstring is not None and not self.docstrings_inert:
            self.node(docstring, words, prefix)
        statements = [item for item in node.body if item is not docstring]
        body: list[str] = []
        block = Block(
            name=name,
            first=min([node.lineno, *(item.lineno for item in node.decorator_list)]),
            body=node.body[0].lineno,
            last=node.end_lineno or node.lineno,
            digest="",
        )
        self.bodies.append((block, body))
        for item in statements:
            self.node(item, body, f"{name}.<locals>.")
        # A decorator can ask whether it was given a generator, without running it.
        if "(Yield" in body or "(YieldFrom" in body:
            words.append("generator")
        words.append(")")


def _digest(words: list[str]) -> str:
    text = "\n".join(words)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
