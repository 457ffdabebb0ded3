# ruff: noqa: E501 - a row of a table is one line
"""Kinds of change that act when a module is imported, or on what importing left behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

pytestmark = [pytest.mark.cpu, pytest.mark.slow]

TEST_M = "import m\n\n\ndef test_m():\n    assert m.value() == 1\n"


def row(name: str, files: Mapping[str, Any], change: Mapping[str, Any], reason: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "files": {"tests/test_m.py": TEST_M, **files}, "change": change, "reason": reason, **more}


KINDS = [
    row(
        "constant",
        {"src/m.py": "X = 1\n\n\ndef value():\n    return X\n"},
        {"src/m.py": "X = 2\n\n\ndef value():\n    return X\n"},
        "module-level",
    ),
    row(
        "class attribute",
        {"src/m.py": "class C:\n    x = 1\n\n\ndef value():\n    return C.x\n"},
        {"src/m.py": "class C:\n    x = 2\n\n\ndef value():\n    return C.x\n"},
        "module-level",
    ),
    row(
        "function body",
        {"src/m.py": "def value():\n    return 1\n\n\ndef other():\n    return 1\n"},
        {"src/m.py": "def value():\n    return 2\n\n\ndef other():\n    return 1\n"},
        "body-executed",
    ),
    row(
        "body of an import-time decorator",
        {
            "src/deco.py": "def same(f):\n    def inner():\n        return f()\n    return inner\n",
            "src/m.py": "from deco import same\n\n\n@same\ndef value():\n    return 1\n",
        },
        {"src/deco.py": "def same(f):\n    def inner():\n        return f()\n    return lambda: 5\n"},
        "body-executed",
    ),
    row(
        "body of an import-time call",
        {
            "src/make.py": "def make():\n    return 1\n",
            "src/m.py": "from make import make\n\nX = make()\n\n\ndef value():\n    return X\n",
        },
        {"src/make.py": "def make():\n    return 2\n"},
        "body-executed",
    ),
    row(
        "registry filled by another module",
        {
            "src/registry.py": "SEEN = []\n\n\ndef register(f):\n    SEEN.append(f)\n    return f\n",
            "src/more.py": "from registry import register\n\n\n@register\ndef one():\n    pass\n",
            "src/m.py": "import more, registry\n\n\ndef value():\n    return len(registry.SEEN)\n",
        },
        {"src/more.py": "from registry import register\n\n\n@register\ndef one():\n    pass\n\n\n@register\ndef two():\n    pass\n"},
        "module-level",
    ),
    row(
        "body of __init_subclass__",
        {
            "src/base.py": "class Base:\n    def __init_subclass__(cls):\n        cls.x = 1\n",
            "src/m.py": "from base import Base\n\n\nclass Child(Base):\n    pass\n\n\ndef value():\n    return Child.x\n",
        },
        {"src/base.py": "class Base:\n    def __init_subclass__(cls):\n        cls.x = 2\n"},
        "body-executed",
    ),
    row(
        "body of a metaclass",
        {
            "src/base.py": "class Meta(type):\n    def __new__(m, n, b, d):\n        d['x'] = 1\n        return type.__new__(m, n, b, d)\n",
            "src/m.py": "from base import Meta\n\n\nclass C(metaclass=Meta):\n    pass\n\n\ndef value():\n    return C.x\n",
        },
        {"src/base.py": "class Meta(type):\n    def __new__(m, n, b, d):\n        d['x'] = 2\n        return type.__new__(m, n, b, d)\n"},
        "body-executed",
    ),
    row(
        "module __getattr__",
        {
            "src/lazy.py": "def __getattr__(name):\n    return 1\n",
            "src/m.py": "import lazy\n\n\ndef value():\n    return lazy.anything\n",
        },
        {"src/lazy.py": "def __getattr__(name):\n    return 2\n"},
        "body-executed",
    ),
    row(
        "star import gains a name",
        {
            "src/one.py": "def pick():\n    return 1\n",
            "src/two.py": "OTHER = 1\n",
            "src/m.py": "from one import *\nfrom two import *\n\n\ndef value():\n    return pick()\n",
        },
        {"src/two.py": "OTHER = 1\n\n\ndef pick():\n    return 2\n"},
        "module-level",
    ),
    row(
        "added function met by dir()",
        {
            "src/two.py": "def one():\n    return 1\n",
            "src/m.py": "import two\n\n\ndef value():\n    return len([n for n in dir(two) if n[0] != '_'])\n",
        },
        {"src/two.py": "def one():\n    return 1\n\n\ndef fresh():\n    return 2\n"},
        "reflection",
    ),
    row(
        "body that does not compile",
        {"src/m.py": "def value():\n    return 1\n\n\ndef other():\n    return 1\n"},
        {"src/m.py": "def value():\n    return 1\n\n\ndef other():\n    break\n"},
        "module-level",
    ),
    row(
        "body with a compiler's warning that is an error",
        {
            "src/m.py": "def value():\n    return 1\n\n\ndef other(x):\n    return x == 1\n",
            "tests/test_m.py": "import pytest\n\npytestmark = pytest.mark.filterwarnings('error')\n\n\ndef test_m():\n    import m\n    assert m.value() == 1\n\n\ndef test_n():\n    import m\n    assert m.other(1)\n",
        },
        {"src/m.py": "def value():\n    return 1\n\n\ndef other(x):\n    return x is 1\n"},
        "module-level",
    ),
    row(
        "default argument",
        {"src/m.py": "def value(x=1):\n    return x\n"},
        {"src/m.py": "def value(x=2):\n    return x\n"},
        "module-level",
    ),
    row(
        "dataclass field",
        {"src/m.py": "from dataclasses import dataclass\n\n\n@dataclass\nclass C:\n    x: int = 1\n\n\ndef value():\n    return C().x\n"},
        {"src/m.py": "from dataclasses import dataclass\n\n\n@dataclass\nclass C:\n    x: int = 2\n\n\ndef value():\n    return C().x\n"},
        "module-level",
    ),
    row(
        "enum member added",
        {"src/m.py": "from enum import Enum\n\n\nclass E(Enum):\n    A = 1\n\n\ndef value():\n    return len(E)\n"},
        {"src/m.py": "from enum import Enum\n\n\nclass E(Enum):\n    A = 1\n    B = 2\n\n\ndef value():\n    return len(E)\n"},
        "module-level",
    ),
    row(
        "annotation that is evaluated",
        {"src/m.py": "import typing\n\n\nclass C:\n    x: int\n\n\ndef value():\n    return 1 if typing.get_type_hints(C)['x'] is int else 2\n"},
        {"src/m.py": "import typing\n\n\nclass C:\n    x: str\n\n\ndef value():\n    return 1 if typing.get_type_hints(C)['x'] is int else 2\n"},
        "module-level",
    ),
    row(
        "method added to a subclass",
        {"src/m.py": "class A:\n    def x(self):\n        return 1\n\n\nclass B(A):\n    pass\n\n\ndef value():\n    return B().x()\n"},
        {"src/m.py": "class A:\n    def x(self):\n        return 1\n\n\nclass B(A):\n    def x(self):\n        return 2\n\n\ndef value():\n    return B().x()\n"},
        "module-level",
    ),
    row(
        "signature under autospec",
        {
            "src/m.py": "def send(a):\n    return a\n",
            "tests/test_m.py": "from unittest import mock\nimport m\n\n\ndef test_m():\n    mock.create_autospec(m.send)(1)\n",
        },
        {"src/m.py": "def send(a, b):\n    return a\n"},
        "module-level",
    ),
    row(
        "function renamed that is patched by name",
        {
            "src/m.py": "def send():\n    return 1\n",
            "tests/test_m.py": "def test_m(monkeypatch):\n    monkeypatch.setattr('m.send', int)\n",
        },
        {"src/m.py": "def post():\n    return 1\n"},
        "module-level",
    ),
    row(
        "docstring as help text",
        {
            "src/m.py": '"""Does one thing."""\nimport argparse\n\n\ndef value():\n    return argparse.ArgumentParser(description=__doc__).format_help()\n',
            "tests/test_m.py": "import m\n\n\ndef test_m():\n    assert 'one thing' in m.value()\n",
        },
        {"src/m.py": '"""Does another."""\nimport argparse\n\n\ndef value():\n    return argparse.ArgumentParser(description=__doc__).format_help()\n'},
        "module-level",
    ),
    row(
        "import by string",
        {
            "src/plugins/__init__.py": "",
            "src/plugins/a.py": "X = 1\n",
            "src/m.py": "import importlib\n\n\ndef value():\n    return importlib.import_module('plugins.' + 'a').X\n",
        },
        {"src/plugins/a.py": "X = 2\n"},
        "module-level",
    ),
    row(
        "plugin found by listing a package",
        {
            "src/plugins/__init__.py": "",
            "src/plugins/a.py": "",
            "src/m.py": "import pkgutil, plugins\n\n\ndef value():\n    return len(list(pkgutil.iter_modules(plugins.__path__)))\n",
        },
        {"src/plugins/quite_new.py": ""},
        "folder-listed",
    ),
    row(
        "lazily imported module",
        {"src/late.py": "X = 1\n", "src/m.py": "def value():\n    import late\n    return late.X\n"},
        {"src/late.py": "X = 2\n"},
        "module-level",
    ),
    row(
        "optional module that appears",
        {"src/m.py": "def value():\n    try:\n        import extra_speed\n    except ImportError:\n        return 1\n    return 2\n"},
        {"src/extra_speed.py": "X = 1\n"},
        "new-module",
    ),
    row(
        "module removed",
        {"src/late.py": "X = 1\n", "src/m.py": "import late\n\n\ndef value():\n    return late.X\n"},
        {"src/late.py": None},
        "module-level",
    ),
    row(
        "module renamed",
        {"src/late.py": "X = 1\n", "src/m.py": "import late\n\n\ndef value():\n    return late.X\n"},
        {"src/late.py": None, "src/later.py": "X = 1\n"},
        "module-level",
    ),
    row(
        "module shadows an installed one",
        {"src/m.py": "def value():\n    import colorsys\n    return int(hasattr(colorsys, 'rgb_to_hsv'))\n"},
        {"src/colorsys.py": "X = 1\n"},
        "shadows-module",
        sweeping=True,
    ),
    row(
        "package shadows a module",
        {"src/late.py": "X = 1\n", "src/m.py": "import late\n\n\ndef value():\n    return late.X\n"},
        {"src/late/__init__.py": "X = 2\n"},
        "shadows-module",
        sweeping=True,
    ),
    row(
        "package init constant",
        {
            "src/p/__init__.py": "X = 1\n",
            "src/p/sub.py": "import p\n\n\ndef value():\n    return p.X\n",
            "src/m.py": "from p.sub import value\n",
        },
        {"src/p/__init__.py": "X = 2\n"},
        "module-level",
    ),
    row(
        "memoised value",
        {
            "src/m.py": "import functools\n\n\ndef compute():\n    return 1\n\n\n@functools.cache\ndef value():\n    return compute()\n",
            "tests/test_m.py": "import m\n\n\ndef test_first():\n    assert m.value() == 1\n\n\ndef test_second():\n    assert m.value() == 1\n",
        },
        {"src/m.py": "import functools\n\n\ndef compute():\n    return 2\n\n\n@functools.cache\ndef value():\n    return compute()\n"},
        "body-executed",
    ),
    row(
        "memoised state behind a global",
        {
            "src/m.py": "STATE = {}\n\n\ndef load():\n    return 1\n\n\ndef value():\n    if 'x' not in STATE:\n        STATE['x'] = load()\n    return STATE['x']\n",
            "tests/test_m.py": "import m\n\n\ndef test_first():\n    assert m.value() == 1\n\n\ndef test_second():\n    assert m.value() == 1\n",
        },
        {"src/m.py": "STATE = {}\n\n\ndef load():\n    return 2\n\n\ndef value():\n    if 'x' not in STATE:\n        STATE['x'] = load()\n    return STATE['x']\n"},
        "body-executed",
    ),
    row(
        "symlinked package, body",
        {
            "real/pkg/__init__.py": "",
            "real/pkg/sub.py": "def value():\n    return 1\n",
            "src/linked": "-> ../real/pkg",
            "src/m.py": "from linked.sub import value\n",
        },
        {"real/pkg/sub.py": "def value():\n    return 2\n"},
        "body-executed",
    ),
    row(
        "symlinked package, constant",
        {
            "real/pkg/__init__.py": "X = 1\n",
            "src/linked": "-> ../real/pkg",
            "src/m.py": "import linked\n\n\ndef value():\n    return linked.X\n",
        },
        {"real/pkg/__init__.py": "X = 2\n"},
        "module-level",
    ),
    row(
        "wrapper that closes over import-time state",
        {
            "src/deco.py": "def counted(f):\n    state = [0]\n    def inner():\n        state[0] += 1\n        return f() + state[0] - 1\n    return inner\n",
            "src/m.py": "from deco import counted\n\n\n@counted\ndef value():\n    return 1\n",
        },
        {"src/deco.py": "def counted(f):\n    state = [3]\n    def inner():\n        state[0] += 1\n        return f() + state[0] - 1\n    return inner\n"},
        "body-executed",
    ),
    row(
        "__set_name__ of a descriptor",
        {
            "src/desc.py": "class D:\n    def __set_name__(self, owner, name):\n        owner.x = 1\n",
            "src/m.py": "from desc import D\n\n\nclass C:\n    d = D()\n\n\ndef value():\n    return C.x\n",
        },
        {"src/desc.py": "class D:\n    def __set_name__(self, owner, name):\n        owner.x = 2\n"},
        "body-executed",
    ),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind["name"]))
def test_no_failing_test_is_missed(kind: Mapping[str, Any], check_kind: Callable[[Mapping[str, Any]], None]) -> None:
    check_kind(kind)


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind["reason"] == "module-level"], ids=lambda kind: str(kind["name"])
)
def test_no_failing_test_is_missed_by_mentioned_names(
    kind: Mapping[str, Any], check_kind: Callable[[Mapping[str, Any]], None]
) -> None:
    check_kind({**kind, "mentioned": True})
