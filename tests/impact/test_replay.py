# ruff: noqa: E501 - a row of a table is one line
"""Replay: recent commits planned, and really run, in real repositories."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ci.errors import GitError, ManifestError, UsageError
from ci.impact import replay_command

pytestmark = [pytest.mark.cpu, pytest.mark.slow]

FILES = {
    "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["src"]\n[tool.lockgate.stages.unit]\nselect = ""\ndocumentation = ["*.md"]\n',
    ".gitignore": ".lockgate*\n__pycache__/\n.pytest_cache/\n",
    "src/a.py": "def a():\n    return 1\n",
    "src/b.py": "def b():\n    return 1\n",
    "tests/test_a.py": "import a\n\n\ndef test_a():\n    assert a.a() == 1\n",
    "tests/test_b.py": "import b\n\n\ndef test_b():\n    assert b.b() == 1\n",
}  # fmt: skip


@pytest.fixture
def history(project: Any) -> Any:
    """Give a recorded repository with a quiet, a sweeping and a breaking commit on top."""
    project.write(FILES)
    project.commit("base")
    manifest = project.record()
    project.write({"README.md": "x"})
    project.commit("say more")
    project.write({"uv.lock": "x"})
    project.commit("lock")
    project.write({"src/a.py": "def a():\n    return 2\n"})
    project.commit("break | a")
    return project, manifest


def replay(project: Any, *words: str) -> tuple[int, dict[str, Any]]:
    code, text = project.lockgate(replay_command, "unit", *words, "--format", "json")
    # What is planned and run is announced on stderr, which is the same stream here.
    return code, json.loads(text[text.index('{\n  "schema"') :])


def test_each_commit_is_planned_against_its_parent(history: Any) -> None:
    project, manifest = history
    code, document = replay(project, "--last", "10", "--manifest", str(manifest))
    assert code == 0
    rows = {row["subject"]: row for row in document["commits"]}
    assert [rows[name]["decision"] for name in ("break | a", "lock", "say more")] == ["subset", "all", "none"]
    assert rows["break | a"]["share"] == 0.5
    assert rows["lock"]["reasons"] == {"environment-changed": 1}
    assert any("environment-changed" in line for line in document["summary"])


def test_verified_commits_are_really_run(history: Any) -> None:
    project, manifest = history
    code, document = replay(project, "--last", "1", "--manifest", str(manifest), "--verify", "1")
    row = document["commits"][0]
    assert (code, row["verified"], row["failed"], row["missed"]) == (0, True, 1, [])
    assert any(line.startswith("verified 1 commits: 1 tests failed, 0") for line in document["summary"])
    assert project.git("worktree", "list").count("\n") == 0


def test_a_missed_failure_is_named_and_red(history: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    project, manifest = history
    monkeypatch.setattr(replay_command, "find_missed", lambda plan, failed: sorted(failed))
    code, document = replay(project, "--last", "1", "--manifest", str(manifest), "--verify", "1")
    assert code == 1
    assert document["commits"][0]["missed"] == ["tests/test_a.py::test_a"]
    assert any(line.startswith("MISSED at") for line in document["summary"])


def test_tables_and_markdown_are_readable(history: Any) -> None:
    project, manifest = history
    for form in ("table", "markdown"):
        code, text = project.lockgate(
            replay_command, "unit", "--last", "3", "--manifest", str(manifest), "--format", form
        )
        assert code == 0
        assert "say more" in text
    assert "break \\| a" in text


def test_mistakes_are_errors_with_hints(history: Any) -> None:
    project, manifest = history
    with pytest.raises(UsageError, match="at least 1"):
        replay(project, "--last", "0", "--manifest", str(manifest))
    with pytest.raises(ManifestError, match="does not exist"):
        replay(project, "--last", "1", "--manifest", "nowhere.sqlite")
    with pytest.raises(ManifestError, match="nothing was published"):
        replay(project, "--last", "1")
    with pytest.raises(GitError, match="no commit of this clone"):
        replay(project, "--last", "1", "--manifest", str(manifest), "--branch", "nowhere")
