"""`lockgate report ...` as people type it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from ci.cli import Parser
from ci.context import Context
from ci.errors import ReportError, UsageError
from ci.output import Output
from ci.report.command import add_arguments, run
from ci.report.model import Outcome, RunReport, TestResult
from ci.report.write import write_report
from ci.running.durations import read_durations
from ci.running.events import EventLog, Kind

pytestmark = pytest.mark.cpu

Make = Callable[..., RunReport]
Result = Callable[..., TestResult]
Call = Callable[..., tuple[int, str]]


@pytest.fixture
def call(tmp_path: Path) -> Call:
    """Give a function that runs the command in `tmp_path`; gives exit code and stdout."""

    def run_command(*words: object) -> tuple[int, str]:
        stream = io.StringIO()
        console = Console(file=stream, width=120, soft_wrap=True)
        out = Output(stdout=console, stderr=Console(file=io.StringIO()), github_summary=tmp_path / "summary.md")
        parser = Parser(prog="lockgate report")
        add_arguments(parser)
        context = Context(root=tmp_path, cwd=tmp_path, environ={}, out=out)
        return run(parser.parse_args([str(word) for word in words]), context), stream.getvalue()

    return run_command


@pytest.fixture
def stage(tmp_path: Path, report: Make, result: Result) -> Path:
    """Write the report of a red run of stage `multi_gpu`."""
    folder = tmp_path / ".lockgate" / "report" / "multi_gpu"
    bad = result("tests/test_a.py::test_b", outcome=Outcome.FAILED, reason="assert 1 == 2", output="all of it")
    write_report(folder, report(bad, result("tests/test_a.py::test_c"), exit_code=1))
    return folder


@pytest.mark.parametrize("how", ["stage", "folder", "file"])
def test_a_report_is_found_by_stage_folder_or_file(how: str, call: Call, stage: Path) -> None:
    name = {"stage": "multi_gpu", "folder": stage, "file": stage / "report.json"}[how]
    code, text = call("show", name)
    assert code == 0
    assert text.startswith("multi_gpu: red (exit code 1): 1 passed, 1 failed, 0 skipped, 0 not-run")
    assert "assert 1 == 2" in text
    assert "all of it" not in text


def test_the_whole_output_is_shown_when_asked_for(call: Call, stage: Path) -> None:
    assert "all of it" in call("show", stage, "-v")[1]


def test_other_formats_are_whole_documents(call: Call, stage: Path) -> None:
    assert json.loads(call("show", stage, "--format", "json")[1])["totals"]["failed"] == 1
    assert call("show", stage, "--format", "junit")[1].startswith("<?xml")
    assert call("show", stage, "--format", "markdown")[1].startswith("## ❌")


def test_shards_are_merged_with_their_verdict_durations_and_summary(
    call: Call, tmp_path: Path, report: Make, result: Result
) -> None:
    for index in (1, 2):
        write_report(tmp_path / f"s{index}", report(result(f"t{index}", duration=7.0), shard=f"{index}/2"))
    code, text = call("merge", "s1", "s2", "-o", "whole")
    assert code == 0
    assert text.startswith("multi_gpu: green: 2 passed")
    assert sorted(path.name for path in (tmp_path / "whole").iterdir()) == ["junit.xml", "report.json", "timeline.html"]
    assert read_durations(tmp_path / ".lockgate" / "durations.json")[0].kinds == {"cpu": {"t1": 7.0, "t2": 7.0}}
    assert "green" in (tmp_path / "summary.md").read_text()


def test_a_missing_shard_answers_red(call: Call, tmp_path: Path, report: Make, result: Result) -> None:
    write_report(tmp_path / "s1", report(result("t1"), shard="1/2"))
    code, text = call("merge", "s1", "-o", "whole")
    assert code == 1
    assert "missing shard(s): 2/2" in text


def test_an_unfinished_shard_answers_red(call: Call, tmp_path: Path, report: Make, result: Result) -> None:
    write_report(tmp_path / "s1", report(result("t1"), shard="1/1", exit_code=None, finished=0.0))
    assert call("merge", "s1", "-o", "whole")[0] == 1


def test_files_are_built_anew_from_the_logs_of_a_run_that_was_killed(call: Call, tmp_path: Path) -> None:
    folder = tmp_path / "r"
    with EventLog(folder / "events-main.jsonl", clock=lambda: 5.0) as log:
        log.write(Kind.SESSION, stage="cpu_gate")
        log.write(Kind.COLLECTED, tests=["a", "b"])
        log.write(Kind.FINISH, test="a", outcome=Outcome.PASSED, duration=1.0)
    assert call("show", "r")[1].startswith("cpu_gate: never finished: 1 passed, 0 skipped, 1 not-run")
    assert not (folder / "report.json").exists()
    code, text = call("build", "r")
    assert (code, text) == (0, "cpu_gate: never finished: 1 passed, 0 skipped, 1 not-run\n")
    assert (folder / "report.json").exists()


def test_the_timeline_goes_where_it_is_asked_to(call: Call, stage: Path, tmp_path: Path) -> None:
    assert call("timeline", "multi_gpu", "-o", "page.html") == (0, f"{tmp_path / 'page.html'}\n")
    assert (tmp_path / "page.html").read_text() == (stage / "timeline.html").read_text()


def test_building_from_a_file_is_a_usage_error(call: Call, stage: Path) -> None:
    with pytest.raises(UsageError, match="is no folder"):
        call("build", stage / "report.json")


@pytest.mark.parametrize("action", ["show", "timeline"])
def test_a_report_that_is_not_there_is_an_error(action: str, call: Call) -> None:
    with pytest.raises(ReportError, match="there is no report at"):
        call(action, "nowhere")


def test_a_damaged_report_says_how_to_make_it_anew(call: Call, stage: Path) -> None:
    (stage / "report.json").write_text('{"schema": "lockgate-report/1", "stage"')
    with pytest.raises(ReportError, match="is damaged") as caught:
        call("show", stage)
    assert "lockgate report build" in caught.value.hint


@pytest.mark.parametrize("words", [(), ("turn",), ("show",), ("show", "x", "--format", "pdf"), ("merge", "x")])
def test_wrong_words_are_usage_errors(words: tuple[str, ...], call: Call) -> None:
    with pytest.raises(UsageError):
        call(*words)
