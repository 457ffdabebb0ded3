# ruff: noqa: E501 - a row of a table is one line
"""What git does to a repository between a recording and a plan, each with real git."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ci.impact import command as plan_command
from ci.impact.plan import Decision, Plan

pytestmark = [pytest.mark.cpu, pytest.mark.slow]

FILES = {
    "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["src"]\n[tool.lockgate.stages.unit]\nselect = ""\ndocumentation = ["*.md"]\n',
    ".gitignore": ".lockgate/\n__pycache__/\n.pytest_cache/\n",
    "src/a.py": "def a():\n    return 1\n",
    "src/b.py": "def b():\n    return 1\n",
    "tests/test_a.py": "import a\n\n\ndef test_a():\n    assert a.a() == 1\n",
    "tests/test_b.py": "import b\n\n\ndef test_b():\n    assert b.b() == 1\n",
}  # fmt: skip
A, B = "tests/test_a.py::test_a", "tests/test_b.py::test_b"
A2 = {"src/a.py": "def a():\n    return 2\n"}
B2 = {"src/b.py": "def b():\n    return 2\n"}


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory, make_project: Callable[[Path, Path], Any]) -> tuple[Any, str]:
    """Record one repository, once."""
    folder = tmp_path_factory.mktemp("template")
    project = make_project(folder / "repository", folder / "home")
    project.write(FILES)
    base = project.commit("base")
    project.record()
    return project, base


@pytest.fixture
def recorded(template: tuple[Any, str], tmp_path: Path) -> tuple[Any, Path, str]:
    """Give a repository of one's own, the manifest of its first commit, and that commit."""
    project, base = template
    root = tmp_path / "repository"
    shutil.copytree(project.root, root, symlinks=True)
    return type(project)(root=root, environ=project.environ), root / ".lockgate/manifest.sqlite", base


def chosen_of(plan: Plan) -> set[str]:
    return {item.id for item in plan.tests} & {A, B}


def branch(project: Any, name: str, start: str, files: dict[str, Any]) -> str:
    project.git("checkout", "--quiet", "-B", name, start)
    project.write(files)
    return str(project.commit(name))


def test_a_stale_branch_is_compared_with_where_it_left(recorded: tuple[Any, Path, str]) -> None:
    project, manifest, base = recorded
    main = branch(project, "main", base, B2)
    head = branch(project, "topic", base, A2)
    plan = project.plan("--manifest", str(manifest), "--base", main, "--head", head)
    assert (plan.merge_base, chosen_of(plan)) == (base, {A})


def test_a_merge_commit_is_compared_with_the_base_it_merged(recorded: tuple[Any, Path, str]) -> None:
    project, manifest, base = recorded
    main = branch(project, "main", base, B2)
    branch(project, "topic", base, A2)
    project.git("merge", "--quiet", "--no-edit", "main")
    plan = project.plan("--manifest", str(manifest), "--base", main, "--head", "HEAD")
    assert (plan.merge_base, chosen_of(plan)) == (main, {A})


def test_an_evil_merge_cannot_hide_a_change(recorded: tuple[Any, Path, str]) -> None:
    project, manifest, base = recorded
    main = branch(project, "main", base, {"notes.md": "x"})
    branch(project, "topic", base, {"more.md": "x"})
    project.git("merge", "--quiet", "--no-commit", "--no-ff", "main")
    project.write(A2)
    project.commit("merge")
    assert chosen_of(project.plan("--manifest", str(manifest), "--base", main, "--head", "HEAD")) == {A}


def clone(project: Any, tmp_path: Path, *arguments: str) -> Any:
    target = tmp_path / "clone"
    project.git("clone", "--quiet", *arguments, f"file://{project.root}", str(target))
    return type(project)(root=target, environ=project.environ)


def test_a_shallow_clone_decides_by_content_and_says_so(recorded: tuple[Any, Path, str], tmp_path: Path) -> None:
    project, manifest, base = recorded
    branch(project, "main", base, A2)
    shallow = clone(project, tmp_path, "--depth=1")
    plan = shallow.plan("--manifest", str(manifest), "--base", base, "--head", "HEAD")
    assert chosen_of(plan) == {A}
    assert any("shallow" in warning and "fetch-depth: 0" in warning for warning in plan.warnings)


def test_a_shallow_clone_with_other_settings_runs_everything(recorded: tuple[Any, Path, str], tmp_path: Path) -> None:
    project, manifest, base = recorded
    branch(project, "main", base, {"pyproject.toml": FILES["pyproject.toml"] + "timeout = 5\n"})
    shallow = clone(project, tmp_path, "--depth=1")
    plan = shallow.plan("--manifest", str(manifest), "--base", base, "--head", "HEAD")
    assert plan.decision is Decision.ALL
    assert list(plan.reasons) == ["baseline-unavailable"]
    assert "fetch more history" in plan.explanation


def test_a_force_pushed_base_decides_by_content(recorded: tuple[Any, Path, str], tmp_path: Path) -> None:
    project, manifest, base = recorded
    branch(project, "main", base, A2)
    fresh = clone(project, tmp_path)
    plan = fresh.plan("--manifest", str(manifest), "--base", "f" * 40, "--head", "HEAD")
    assert chosen_of(plan) == {A}
    assert any("not in this clone" in warning for warning in plan.warnings)


def test_a_manifest_of_another_repository_is_refused(recorded: tuple[Any, Path, str], tmp_path: Path) -> None:
    project, manifest, _ = recorded
    other = type(project)(root=tmp_path / "other", environ=project.environ)
    other.root.mkdir()
    other.git("init", "--quiet", "--initial-branch=main", ".")
    other.write({**FILES, "src/a.py": "def a():\n    return 1  # other\n"})
    other.commit("other")
    plan = other.plan("--manifest", str(manifest), "--base", "HEAD", "--head", "HEAD")
    assert plan.decision is Decision.ALL
    assert list(plan.reasons) == ["manifest-refused"]
    assert "source-known" in plan.explanation


def test_unrelated_histories_compare_the_trees(recorded: tuple[Any, Path, str]) -> None:
    project, manifest, base = recorded
    project.git("checkout", "--quiet", "--orphan", "lonely")
    project.write(A2)
    head = project.commit("lonely")
    plan = project.plan("--manifest", str(manifest), "--base", base, "--head", head)
    assert (plan.merge_base, chosen_of(plan)) == ("", {A})


def test_a_submodule_that_moves_runs_everything(project: Any, tmp_path: Path) -> None:
    inner = type(project)(root=tmp_path / "inner", environ=project.environ)
    inner.root.mkdir()
    inner.git("init", "--quiet", "--initial-branch=main", ".")
    inner.write({"x.txt": "1"})
    inner.commit("one")
    project.write(FILES)
    project.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", f"file://{inner.root}", "vendor")
    base = project.commit("base")
    manifest = project.record()
    inner.write({"x.txt": "2"})
    moved = inner.commit("two")
    vendor = type(project)(root=project.root / "vendor", environ=project.environ)
    vendor.git("fetch", "--quiet")
    vendor.git("checkout", "--quiet", moved)
    head = project.commit("move")
    plan = project.plan("--manifest", str(manifest), "--base", base, "--head", head)
    assert list(plan.reasons) == ["submodule-changed"]


def test_a_rename_with_and_without_similarity_is_removal_and_addition(recorded: tuple[Any, Path, str]) -> None:
    project, manifest, base = recorded
    branch(project, "exact", base, {"src/a.py": None, "src/renamed.py": FILES["src/a.py"]})
    plan = project.plan("--manifest", str(manifest), "--base", base, "--head", "HEAD")
    assert chosen_of(plan) == {A}
    assert "renamed to src/renamed.py" in project.lockgate_why("src/a.py", manifest, base)
    branch(project, "loose", base, {"src/a.py": None, "src/quite.py": "X = [1, 2, 3]\n"})
    assert chosen_of(project.plan("--manifest", str(manifest), "--base", base, "--head", "HEAD")) == {A}


def test_a_mode_change_selects_the_users_of_a_file(recorded: tuple[Any, Path, str]) -> None:
    project, manifest, base = recorded
    (project.root / "src/a.py").chmod(0o755)
    head = project.commit("mode")
    plan = project.plan("--manifest", str(manifest), "--base", base, "--head", head)
    assert (chosen_of(plan), {str(item.reason) for item in plan.tests}) == ({A}, {"mode-changed"})


def test_a_file_that_becomes_a_link_runs_everything(recorded: tuple[Any, Path, str]) -> None:
    project, manifest, base = recorded
    project.write({"src/a.py": None})
    project.write({"src/a.py": "-> b.py"})
    head = project.commit("link")
    plan = project.plan("--manifest", str(manifest), "--base", base, "--head", head)
    assert list(plan.reasons) == ["link-changed"]


@pytest.mark.parametrize("name", ["sp ace.py", "ümläut.py", 'tab\tquote".py', "new\nline.py", "-dash.py", "日本.py"])
def test_odd_names_are_read_as_they_are(recorded: tuple[Any, Path, str], name: str) -> None:
    project, manifest, base = recorded
    head = branch(project, "odd", base, {f"tools/{name}": "x = 1\n", **A2})
    plan = project.plan("--manifest", str(manifest), "--base", base, "--head", head)
    assert chosen_of(plan) == {A}
    assert {cause.path for cause in plan.causes} == {f"tools/{name}", "src/a.py"}


def test_a_name_that_is_not_utf8_is_no_obstacle(recorded: tuple[Any, Path, str]) -> None:
    project, manifest, base = recorded
    place = project.root.joinpath("tools", b"caf\xe9.py".decode("utf-8", "surrogateescape"))
    place.parent.mkdir()
    place.write_text("x = 1\n")
    head = branch(project, "bytes", base, A2)
    plan = project.plan("--manifest", str(manifest), "--base", base, "--head", head)
    assert chosen_of(plan) == {A}


def test_a_rename_of_case_alone_is_seen(recorded: tuple[Any, Path, str]) -> None:
    project, manifest, base = recorded
    project.git("mv", "src/a.py", "src/A.py")
    head = project.commit("case")
    plan = project.plan("--manifest", str(manifest), "--base", base, "--head", head)
    assert chosen_of(plan) == {A}


def test_line_ends_of_a_source_are_quiet_and_of_data_are_not(recorded: tuple[Any, Path, str]) -> None:
    project, manifest, base = recorded
    head = branch(project, "crlf", base, {"src/a.py": FILES["src/a.py"].replace("\n", "\r\n").encode()})
    plan = project.plan("--manifest", str(manifest), "--base", base, "--head", head)
    assert (plan.decision, str(plan.causes[0].reason)) == (Decision.NONE, "same-meaning")


def test_thousands_of_changed_files_are_all_seen(recorded: tuple[Any, Path, str]) -> None:
    project, manifest, base = recorded
    notes = {f"notes/{number}.md": f"{number}\n" for number in range(3500)}
    head = branch(project, "many", base, {**notes, **A2})
    plan = project.plan("--manifest", str(manifest), "--base", base, "--head", head)
    assert chosen_of(plan) == {A}
    assert len(plan.causes) == 3501


def test_the_work_tree_is_planned_with_what_git_does_not_know_yet(recorded: tuple[Any, Path, str]) -> None:
    project, manifest, base = recorded
    index = (project.root / ".git/index").read_bytes()
    objects = sorted(path.name for path in (project.root / ".git/objects").rglob("*"))
    assert project.plan("--manifest", str(manifest), "--base", "main").decision is Decision.NONE
    project.write({**A2, "tests/test_c.py": "def test_c():\n    pass\n", "ignored/__pycache__/x.py": "x"})
    plan = project.plan("--manifest", str(manifest), "--base", "main")
    assert {item.id for item in plan.tests} == {A, "tests/test_a.py", "tests/test_c.py", "tests/test_c.py::test_c"}
    assert plan.head.startswith(f"{base}+")
    assert (project.root / ".git/index").read_bytes() == index
    assert sorted(path.name for path in (project.root / ".git/objects").rglob("*")) == objects


def test_a_change_cannot_switch_its_own_gate_off(recorded: tuple[Any, Path, str]) -> None:
    project, manifest, base = recorded
    text = FILES["pyproject.toml"].replace('["*.md"]', '["**"]')
    head = branch(project, "sly", base, {"pyproject.toml": text, **A2})
    plan = project.plan("--manifest", str(manifest), "--base", base, "--head", head)
    assert list(plan.reasons) == ["policy-changed"]


def test_a_stage_that_only_the_change_knows_runs_whole(recorded: tuple[Any, Path, str]) -> None:
    project, manifest, _ = recorded
    text = FILES["pyproject.toml"].replace("stages.unit", "stages.other")
    project.write({"pyproject.toml": text})
    start = project.commit("other row")
    head = branch(project, "sly", start, {"pyproject.toml": FILES["pyproject.toml"], **A2})
    plan = project.plan("--manifest", str(manifest), "--base", start, "--head", head)
    assert plan.decision is Decision.ALL
    assert list(plan.reasons) == ["policy-changed"]


def test_a_folder_inside_a_repository_is_planned_by_its_own_paths(project: Any) -> None:
    inner = type(project)(root=project.root / "inner", environ=project.environ)
    inner.write(FILES)
    project.write({"outer.txt": "1"})
    base = project.commit("base")
    manifest = inner.record()
    inner.write(A2)
    head = project.commit("inside")
    assert chosen_of(inner.plan("--manifest", str(manifest), "--base", base, "--head", head)) == {A}
    project.write({"outer.txt": "2"})
    head = project.commit("outside")
    plan = inner.plan("--manifest", str(manifest), "--base", base, "--head", head)
    assert list(plan.reasons) == ["outside-root"]


def test_no_repository_is_an_error_with_a_hint(project: Any, tmp_path: Path) -> None:
    from ci.errors import GitError

    lonely = type(project)(root=tmp_path / "lonely", environ=project.environ)
    lonely.root.mkdir()
    with pytest.raises(GitError, match="not in a git work tree"):
        lonely.plan()
    shutil.rmtree(lonely.root)


def test_an_unknown_head_is_the_callers_mistake(recorded: tuple[Any, Path, str]) -> None:
    from ci.errors import GitError

    project, manifest, _ = recorded
    with pytest.raises(GitError, match="no commit of this clone"):
        project.plan("--manifest", str(manifest), "--head", "no-such-branch")


DAMAGE = {
    "absent": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-2000]),
    "one bit": lambda path: path.write_bytes(path.read_bytes()[:9000] + b"!" + path.read_bytes()[9001:]),
    "text": lambda path: path.write_text("not a manifest"),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_manifest_runs_everything_with_a_remedy(
    recorded: tuple[Any, Path, str], damage: Callable[[Path], Any]
) -> None:
    project, manifest, base = recorded
    damage(manifest)
    plan = project.plan("--manifest", str(manifest), "--base", base, "--head", "HEAD")
    assert plan.decision is Decision.ALL
    assert set(plan.reasons) <= {"manifest-refused", "no-manifest"}
    assert plan.explanation


def test_a_manifest_of_another_stage_is_refused(recorded: tuple[Any, Path, str]) -> None:
    project, manifest, base = recorded
    code, text = project.lockgate(
        plan_command, "cpu_gate", "--manifest", str(manifest), "--base", base, "--head", "HEAD"
    )
    assert code == 0
    assert "manifest-refused" in text
    assert "cpu_gate" in text


def test_force_and_no_manifest_need_no_evidence(recorded: tuple[Any, Path, str]) -> None:
    project, manifest, base = recorded
    forced = project.plan("--manifest", str(manifest), "--base", base, "--head", "HEAD", "--force", "--shards", "3")
    assert (list(forced.reasons), len(forced.shards)) == (["forced"], 3)
    assert list(project.plan("--base", base, "--head", "HEAD").reasons) == ["no-manifest"]


def test_an_unknown_stage_and_bad_arguments_are_the_callers_mistake(recorded: tuple[Any, Path, str]) -> None:
    from ci.errors import UsageError

    project, _, base = recorded
    for words in (("nowhere", "--base", base), ("../x",), ("unit", "--shards", "-1"), ("unit", "--format", "xml")):
        with pytest.raises(UsageError):
            project.lockgate(plan_command, *words)


def test_any_stage_name_and_marker_will_do_for_a_first_look(project: Any) -> None:
    project.write({path: text for path, text in FILES.items() if path != "pyproject.toml"})
    project.write({"pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["src"]\n'})
    base = project.commit("base")
    manifest = project.record()
    project.write(A2)
    head = project.commit("change")
    for words in ((), ("--marker", "not slow")):
        plan = project.plan("--manifest", str(manifest), "--base", base, "--head", head, *words)
        assert chosen_of(plan) == {A}
