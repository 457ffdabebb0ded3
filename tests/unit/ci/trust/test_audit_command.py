"""`lockgate audit` as a person runs it: formats, exit codes, wrong arguments."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from ci import cli
from ci.trust.rules import RULES

pytestmark = pytest.mark.cpu

OPEN = "on: pull_request\npermissions: {}\njobs:\n  test:\n    runs-on: gpu\n    steps: [{run: ls}]\n"
GUARD = "github.event.pull_request.head.repo.full_name == github.repository"
CLOSED = OPEN.replace("    runs-on", f"    if: {GUARD} && github.actor != 'dependabot[bot]'\n    runs-on")
STATES = {"runs", "maybe", "skipped", "waits", "invalid"}
EVENTS = {
    "fork-pr:opened",
    "fork-pr:synchronize",
    "fork-pr:reopened",
    "deleted-fork-pr:reopened",
    "fork-pr-from-default-name:opened",
    "internal-pr:opened",
    "dependabot-pr:opened",
    "push:default",
    "push:feature",
    "push:feat/x",
    "push:tag",
    "mirror:7",
    "mirror:123",
    "schedule",
    "dispatch:default",
    "dispatch:branch",
    "merge-group",
    "workflow-run:fork-pr",
    "workflow-run:fork-pr-from-default-name",
    "workflow-run:internal-pr",
    "workflow-run:push-default",
    "comment:NONE@fork-pr",
    "comment:CONTRIBUTOR@fork-pr",
    "comment:MEMBER@fork-pr",
    "comment:NONE@internal-pr",
    "issues:opened",
    "pr-target:fork",
    "pr-target:internal",
    "review:NONE@fork-pr",
    "release",
    "repository-dispatch",
}


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("", encoding="utf-8")

    def write(text, pyproject=""):
        (folder / "ci.yml").write_text(text, encoding="utf-8")
        (tmp_path / "pyproject.toml").write_text(pyproject, encoding="utf-8")
        return tmp_path

    return write


@pytest.fixture
def audit(capsys):
    def run(folder, *arguments, repo="owner/name"):
        named = ["--repo", repo] if repo else []
        code = cli.main(["audit", str(folder), *named, *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_the_json_is_the_contract(repository, audit):
    code, out, _ = audit(repository(OPEN), "--format", "json", "--default-branch", "main")
    document = json.loads(out)
    assert code == 1
    assert (document["repository"], document["default_branch"]) == ("owner/name", "main")
    assert {cell["event"] for cell in document["cells"]} == EVENTS
    for cell in document["cells"]:
        assert set(cell) == {
            "workflow",
            "job",
            "event",
            "state",
            "runner",
            "code",
            "token",
            "secrets",
            "environment",
            "why",
        }
        assert cell["state"] in STATES
        assert cell["workflow"] == ".github/workflows/ci.yml"
        assert isinstance(cell["secrets"], bool)
        assert cell["why"]
    (one,) = [cell for cell in document["cells"] if cell["event"] == "fork-pr:opened"]
    assert one["runner"] == {"kind": "self-hosted", "labels": ["gpu"]}
    assert (one["job"], one["state"], one["code"], one["token"], one["secrets"], one["environment"]) == (
        "test",
        "runs",
        "untrusted",
        {},
        False,
        None,
    )
    for finding in document["findings"]:
        assert set(finding) == {"rule", "severity", "workflow", "job", "event", "line", "message", "fix"}
        assert finding["severity"] in {"fail", "warn", "setting"}


def test_nothing_that_fails_is_exit_code_zero(repository, audit):
    code, out, _ = audit(repository(CLOSED), "--format", "json")
    assert code == 0
    assert {one["severity"] for one in json.loads(out)["findings"]} == {"setting"}


def test_the_table_says_it_all_in_a_hundred_columns(repository, audit):
    code, out, _ = audit(repository(OPEN), "--format", "table", "--out", str(repository(OPEN) / "table.txt"))
    text = (repository(OPEN) / "table.txt").read_text(encoding="utf-8")
    assert code == 1
    assert out == ""
    for words in ("Level A", "Level E", "●U", "untrusted-on-self-hosted", "gpu", "ci.yml:5", "fork-pr:opened", "fix:"):
        assert words in text
    assert max(len(line) for line in text.splitlines()) <= 100


def test_the_markdown_escapes_what_workflows_say(repository, audit):
    text = OPEN.replace("  test:", "  te_st:").replace("runs-on: gpu", "runs-on: '<b>|x'")
    code, out, _ = audit(repository(text), "--format", "markdown")
    assert code == 1
    assert "<b>" not in out
    assert "&lt;b&gt;\\|x" in out
    assert "| fail | untrusted-on-self-hosted |" in out


def test_the_sarif_names_rules_places_and_levels(repository, audit):
    code, out, _ = audit(repository(OPEN), "--format", "sarif")
    (run,) = json.loads(out)["runs"]
    assert code == 1
    assert {result["level"] for result in run["results"]} == {"error", "note"}
    assert {result["ruleId"] for result in run["results"]} == {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": ".github/workflows/ci.yml"}, "region": {"startLine": 5}}
    assert len({result["partialFingerprints"]["lockgateTrust/v1"] for result in run["results"]}) == len(run["results"])


def test_explain_shows_the_part_that_decided(repository, audit):
    code, out, _ = audit(repository(CLOSED), "--explain", "test", "fork-pr:opened")
    assert code == 0
    assert "skipped" in out
    assert f"decided by   {GUARD}  =  false" in out
    code, out, _ = audit(repository(CLOSED), "--explain", "ci.yml:test", "internal-pr:opened")
    assert "machine      self-hosted: gpu" in out
    assert "token        none" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--explain", "tst", "fork-pr:opened"], "did you mean test?"),
        (["--explain", "test", "fork-pr:open"], "did you mean fork-pr:opened"),
        (["--format", "yaml"], "yaml"),
        (["--repo", "name"], "expected owner/name"),
        (["--default-branch", ""], "--default-branch is empty"),
    ],
)
def test_wrong_arguments_are_usage_errors(repository, audit, arguments, words):
    code, _, err = audit(repository(CLOSED), *arguments)
    assert code == 2
    assert words in " ".join(err.split())


def test_a_folder_without_workflows_is_a_workflow_error(tmp_path, audit):
    code, _, err = audit(tmp_path)
    assert code == 8
    assert "no workflow file" in err


def test_the_policy_of_pyproject_and_of_a_file(repository, audit, tmp_path):
    accept = '[[tool.lockgate.trust.accept]]\nrule = "untrusted-on-self-hosted"\nreason = "x"\nexpires = 2999-01-01\n'
    more = "[tool.lockgate.trust]\ndependabot_on_self_hosted = true\n"
    root = repository(OPEN, more + accept)
    assert audit(root)[0] == 0
    policy = tmp_path / "policy.toml"
    policy.write_text("require_attestation = true\n", encoding="utf-8")
    code, out, _ = audit(root, "--policy", str(policy), "--format", "json")
    assert code == 1
    assert "as-edited" in {one["rule"] for one in json.loads(out)["findings"] if one["severity"] == "fail"}
    policy.write_text(more, encoding="utf-8")
    assert audit(root, "--policy", str(policy))[0] == 1


@pytest.mark.parametrize(("text", "words"), [("hosted = []", "did you mean"), ("a = [", "not valid TOML")])
def test_a_wrong_policy_is_a_config_error(repository, audit, tmp_path, text, words):
    policy = tmp_path / "policy.toml"
    policy.write_text(text, encoding="utf-8")
    code, _, err = audit(repository(CLOSED), "--policy", str(policy))
    assert code == 4
    assert words in err
    assert audit(repository(CLOSED), "--policy", "nowhere.toml")[0] == 4


def test_without_a_name_a_placeholder_stands_in_and_says_so(repository, audit):
    _, _, err = audit(repository(CLOSED), "--format", "json", repo="")
    assert "owner/name stands in" in " ".join(err.split())


def test_without_git_and_in_an_ascii_terminal_it_still_answers(repository):
    environ = {"PATH": "/nowhere", "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(Path(cli.__file__).parents[1])}
    command = [sys.executable, "-m", "ci", "audit", str(repository(CLOSED))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert "owner/name stands in" in " ".join(done.stderr.split())


def test_a_file_that_cannot_be_written_is_a_report_error(repository, audit, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    code, _, err = audit(repository(CLOSED), "--out", str(tmp_path / "file" / "x.txt"))
    assert code == 10
    assert "cannot write" in err


def test_every_rule_has_a_heading_a_test_and_data(root: Path):
    headings = (root / "docs" / "security.md").read_text(encoding="utf-8").splitlines()
    tests = Path(__file__).parent / "rules"
    for rule in RULES:
        name = rule.id.replace("-", "_")
        assert f"### {rule.id}" in headings
        assert rule.summary.endswith(".")
        assert (tests / f"test_{name}.py").is_file()
        assert (root / "ci" / "trust" / "rules" / f"{name}.py").is_file()
        for case in ("fires", "silent"):
            assert any((root / "tests" / "data" / "trust" / rule.id / case).iterdir())


def test_no_rule_module_is_left_out_of_the_registry(root: Path):
    modules = {path.stem for path in (root / "ci" / "trust" / "rules").glob("*.py")} - {"__init__", "base"}
    assert modules == {rule.id.replace("-", "_") for rule in RULES}
    assert len({rule.id for rule in RULES}) == len(RULES)


def test_the_table_can_be_drawn_for_everything_that_can_happen(audit_texts):
    from rich.console import Console

    from ci.trust.table import render_table

    found = audit_texts(
        OPEN, CLOSED, "on: push\njobs: {}\n", "on: workflow_call\njobs:\n  a:\n    runs-on: u\n    steps: [{run: ls}]\n"
    )
    console = Console(file=io.StringIO(), width=60)
    console.print(render_table(found.result, opened=["x now reaches gpu"], base="main"))
    assert "Newly open since main" in console.file.getvalue()
