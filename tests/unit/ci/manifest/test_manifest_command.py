"""`lockgate manifest` as its users meet it: wrong words, broken files, good answers."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ci.cli import build_parser, find_command
from ci.context import Context
from ci.errors import GitError, ManifestError, UsageError
from ci.manifest import command
from ci.manifest.model import Finding, Manifest
from ci.manifest.store import write_manifest

pytestmark = pytest.mark.cpu

Said = tuple[Context, io.StringIO]


def run(context: Context, *words: str) -> int:
    """Run `lockgate manifest WORDS`."""
    options = build_parser(find_command(["manifest"])).parse_args(["manifest", *words])
    return command.run(options, context)


@pytest.fixture
def file(manifest: Manifest, tmp_path: Path) -> str:
    """Give the path of a good manifest."""
    write_manifest(manifest, tmp_path / "m.sqlite")
    return "m.sqlite"


def test_check_says_good_or_names_what_does_not_hold(context: Said, file: str) -> None:
    assert run(context[0], "check", file) == 0
    assert "good" in context[1].getvalue()
    assert run(context[0], "check", file, "--stage", "gpu_smoke", "--profile", "h100") == 1
    assert "FAILED stage: found cpu_gate, expected gpu_smoke" in context[1].getvalue()
    assert "2 check(s) do not hold" in context[1].getvalue()


def test_check_of_a_broken_file_is_an_error_with_a_remedy(context: Said, tmp_path: Path) -> None:
    (tmp_path / "bad.sqlite").write_bytes(b"SQLite format 3\0" + b"\0" * 5000)
    with pytest.raises(ManifestError, match="holds no content hash") as error:
        run(context[0], "check", "bad.sqlite")
    assert error.value.hint
    with pytest.raises(UsageError, match="there is no file"):
        run(context[0], "check", "absent.sqlite")


def test_show_answers_for_the_whole_for_a_test_and_for_a_path(context: Said, file: str) -> None:
    assert run(context[0], "show", file) == 0
    assert "core: coverage-ctrace" in context[1].getvalue()
    assert run(context[0], "show", file, "--test", "tests/test_a.py::test_1") == 0
    assert "src/a.py::f" in context[1].getvalue()
    assert run(context[0], "show", file, "--path", "csrc/a.c") == 0
    assert "build/lib.so" in context[1].getvalue()


def test_show_as_json_is_json(context: Said, file: str) -> None:
    assert run(context[0], "show", file, "--path", "src/a.py", "--format", "json") == 0
    value = json.loads(context[1].getvalue())
    assert value["executed by"] == ["f: 2 tests"]
    assert value["known"] == "yes"


def test_show_of_an_unknown_test_names_near_ones(context: Said, file: str) -> None:
    with pytest.raises(UsageError, match="knows no test") as error:
        run(context[0], "show", file, "--test", "test_2")
    assert "tests/test_a.py::test_2" in error.value.hint
    with pytest.raises(UsageError, match="two questions"):
        run(context[0], "show", file, "--test", "a", "--path", "b")


@pytest.mark.parametrize(
    "words", [[], ["brew"], ["build"], ["build", "s", "--out", "x"], ["publish"], ["escapes", "s"]]
)
def test_wrong_words_are_usage_errors(context: Said, words: list[str]) -> None:
    with pytest.raises(UsageError):
        run(context[0], *words)


def test_build_without_records_says_what_to_run(context: Said, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no folder"):
        run(context[0], "build", "cpu_gate", "--run", "absent", "--out", "m")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ManifestError, match="no records"):
        run(context[0], "build", "cpu_gate", "--run", "empty", "--out", "m")
    (tmp_path / "empty" / "journal-1.jsonl").write_text('{"start":{"role":"child","label":"","argv":[],"core":"x"}}\n')
    with pytest.raises(ManifestError, match="no pytest session"):
        run(context[0], "build", "cpu_gate", "--run", "empty", "--out", "m")


def test_build_outside_a_git_tree_says_so(context: Said, tmp_path: Path) -> None:
    (tmp_path / "rec").mkdir()
    (tmp_path / "rec" / "journal-1.jsonl").write_text('{"start":{"role":"session","core":"coverage-ctrace"}}\n')
    with pytest.raises(GitError, match="git tree"):
        run(context[0], "build", "cpu_gate", "--run", "rec", "--out", "m")


def test_an_unfinished_run_is_built_marked_and_never_published(context: Said, tmp_path: Path) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    (tmp_path / "a.py").write_text("x = 1\n")
    for words in (["init", "-q"], ["add", "a.py"], ["commit", "-q", "-m", "x"]):
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True)
    (tmp_path / "rec").mkdir()
    (tmp_path / "rec" / "journal-1.jsonl").write_text('{"start":{"role":"session","core":"coverage-ctrace"}}\n')
    place = replace(context[0], environ={"PATH": "/usr/bin:/bin", "LOCKGATE_PUBLISH": "1"})
    assert run(place, "build", "cpu_gate", "--run", "rec", "--out", "m.sqlite") == 1
    said = context[1].getvalue()
    for check in ("run-finished", "canary", "source-commit", "not-empty"):
        assert f"FAILED {check}" in said
    assert "INCOMPLETE" in said
    assert run(place, "check", "m.sqlite") == 1
    with pytest.raises(ManifestError, match="not publishable"):
        run(place, "publish", "m.sqlite", "--store", "store")


def test_publish_and_restore(context: Said, file: str, tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="only the publishing job"):
        run(context[0], "publish", file, "--store", "store")
    allowed = replace(context[0], environ={"LOCKGATE_PUBLISH": "1"})
    assert run(allowed, "publish", file, "--store", "store") == 0
    assert run(context[0], "restore", "cpu_gate", "--store", "store", "--out", "back.sqlite") == 0
    assert (tmp_path / "back.sqlite").is_file()
    assert run(context[0], "restore", "gpu_smoke", "--store", "store", "--out", "none.sqlite") == 0
    assert "the plan will run everything" in context[1].getvalue()
    assert not (tmp_path / "none.sqlite").exists()


def test_escapes_are_red_and_named(context: Said, tmp_path: Path) -> None:
    (tmp_path / "plans").mkdir()
    plan = {"stage": "gpu_smoke", "head": "c" * 40, "skipped": ["tests/t.py::test_x"]}
    (tmp_path / "plans" / "1.json").write_text(json.dumps(plan))
    report = {"results": [{"id": "tests/t.py::test_x", "outcome": "failed"}]}
    (tmp_path / "report.json").write_text(json.dumps(report))
    words = ("escapes", "gpu_smoke", "--report", "report.json", "--plans", "plans")
    assert run(context[0], *words) == 1
    assert "ESCAPE tests/t.py::test_x (failed): skipped at cccccccccccc" in context[1].getvalue()
    report["results"][0]["outcome"] = "passed"
    (tmp_path / "report.json").write_text(json.dumps(report))
    assert run(context[0], *words) == 0
    (tmp_path / "report.json").write_text("{}")
    with pytest.raises(ManifestError, match="not a report"):
        run(context[0], *words)


def test_a_problem_that_only_warns_does_not_refuse(
    context: Said, build: Callable[..., Manifest], header: Any, tmp_path: Path
) -> None:
    problem = Finding(check="skips-declared", found="1", expected="0", hint="declare", is_warning=True)
    write_manifest(build(header=header(is_publishable=False)), tmp_path / "m.sqlite", problems=[problem])
    assert run(context[0], "check", "m.sqlite") == 0
    assert "skips-declared" in context[1].getvalue()
