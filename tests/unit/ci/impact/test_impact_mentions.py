# ruff: noqa: E501 - a row of a table is one line
"""Mentioned names: what a module-level change can be narrowed to, and when it cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ci.impact.decide import decide
from ci.impact.facts import Facts
from ci.impact.mentions import changed_names

pytestmark = pytest.mark.cpu

BEFORE = """
import os

LIMIT = 1
DOUBLE = [LIMIT, 2]
OTHER = 5


def limited(x, top=LIMIT):
    return x


def free(x):
    return x


def send(a):
    return a
"""


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("OTHER = 5", "OTHER = 6", {"OTHER"}),
        ("LIMIT = 1", "LIMIT = 2", {"LIMIT", "DOUBLE", "limited"}),
        ("def send(a):", "def send(a, b):", {"send"}),
        ("def free(x):", "def freed(x):", {"free", "freed"}),
        ("OTHER = 5", "", {"OTHER"}),
        ("OTHER = 5", "OTHER = 5\nNEW: int = 3", {"NEW"}),
        ("OTHER = 5", "OTHER = os.getcwd()", set()),
        ("OTHER = 5", "OTHER = LATER", set()),
        ("OTHER = 5", "OTHER = free", set()),
        ("OTHER = 5", "OTHER = LIMIT + 1", set()),
        ("OTHER = 5", "OTHER = 60 * 60", {"OTHER"}),
        ("OTHER = 5", "OTHER = {LIMIT: 1}", set()),
        ("def send(a):", "def send(a: Unknown):", set()),
        ("OTHER = 5", "OTHER = 5\nprint()", set()),
        ("def free(x):", "@send\ndef free(x):", set()),
        ("import os", "import sys", set()),
        ("OTHER = 5", "OTHER = 5\nclass C: pass", set()),
        ("OTHER = 5", "OTHER = 5\ndef __getattr__(n): pass", set()),
        ("OTHER = 5", "OTHER = 5\n__all__ = []", set()),
        ("LIMIT = 1\nDOUBLE = [LIMIT, 2]", "DOUBLE = 0\nLIMIT = 1", {"DOUBLE"}),
        ("LIMIT = 1", "", set()),
        (
            "def free(x):\n    return x\n\n\ndef send(a):\n    return a\n",
            "def send(a):\n    return a\n\n\ndef free(x):\n    return x\n",
            set(),
        ),
        ("OTHER = 5", "(", set()),
    ],
)
def test_changed_names_are_found_or_given_up(old: str, new: str, names: set[str]) -> None:
    assert old in BEFORE
    assert changed_names(BEFORE.encode(), BEFORE.replace(old, new, 1).encode()).names == names


def test_a_name_that_an_effect_uses_is_given_up() -> None:
    text = BEFORE + "\nprint(LIMIT)\n"
    assert not changed_names(text.encode(), text.replace("LIMIT = 1", "LIMIT = 2").encode()).names


def test_a_removed_name_breaks_whoever_imports_it(facts_of: Callable[..., Facts]) -> None:
    assert changed_names(BEFORE.encode(), BEFORE.replace("OTHER = 5", "").encode()).removed == {"OTHER"}
    plan = decide(facts_of(FILES, {**FILES, "src/m.py": BEFORE.replace("OTHER = 5", "")}, **EVIDENCE))
    assert {item.id for item in plan.tests} & {USES, IDLE, LOOK, TOP} == {USES, IDLE, LOOK}


FILES = {
    "src/m.py": BEFORE,
    "src/user.py": "from m import OTHER as renamed\n\n\ndef uses():\n    return renamed\n\n\ndef idle():\n    return 1\n",
    "src/dyn.py": "import m\n\n\ndef look(name):\n    return getattr(m, name)\n",
    "src/top.py": "import m\n\nCOPY = m.DOUBLE\n",
    "tests/test_x.py": "def test_uses(): pass\ndef test_idle(): pass\ndef test_look(): pass\ndef test_top(): pass\n",
}
USES, IDLE, LOOK, TOP = (f"tests/test_x.py::test_{name}" for name in ("uses", "idle", "look", "top"))
EVIDENCE: dict[str, Any] = {
    "tests": (USES, IDLE, LOOK, TOP),
    "executed": {"src/user.py": {"uses": [USES], "idle": [IDLE]}, "src/dyn.py": {"look": [LOOK]}},
    "imported": {"src/m.py": [USES, IDLE, LOOK, TOP], "src/user.py": [USES, IDLE], "src/dyn.py": [LOOK], "src/top.py": [TOP]},
    "row": {"mentioned_names": True},
}  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "tests"),
    [
        ("OTHER = 5", "OTHER = 6", {USES, LOOK}),
        ("LIMIT = 1", "LIMIT = 2", {LOOK, TOP}),
        ("def send(a):", "def send(a, b):", {LOOK}),
        ("import os", "import sys", {USES, IDLE, LOOK, TOP}),
    ],
)
def test_only_users_of_a_changed_name_run(facts_of: Callable[..., Facts], old: str, new: str, tests: set[str]) -> None:
    after = {**FILES, "src/m.py": BEFORE.replace(old, new, 1)}
    plan = decide(facts_of(FILES, after, **EVIDENCE))
    assert {item.id for item in plan.tests} & {USES, IDLE, LOOK, TOP} == tests


def test_the_key_is_off_by_default(facts_of: Callable[..., Facts]) -> None:
    after = {**FILES, "src/m.py": BEFORE.replace("OTHER = 5", "OTHER = 6")}
    plan = decide(facts_of(FILES, after, **{**EVIDENCE, "row": {}}))
    assert {USES, IDLE, LOOK, TOP} <= {item.id for item in plan.tests}
