"""Reading: odd files become findings, the kinds of folders, remotes."""

from __future__ import annotations

import pytest

from ci.errors import WorkflowError
from ci.trust.read import MAX_BYTES, find_place, parse_remote, read_folder

pytestmark = pytest.mark.cpu

TEXT = "on: push\njobs:\n  a:\n    runs-on: ubuntu-latest\n    steps: [{run: ls}]\n"


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / ".github" / "workflows"
    path.mkdir(parents=True)
    (path / "good.yml").write_text(TEXT, encoding="utf-8")
    return path


def problems(tmp_path):
    found = read_folder(find_place(tmp_path))
    return {
        path.rpartition("/")[2]: [problem.message for problem in one.problems] for path, one in found.workflows.items()
    }, found


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no mapping"),
        (b"on: push\njobs: \xff\xfe\xfa\n", "not valid UTF-8"),
        (b"\x00\x01\x02", "YAML"),
        (b"x" * (MAX_BYTES + 1), "larger than"),
        (b"\xff\xfeo", "not valid UTF-16"),
    ],
)
def test_a_broken_file_is_a_problem_not_a_crash(tmp_path, folder, content, words):
    (folder / "odd.yml").write_bytes(content)
    found, _ = problems(tmp_path)
    assert words in found["odd.yml"][0]
    assert found["good.yml"] == []


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_byte_order_marks_are_understood(tmp_path, folder, encoding):
    (folder / "marked.yaml").write_bytes(TEXT.encode(encoding))
    found, _ = problems(tmp_path)
    assert found["marked.yaml"] == []


def test_folders_loops_and_other_files(tmp_path, folder):
    (folder / "folder.yml").mkdir()
    (folder / "README.md").write_text("x", encoding="utf-8")
    (folder / "loop.yml").symlink_to("loop.yml")
    (folder / "dangling.yml").symlink_to("nowhere.yml")
    found, read = problems(tmp_path)
    assert sorted(found) == ["dangling.yml", "good.yml", "loop.yml"]
    assert "cannot be read" in found["loop.yml"][0]
    assert "cannot be read" in found["dangling.yml"][0]
    assert read.notes == (".github/workflows/folder.yml is a folder, not a workflow",)


def test_a_repository_its_folders_and_a_bare_folder_are_accepted(tmp_path, folder):
    for place in (tmp_path, tmp_path / ".github", folder):
        assert list(read_folder(find_place(place)).workflows) == [".github/workflows/good.yml"]
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "x.yaml").write_text(TEXT, encoding="utf-8")
    assert list(read_folder(find_place(bare)).workflows) == ["x.yaml"]


def test_what_holds_no_workflow_is_an_error_with_a_hint(tmp_path):
    (tmp_path / "file.yml").write_text("", encoding="utf-8")
    (tmp_path / "empty").mkdir()
    for name, words in (("nowhere", "does not exist"), ("file.yml", "is a file"), ("empty", "no workflow file")):
        with pytest.raises(WorkflowError, match=words) as caught:
            find_place(tmp_path / name)
        assert "workflow" in caught.value.hint


def test_local_actions_and_those_that_they_use_are_read(tmp_path, folder):
    steps = "runs:\n  using: composite\n  steps:\n    - uses: ./tools/inner\n"
    for path, text in (("tools/outer/action.yml", steps), ("tools/inner/action.yaml", steps.replace("inner", "outer"))):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    steps = "      - uses: ./tools/outer\n      - uses: $/../../etc\n      - uses: ./gone\n"
    uses = f"on: push\njobs:\n  a:\n    runs-on: u\n    steps:\n{steps}"
    (folder / "uses.yml").write_text(uses, encoding="utf-8")
    assert sorted(read_folder(find_place(tmp_path)).actions) == ["tools/inner", "tools/outer"]


def test_called_workflows_of_a_bare_folder_are_found_by_name(tmp_path):
    (tmp_path / "outer.yml").write_text(
        "on: push\njobs:\n  a:\n    uses: ./.github/workflows/inner.yml\n", encoding="utf-8"
    )
    (tmp_path / "inner.yml").write_text(TEXT.replace("push", "workflow_call"), encoding="utf-8")
    from ci.trust.calls import called_workflow

    found = read_folder(find_place(tmp_path))
    called = called_workflow(found.workflows["outer.yml"].jobs["a"], found)
    assert called is found.workflows["inner.yml"]


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("git@example.org:owner/name.git", "owner/name"),
        ("https://example.org/owner/name", "owner/name"),
        ("https://user:secret@example.org/owner/name.git/", "owner/name"),
        ("ssh://git@example.org:22/owner/name.git", "owner/name"),
        ("/home/somebody/name", ""),
        ("", ""),
    ],
)
def test_the_name_is_taken_from_the_remote(url, name):
    assert parse_remote(url) == name
