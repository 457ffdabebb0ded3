"""`lockgate audit --diff` on a real repository: what a change newly opens."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from ci import cli

pytestmark = [pytest.mark.cpu, pytest.mark.slow]

GUARD = "github.event.pull_request.head.repo.full_name == github.repository && github.actor != 'dependabot[bot]'"
JOB = f"    if: {GUARD}\n    runs-on: gpu-pool\n    steps: [{{uses: ./tools/run}}]\n"
CLOSED = f"on: pull_request\npermissions: {{}}\njobs:\n  test:\n{JOB}"
OPEN = CLOSED.replace(f"    if: {GUARD}\n", "")
ACTION = "runs:\n  using: composite\n  steps: [{run: ls, shell: bash}]\n"


@pytest.fixture
def repository(tmp_path):
    def git(*arguments):
        environ = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        who = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True, env=environ)

    def commit(text):
        workflow = tmp_path / ".github" / "workflows" / "gpu.yml"
        workflow.parent.mkdir(parents=True, exist_ok=True)
        workflow.write_text(text, encoding="utf-8")
        action = tmp_path / "tools" / "run" / "action.yml"
        action.parent.mkdir(parents=True, exist_ok=True)
        action.write_text(ACTION, encoding="utf-8")
        git("add", ".")
        git("commit", "--quiet", "--allow-empty", "-m", "a change")

    git("init", "--quiet", "--initial-branch", "main")
    git("remote", "add", "origin", "git@example.org:owner/name.git")
    git("commit", "--quiet", "--allow-empty", "-m", "the first")
    return tmp_path, commit


def audit(capsys, folder, *arguments):
    code = cli.main(["audit", str(folder), *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_dropped_guard_is_said_in_a_sentence(repository, capsys):
    root, commit = repository
    commit(CLOSED)
    commit(OPEN)
    code, out, err = audit(capsys, root, "--diff", "HEAD~1", "--format", "json")
    assert code == 1
    assert "repository owner/name" in " ".join(err.split())
    diff = json.loads(out)["diff"]
    assert diff["base"] == "HEAD~1"
    assert (
        "fork PR opened now reaches gpu-pool with untrusted code (.github/workflows/gpu.yml: test, fork-pr:opened)"
        in diff["opened"]
    )
    code, out, _ = audit(capsys, root, "--diff", "HEAD~1")
    assert "Newly open since HEAD~1" in out


def test_a_change_that_opens_nothing_says_so(repository, capsys):
    root, commit = repository
    commit(CLOSED)
    commit(CLOSED + "# the end\n")
    code, out, _ = audit(capsys, root, "--diff", "HEAD~1", "--format", "json")
    assert code == 0
    assert json.loads(out)["diff"]["opened"] == []
    assert "Nothing is newly open" in audit(capsys, root, "--diff", "HEAD~1")[1]


def test_the_work_tree_is_compared_not_the_last_commit(repository, capsys):
    root, commit = repository
    commit(CLOSED)
    (root / ".github" / "workflows" / "gpu.yml").write_text(OPEN, encoding="utf-8")
    _, out, _ = audit(capsys, root / ".github" / "workflows", "--diff", "HEAD", "--format", "json")
    assert len(json.loads(out)["diff"]["opened"]) >= 3


def test_a_base_without_workflows_makes_everything_new(repository, capsys):
    root, commit = repository
    commit(OPEN)
    _, out, _ = audit(capsys, root, "--diff", "HEAD~1", "--format", "json")
    assert any("reaches gpu-pool" in line for line in json.loads(out)["diff"]["opened"])


@pytest.mark.parametrize("base", ["nowhere", "--help", "HEAD~99"])
def test_an_unknown_base_is_a_git_error(repository, capsys, base):
    root, commit = repository
    commit(CLOSED)
    code, _, err = audit(capsys, root, f"--diff={base}")
    assert code == 6
    assert "git knows no commit" in " ".join(err.split())


def test_a_folder_outside_git_is_a_git_error(tmp_path, capsys):
    (tmp_path / "ci.yml").write_text(CLOSED, encoding="utf-8")
    code, _, err = audit(capsys, tmp_path, "--repo", "owner/name", "--diff", "HEAD")
    assert code == 6
    assert "git" in err
