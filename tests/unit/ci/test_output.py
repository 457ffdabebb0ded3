"""What goes to people and to GitHub."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ci.errors import ReportError, UsageError
from ci.output import Output, escape_annotation, format_github_value

pytestmark = pytest.mark.cpu


def make(tmp_path, **values):
    return Output(stdout=Console(file=io.StringIO(), width=80), stderr=Console(file=io.StringIO(), width=80), **values)


def test_outputs_and_summary_are_appended(tmp_path):
    out = make(tmp_path, github_output=tmp_path / "o", github_summary=tmp_path / "s")
    out.set_outputs({"decision": "subset", "tests": "a\nb"})
    out.set_outputs({"more": "1"})
    out.summary("# T\n")
    lines = (tmp_path / "o").read_text().splitlines()
    assert lines[0] == "decision=subset"
    assert lines[-1] == "more=1"
    assert (tmp_path / "s").read_text() == "# T\n\n"


@given(st.text())
def test_a_value_with_lines_cannot_close_its_own_heredoc(value):
    text = format_github_value("name", value, delimiter="lockgate-d")
    if "\n" in value or "\r" in value:
        assert text == f"name<<lockgate-d\n{value}\nlockgate-d\n"
    else:
        assert text == f"name={value}\n"


@given(st.text())
def test_an_annotation_stays_on_its_line(text):
    assert "\n" not in escape_annotation(text)
    assert "\r" not in escape_annotation(text)


def test_brackets_in_messages_are_no_markup(tmp_path):
    out = make(tmp_path)
    out.error(UsageError("found [red]x[/red]", hint="[bold]"))
    out.warn("[x]")
    text = out.stderr.file.getvalue()
    assert "found [red]x[/red]" in text
    assert "[bold]" in text
    assert "warning: [x]" in text


def test_annotations_appear_only_in_a_workflow_job(tmp_path):
    out = make(tmp_path, github_actions=True)
    out.warn("careful: 100%", path="a,b.py", line=3)
    assert "::warning file=a%2Cb.py,line=3::careful: 100%25\n" in out.stderr.file.getvalue()
    quiet = make(tmp_path)
    quiet.warn("careful")
    assert "::" not in quiet.stderr.file.getvalue()


def test_a_test_id_with_colons_is_no_emoji(capsys):
    Output.for_process().line("tests/test_x.py::y:end:z")
    assert capsys.readouterr().out == "tests/test_x.py::y:end:z\n"


def test_a_file_that_cannot_be_written_is_a_report_error(tmp_path):
    with pytest.raises(ReportError, match="cannot append"):
        make(tmp_path, github_output=tmp_path / "no" / "o").set_outputs({"a": "b"})
