# ruff: noqa: E501 - a row of a table is one line
"""The rules, one row per kind of change, decided on hand-made evidence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ci.impact.decide import decide
from ci.impact.facts import Facts
from ci.impact.plan import Decision, Plan

pytestmark = pytest.mark.cpu

MakeFacts = Callable[..., Facts]

SRC = """
LIMIT = 1


def used(x):
    return x + LIMIT


def idle(x):
    return x
"""
FILES = {
    "src/pkg/__init__.py": "",
    "src/pkg/core.py": SRC,
    "src/pkg/other.py": "def alone():\n    return 2\n",
    "tests/conftest.py": "import pytest\n",
    "tests/test_a.py": "from pkg.core import used\n\n\ndef test_one():\n    assert used(1) == 2\n\n\ndef test_two():\n    pass\n",
    "tests/test_b.py": "from pkg.other import alone\n\n\ndef test_b():\n    assert alone() == 2\n",
    "tests/data/in.txt": "1",
    "README.md": "hello",
    "pyproject.toml": "[tool.ruff]\nline-length = 100\n[tool.pytest.ini_options]\nxfail_strict = true\n",
    "tool.sh": "echo",
}
A1, A2, B = "tests/test_a.py::test_one", "tests/test_a.py::test_two", "tests/test_b.py::test_b"
EVIDENCE: dict[str, Any] = {
    "tests": (A1, A2, B),
    "executed": {
        "src/pkg/core.py": {"used": [A1]},
        "src/pkg/other.py": {"alone": [B]},
        "tests/test_a.py": {"test_one": [A1], "test_two": [A2]},
        "tests/test_b.py": {"test_b": [B]},
    },
    "imported": {
        "src/pkg/__init__.py": [A1, A2, B],
        "src/pkg/core.py": [A1, A2],
        "src/pkg/other.py": [B],
        "tests/conftest.py": [A1, A2, B],
        "tests/test_a.py": [A1, A2],
        "tests/test_b.py": [B],
    },
    "opened": {"tests/data/in.txt": [A2]},
    "listed": {"tests/data": [B]},
    "edges": {
        "tests/test_a.py": ["src/pkg/core.py", "src/pkg/__init__.py"],
        "tests/test_b.py": ["src/pkg/other.py", "src/pkg/__init__.py"],
    },
}


def known(plan: Plan) -> set[str]:
    """Give the selected tests that the manifest knows."""
    return {item.id for item in plan.tests} & {A1, A2, B}


def edit(path: str, old: str, new: str) -> dict[str, str]:
    assert old in FILES[path]
    return {path: FILES[path].replace(old, new, 1)}


SUBSETS: list[tuple[str, dict[str, str | None], set[str], str]] = [
    ("body executed", edit("src/pkg/core.py", "x + LIMIT", "x - LIMIT"), {A1}, "body-executed"),
    ("body nobody executed", edit("src/pkg/core.py", "return x\n", "return -x\n"), {A1, A2}, "no-evidence"),
    ("constant", edit("src/pkg/core.py", "LIMIT = 1", "LIMIT = 2"), {A1, A2}, "module-level"),
    ("signature", edit("src/pkg/core.py", "def used(x)", "def used(x, y=1)"), {A1, A2}, "module-level"),
    ("function removed", edit("src/pkg/core.py", "def idle(x):\n    return x\n", ""), {A1, A2}, "module-level"),
    (
        "decorated function added",
        {"src/pkg/core.py": SRC + "\n@used\ndef new():\n    pass\n"},
        {A1, A2},
        "module-level",
    ),
    ("module removed", {"src/pkg/other.py": None}, {B}, "module-level"),
    ("test body", edit("tests/test_a.py", "== 2", "== 3"), {A1}, "test-changed"),
    ("test module level", {"tests/test_a.py": "import os\n" + FILES["tests/test_a.py"]}, {A1, A2}, "test-file"),
    ("conftest", {"tests/conftest.py": "import os\n"}, {A1, A2, B}, "conftest"),
    ("new conftest below", {"tests/data/conftest.py": "x = 1\n"}, {B}, "folder-listed"),
    ("package init", {"src/pkg/__init__.py": "x = 1\n"}, {A1, A2, B}, "module-level"),
    ("data read and listed", {"tests/data/in.txt": "2"}, {A2, B}, "data-read"),
    ("data file added to a listed folder", {"tests/data/new.txt": "2"}, {B}, "folder-listed"),
    ("data file removed", {"tests/data/in.txt": None}, {A2, B}, "data-read"),
]


def after(change: dict[str, str | None]) -> dict[str, str]:
    merged = {**FILES, **change}
    return {path: text for path, text in merged.items() if text is not None}


@pytest.mark.parametrize(("change", "tests", "reason"), [row[1:] for row in SUBSETS], ids=[row[0] for row in SUBSETS])
def test_a_change_selects_its_tests_with_its_reason(
    facts_of: MakeFacts, change: dict[str, str | None], tests: set[str], reason: str
) -> None:
    plan = decide(facts_of(FILES, after(change), **EVIDENCE))
    assert plan.decision is Decision.SUBSET
    assert known(plan) == tests
    assert reason in plan.reasons
    assert set(plan.skipped) == {A1, A2, B} - tests
    assert all(item.detail for item in plan.tests)


QUIET: list[tuple[str, dict[str, str | None], dict[str, Any], str]] = [
    ("comment", {"src/pkg/core.py": "# hi\n" + SRC}, {}, "same-meaning"),
    ("conftest comment", {"tests/conftest.py": "import pytest  # x\n"}, {}, "same-meaning"),
    ("readme", {"README.md": "other"}, {}, "documentation"),
    ("new documentation", {"docs/x/new.txt": "other"}, {}, "documentation"),
    ("python documentation", {"docs/conf.py": "x = 1\n"}, {}, "documentation"),
    ("unexecuted plain body", edit("src/pkg/core.py", "return x\n", "return -x\n"), {"plain": ("src/**",)}, "plain-unexecuted"),
    ("unused function", {"src/pkg/core.py": SRC + "\n\ndef fresh(a, b=1):\n    return a\n"}, {}, "unused-definition"),
    ("unimported module", {"tools/lonely.py": "x = 1\n"}, {}, "not-imported"),
    ("ruff settings", edit("pyproject.toml", "100", "120"), {}, "same-meaning"),
    ("declared data", {"assets/a.bin": "x"}, {"data": ("assets/**",)}, "data-unread"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "row", "reason"), [row[1:] for row in QUIET], ids=[row[0] for row in QUIET])
def test_a_quiet_change_selects_nothing_and_says_why(
    facts_of: MakeFacts, change: dict[str, str | None], row: dict[str, Any], reason: str
) -> None:
    plan = decide(facts_of(FILES, after(change), row=row, **EVIDENCE))
    assert (plan.decision, plan.tests) == (Decision.NONE, ())
    assert [str(cause.reason) for cause in plan.causes] == [reason]
    assert set(plan.skipped) == {A1, A2, B}


SWEEPING: list[tuple[str, dict[str, str | None], str]] = [
    ("pytest settings", edit("pyproject.toml", "xfail_strict = true", ""), "pytest-config"),
    ("new pytest.ini", {"pytest.ini": "[pytest]\n"}, "pytest-config"),
    ("empty pytest.ini", {"tests/pytest.ini": ""}, "pytest-config"),
    ("own row", {"pyproject.toml": FILES["pyproject.toml"] + "[tool.lockgate.stages.unit]\ntimeout = 5\n"}, "policy-changed"),
    ("requirement", {"pyproject.toml": FILES["pyproject.toml"] + "[project]\ndependencies = ['x']\n"}, "environment-changed"),
    ("lock", {"uv.lock": "x"}, "environment-changed"),
    ("requirements", {"requirements-dev.txt": "x"}, "environment-changed"),
    ("dockerfile", {"docker/Dockerfile": "FROM x"}, "environment-changed"),
    ("tox", {"tox.ini": "[testenv]\ndeps = x\n"}, "environment-changed"),
    ("noxfile", {"noxfile.py": "x = 1\n"}, "selector-changed"),
    ("workflow", {".github/workflows/a.yml": "on: push\n"}, "workflow-changed"),
    ("unknown file", {"tool.sh": "rm"}, "unknown-file"),
    ("unknown native", {"src/a.cpp": "int x;"}, "unknown-native"),
    ("shadows stdlib", {"tests/json.py": "x = 1\n"}, "shadows-module"),
    ("shadows sibling", {"src/pkg/core/__init__.py": "x = 1\n"}, "shadows-module"),
    ("outside", {"../lib/x.txt": "x"}, "outside-root"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "reason"), [row[1:] for row in SWEEPING], ids=[row[0] for row in SWEEPING])
def test_a_sweeping_change_runs_everything_and_says_why(
    facts_of: MakeFacts, change: dict[str, str | None], reason: str
) -> None:
    plan = decide(facts_of(FILES, after(change), **EVIDENCE))
    assert plan.decision is Decision.ALL
    assert list(plan.reasons) == [reason]
    assert reason in plan.explanation


def test_a_sweeping_reason_is_not_hidden_by_others(facts_of: MakeFacts) -> None:
    change = {**edit("src/pkg/core.py", "LIMIT = 1", "LIMIT = 2"), "tool.sh": "rm", "uv.lock": "x"}
    plan = decide(facts_of(FILES, after(change), **EVIDENCE))
    assert plan.reasons == {"environment-changed": 1, "unknown-file": 1}


def test_readers_of_source_text_see_comments(facts_of: MakeFacts) -> None:
    evidence = {**EVIDENCE, "opened": {"src/pkg/core.py": [B]}}
    plan = decide(facts_of(FILES, after({"src/pkg/core.py": "# hi\n" + SRC}), **evidence))
    assert known(plan) == {B}
    assert "source-read" in plan.reasons


@pytest.mark.parametrize("body", ["x + LIMIT if x is not 1 else 2", "x + LIMIT\n    break", "'\\d' + x"])
def test_a_body_that_the_compiler_complains_about_reaches_every_importer(facts_of: MakeFacts, body: str) -> None:
    plan = decide(facts_of(FILES, after(edit("src/pkg/core.py", "x + LIMIT", body)), **EVIDENCE))
    assert known(plan) == {A1, A2}


def test_a_new_test_file_is_named_with_its_tests(facts_of: MakeFacts) -> None:
    text = "class TestX:\n    def test_m(self): pass\n\ndef test_f(): pass\n"
    plan = decide(facts_of(FILES, after({"tests/test_new.py": text}), **EVIDENCE))
    wanted = ["tests/test_new.py", "tests/test_new.py::TestX::test_m", "tests/test_new.py::test_f"]
    assert [item.id for item in plan.tests] == wanted
    assert {str(item.reason) for item in plan.tests} == {"new-test"}


def test_a_new_test_in_a_known_file_is_named(facts_of: MakeFacts) -> None:
    text = FILES["tests/test_b.py"] + "\n\ndef test_c():\n    pass\n"
    plan = decide(facts_of(FILES, after({"tests/test_b.py": text}), **EVIDENCE))
    assert {item.id for item in plan.tests} == {B, "tests/test_b.py", "tests/test_b.py::test_c"}
    assert plan.selects("tests/test_b.py::test_c[1]")
    assert not plan.selects(A1)


def test_a_removed_test_file_that_only_collecting_asked_for_selects_nobody(facts_of: MakeFacts) -> None:
    evidence = {**EVIDENCE, "probed": {"tests/test_b.py": [A1, A2, B]}}
    assert known(decide(facts_of(FILES, after({"tests/test_b.py": None}), **evidence))) == set()
    evidence = {**EVIDENCE, "probed": {"tests/test_b.py": [A1]}}
    assert known(decide(facts_of(FILES, after({"tests/test_b.py": None}), **evidence))) == {A1}


def test_tests_of_a_removed_file_are_neither_run_nor_skipped(facts_of: MakeFacts) -> None:
    plan = decide(facts_of(FILES, after({"tests/test_b.py": None}), **EVIDENCE))
    assert plan.decision is Decision.NONE
    assert set(plan.skipped) == {A1, A2}


def test_a_new_module_selects_those_that_already_name_it(facts_of: MakeFacts) -> None:
    before = {**FILES, "src/pkg/other.py": "try:\n    from pkg import fast\nexcept ImportError:\n    fast = None\n"}
    plan = decide(facts_of(before, {**before, "src/pkg/fast.py": "x = 1\n"}, **EVIDENCE))
    assert known(plan) == {B}
    assert plan.reasons["new-module"] == 2


def test_an_added_function_that_is_named_reaches_every_importer(facts_of: MakeFacts) -> None:
    before = {
        **FILES,
        "tests/test_b.py": "import pkg.core\n\n\ndef test_b():\n    assert not hasattr(pkg.core, 'fresh')\n",
    }
    plan = decide(facts_of(before, {**before, "src/pkg/core.py": SRC + "def fresh():\n    pass\n"}, **EVIDENCE))
    assert known(plan) == {A1, A2}


def test_an_added_function_meets_code_that_looks_names_up(facts_of: MakeFacts) -> None:
    before = {**FILES, "tests/test_a.py": "import pkg.core\nNAMES = dir(pkg.core)\n"}
    plan = decide(facts_of(before, {**before, "src/pkg/core.py": SRC + "def fresh():\n    pass\n"}, **EVIDENCE))
    assert known(plan) == {A1, A2}
    assert "reflection" in plan.reasons


@pytest.mark.parametrize(
    ("facts", "reason"), [({"opaque": ("traces nothing",)}, "opaque"), ({"outcome": "failed"}, "not-passed")]
)
def test_uncertain_tests_run_with_any_code_but_not_with_documentation(
    facts_of: MakeFacts, facts: dict[str, Any], reason: str
) -> None:
    evidence = {**EVIDENCE, "tests": {A1: {}, A2: {}, B: facts}}
    plan = decide(facts_of(FILES, after(edit("src/pkg/core.py", "x + LIMIT", "x")), **evidence))
    assert known(plan) == {A1, B}
    assert plan.reasons[reason] >= 1
    assert decide(facts_of(FILES, after({"README.md": "x"}), **evidence)).decision is Decision.NONE


def test_native_sources_select_who_loaded_their_library(facts_of: MakeFacts) -> None:
    files = {**FILES, "csrc/a.cpp": "int a;", "csrc/CMakeLists.txt": "x"}
    evidence = {**EVIDENCE, "libraries": {"pkg/_native.so": (["csrc/a.cpp"], [A2])}}
    plan = decide(facts_of(files, {**files, "csrc/a.cpp": "int b;"}, **evidence))
    assert (known(plan), plan.reasons["native-loaded"]) == ({A2}, 1)
    assert known(decide(facts_of(files, {**files, "csrc/CMakeLists.txt": "y"}, **evidence))) == {A2}


def test_links_and_submodules_run_everything(facts_of: MakeFacts) -> None:
    for mode, reason in (("120000", "link-changed"), ("160000", "submodule-changed")):
        plan = decide(facts_of(FILES, after({"vendor": "x"}), modes_after={"vendor": mode}, **EVIDENCE))
        assert list(plan.reasons) == [reason]


def test_a_change_behind_a_link_reaches_users_of_the_link(facts_of: MakeFacts) -> None:
    evidence = {**EVIDENCE, "opened": {"linked/in.txt": [A1]}}
    plan = decide(facts_of(FILES, after({"tests/data/in.txt": "2"}), links={"linked": "tests/data"}, **evidence))
    assert known(plan) == {A1, B}


def test_a_mode_change_selects_users_or_everything(facts_of: MakeFacts) -> None:
    executable = {"tests/data/in.txt": "100755"}
    assert known(decide(facts_of(FILES, FILES, modes_after=executable, **EVIDENCE))) == {A2}
    plan = decide(facts_of(FILES, FILES, modes_after={"tool.sh": "100755"}, **EVIDENCE))
    assert list(plan.reasons) == ["unknown-file"]


def test_forgotten_reads_of_c_libraries_run_everything_unless_declared(facts_of: MakeFacts) -> None:
    files = {**FILES, "tests/data/x.sqlite": "1"}
    evidence = {**EVIDENCE, "opened": {"tests/data/x.sqlite": [A1]}}
    changed = {**files, "tests/data/x.sqlite": "2"}
    assert list(decide(facts_of(files, changed, **evidence)).reasons) == ["invisible-data"]
    assert known(decide(facts_of(files, changed, row={"data": ("*.sqlite",)}, **evidence))) == {A1, B}


class TestDrift:
    def test_an_untouched_test_keeps_exactly_its_dependencies(self, facts_of: MakeFacts) -> None:
        base = after(edit("src/pkg/other.py", "return 2", "return 3"))
        head = {**base, **edit("src/pkg/core.py", "x + LIMIT", "x - LIMIT")}
        assert known(decide(facts_of(base, head, recorded=FILES, **EVIDENCE))) == {A1}

    def test_drift_alone_selects_nothing(self, facts_of: MakeFacts) -> None:
        base = after(edit("src/pkg/core.py", "x + LIMIT", "x - LIMIT"))
        plan = decide(facts_of(base, {**base, "README.md": "x"}, recorded=FILES, **EVIDENCE))
        assert plan.decision is Decision.NONE

    def test_a_drifted_test_gets_the_static_closure_at_base(self, facts_of: MakeFacts) -> None:
        base = after(edit("src/pkg/core.py", "return x + LIMIT", "from pkg.other import alone\n    return alone() + x"))
        head = {**base, **edit("src/pkg/other.py", "return 2", "return 3")}
        plan = decide(facts_of(base, head, recorded=FILES, **EVIDENCE))
        assert known(plan) == {A1, B}
        assert plan.reasons["drifted"] == 1

    def test_a_drifted_test_gets_the_unexecuted_rest_of_its_closure(self, facts_of: MakeFacts) -> None:
        base = after(edit("src/pkg/core.py", "x + LIMIT", "idle(x)"))
        evidence = {**EVIDENCE, "executed": {**EVIDENCE["executed"], "src/pkg/core.py": {"used": [A1], "idle": [A2]}}}
        text = base["src/pkg/core.py"].replace("return x\n", "return -x\n")
        plan = decide(facts_of(base, {**base, "src/pkg/core.py": text}, recorded=FILES, **evidence))
        assert known(plan) == {A1, A2}

    def test_a_drifted_test_may_read_any_data(self, facts_of: MakeFacts) -> None:
        base = after(edit("src/pkg/other.py", "return 2", "return 3"))
        plan = decide(facts_of(base, {**base, "tests/data/in.txt": "9"}, recorded=FILES, **EVIDENCE))
        assert known(plan) == {A2, B}

    def test_a_sweeping_drift_touches_everyone_but_not_documentation(self, facts_of: MakeFacts) -> None:
        base = after({"uv.lock": "x"})
        head = {**base, **edit("src/pkg/other.py", "return 2", "return 3")}
        assert known(decide(facts_of(base, head, recorded=FILES, **EVIDENCE))) == {B}
        assert decide(facts_of(base, {**base, "README.md": "x"}, recorded=FILES, **EVIDENCE)).decision is Decision.NONE
        data = decide(facts_of(base, {**base, "tests/data/in.txt": "3"}, recorded=FILES, **EVIDENCE))
        assert known(data) == {A1, A2, B}

    def test_tests_born_since_the_manifest_run(self, facts_of: MakeFacts) -> None:
        base = after({"tests/test_new.py": "def test_x():\n    pass\n"})
        head = {**base, **edit("src/pkg/other.py", "return 2", "return 3")}
        plan = decide(facts_of(base, head, recorded=FILES, **EVIDENCE))
        assert {"tests/test_new.py::test_x", B} <= {item.id for item in plan.tests}
