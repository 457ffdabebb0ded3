"""JUnit, timeline, Markdown and terminal hold one entry per test, whatever text the tests print."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ci.errors import ReportError
from ci.report.junit import clean, render_junit, split_id
from ci.report.markdown import code, escape, render_markdown
from ci.report.model import CheckResult, Outcome, Problem, RunReport, TestResult
from ci.report.terminal import headline, render_report
from ci.report.timeline import OUTPUT_LIMIT, layout_lanes, list_ticks, pack_rows, render_timeline
from ci.report.write import read_report, write_report, write_whole

pytestmark = pytest.mark.cpu

Make = Callable[..., RunReport]
Result = Callable[..., TestResult]


def read_junit(report: RunReport) -> ET.Element:
    """Parse the JUnit document as a CI service does."""
    suite = ET.fromstring(render_junit(report)).find("testsuite")
    assert suite is not None
    return suite


def test_junit_has_one_testcase_per_test_and_its_counts_agree(rich_report: RunReport) -> None:
    suite = read_junit(rich_report)
    cases = suite.findall("testcase")
    assert len(cases) == len(rich_report.results) == int(suite.attrib["tests"])
    found = {kind: sum(case.find(kind) is not None for case in cases) for kind in ("failure", "error", "skipped")}
    assert found == {
        "failure": int(suite.attrib["failures"]),
        "error": int(suite.attrib["errors"]),
        "skipped": int(suite.attrib["skipped"]),
    }
    assert found == {"failure": 1, "error": 6, "skipped": 2}


def test_junit_holds_the_ranks_and_the_output(rich_report: RunReport) -> None:
    case = read_junit(rich_report).findall("testcase")[-1]
    assert (case.attrib["classname"], case.attrib["name"]) == ("tests.test_a.C", "test_ranks")
    properties = {row.attrib["name"]: row.attrib["value"] for row in case.iter("property")}
    assert properties["lockgate.rank0"] == "passed 1.000s GPU-0"
    assert properties["lockgate.rank1"] == "crashed 0.500s GPU-1"
    error = case.find("error")
    assert error is not None
    assert error.attrib["type"] == "crashed"
    assert "</script><b>" in (error.text or "")


def test_junit_tells_a_skip_that_nobody_declared(report: Make, result: Result) -> None:
    rows = [
        result("a", outcome=Outcome.SKIPPED, skip_class="clickhouse", declared=declared) for declared in (True, False)
    ]
    kinds = [row.attrib["type"] for row in read_junit(report(*rows)).iter("skipped")]
    assert kinds == ["clickhouse", "undeclared: clickhouse"]


def test_junit_counts_checks_and_infrastructure(report: Make) -> None:
    suite = read_junit(
        report(
            infrastructure=(Problem(check="nvml", message="missing", hint="install"),),
            checks=(
                CheckResult(name="ruff", command=("ruff",), passed=False, output="E1"),
                CheckResult(name="mypy", command=("mypy",), passed=True),
            ),
        )
    )
    assert (suite.attrib["tests"], suite.attrib["failures"], suite.attrib["errors"]) == ("3", "1", "1")


@given(st.text())
def test_any_text_becomes_xml_that_can_be_read(text: str) -> None:
    row = TestResult(id=f"a.py::t[{text}]", outcome=Outcome.FAILED, reason=text, output=text)
    suite = read_junit(RunReport(stage=text, results=(row,), notes=(text,)))
    assert len(suite.findall("testcase")) == 1


def test_characters_that_xml_cannot_hold_are_shown_by_number() -> None:
    assert clean("a\x00b\ud800c\ufffe") == "a#x00b#xD800c#xFFFE"


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("tests/a/test_b.py::test_c", ("tests.a.test_b", "test_c")),
        ("tests/test_b.py::C::test_d[x/y::z.py]", ("tests.test_b.C", "test_d[x/y::z.py]")),
        ("tests/test_gone.py", ("tests.test_gone", "")),
    ],
)
def test_names_are_split_as_pytest_does(node: str, expected: tuple[str, str]) -> None:
    assert split_id(node) == expected


class Page(HTMLParser):
    """Collects what a browser would: elements, the data, and whatever would leave the page."""

    def __init__(self) -> None:
        super().__init__()
        self.bars: list[dict[str, str | None]] = []
        self.marks = 0
        self.sources: list[str] = []
        self.tags: list[str] = []
        self.data = ""
        self._in_data = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append(tag)
        words = (values.get("class") or "").split()
        if "t" in words:
            self.bars.append(values)
        self.marks += "mark" in words
        self._in_data = values.get("id") == "data"
        self.sources += [str(values[key]) for key in ("src", "href") if key in values]

    def handle_endtag(self, tag: str) -> None:
        self._in_data = False

    def handle_data(self, data: str) -> None:
        if self._in_data:
            self.data += data


def read_page(report: RunReport) -> Page:
    """Parse the timeline."""
    page = Page()
    page.feed(render_timeline(report))
    return page


def test_the_timeline_draws_every_started_test_on_each_of_its_devices(rich_report: RunReport) -> None:
    page = read_page(rich_report)
    on_devices = sum(len(one.devices) for one in rich_report.results)
    alone = sum(not one.devices for one in rich_report.results)
    assert len(page.bars) == on_devices + alone
    assert len(json.loads(page.data)) == len(rich_report.results)
    assert page.marks == 2
    bad = [bar for bar in page.bars if "bad" in str(bar["class"])]
    assert all(re.search(r"failed|error|crashed|hung|skipped|not-run|infrastructure", str(bar["class"])) for bar in bad)
    assert all(bar["aria-label"] for bar in page.bars)


def test_the_timeline_asks_for_nothing_outside_itself(rich_report: RunReport) -> None:
    page = read_page(rich_report)
    assert set(page.sources) <= {"#detail"}
    text = render_timeline(rich_report)
    assert "default-src 'none'" in text
    assert not re.search(r"https?://", text)
    assert "url(" not in text
    assert page.tags.count("script") == 2


@given(st.text())
def test_no_text_breaks_out_of_the_page(text: str) -> None:
    row = TestResult(id=f"a::{text}", outcome=Outcome.FAILED, started=5.0, reason=text, output=text)
    page = read_page(RunReport(stage=text, results=(row,), notes=(text,), started=1.0))
    assert page.tags.count("script") == 2
    assert json.loads(page.data)[0]["id"] == row.id
    assert len(page.bars) == 1


def test_long_output_is_cut_in_the_middle_and_says_so(report: Make, result: Result) -> None:
    long = "first" + "x" * (2 * OUTPUT_LIMIT) + "last"
    shown = json.loads(read_page(report(result("a", outcome=Outcome.FAILED, output=long))).data)[0]["output"]
    assert shown.startswith("first")
    assert shown.endswith("last")
    assert f"{len(long) - OUTPUT_LIMIT} characters are left out here" in shown


def test_tests_without_devices_share_lanes_unless_they_overlap(report: Make, result: Result) -> None:
    rows = [result(name, started=begin, duration=2.0) for name, begin in (("a", 10.0), ("b", 11.0), ("c", 12.0))]
    lanes = layout_lanes(report(*rows))
    assert [(lane.name, lane.tests) for lane in lanes] == [("cpu 0", (0, 2)), ("cpu 1", (1,))]


@given(st.lists(st.tuples(st.floats(1, 1000), st.floats(0.01, 50)), max_size=30))
def test_no_two_tests_of_a_row_overlap(spans: list[tuple[float, float]]) -> None:
    rows = [
        TestResult(id=str(at), outcome=Outcome.PASSED, started=one[0], duration=one[1]) for at, one in enumerate(spans)
    ]
    packed = pack_rows(rows)
    assert sorted(place for row in packed for place in row) == list(range(len(rows)))
    for row in packed:
        ordered = [rows[place] for place in row]
        for first, second in pairwise(ordered):
            assert first.started + first.duration <= second.started + 2e-3


def test_a_test_that_was_refused_its_devices_has_no_bar(report: Make, result: Result) -> None:
    refused = result("wide", outcome=Outcome.INFRASTRUCTURE, duration=0.0)
    page = read_page(report(refused, result("a")))
    assert [bar["data-t"] for bar in page.bars] == ["1"]


def test_a_report_without_started_tests_has_a_page(report: Make) -> None:
    assert "No test was started" in render_timeline(report())


@given(st.floats(0.001, 1e6))
def test_the_axis_has_few_labels(span: float) -> None:
    ticks = list_ticks(span)
    assert 1 <= len(ticks) <= 11
    assert ticks[-1] <= span


def test_a_simulated_run_is_labelled_everywhere(report: Make, result: Result) -> None:
    run = report(result("a"), simulated=True)
    assert "SIMULATED" in headline(run)
    assert "Simulated devices" in render_markdown(run)
    assert "simulated devices" in render_timeline(run)
    assert any(
        row.attrib == {"name": "lockgate.simulated", "value": "true"} for row in read_junit(run).iter("property")
    )


def test_the_first_line_counts_skipped_and_not_run_even_when_there_are_none(report: Make, result: Result) -> None:
    assert headline(report(result("a"))) == "multi_gpu: green: 1 passed, 0 skipped, 0 not-run"


def test_the_terminal_shows_what_is_bad_with_its_ranks(rich_report: RunReport) -> None:
    stream = io.StringIO()
    Console(file=stream, width=100).print(render_report(rich_report, verbose=True))
    text = stream.getvalue()
    assert "rank 1: crashed" in text
    assert "tests/test_a.py::C::test_ranks" in text
    assert "test_passed[" not in text.split("slowest")[0]


def test_markdown_keeps_a_table_row_on_one_line(rich_report: RunReport) -> None:
    text = render_markdown(rich_report)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + 8
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 5 for row in rows)


def test_output_cannot_end_its_own_fence(report: Make, result: Result) -> None:
    text = render_markdown(report(result("a", outcome=Outcome.FAILED, output="```\n# not a title\n````")))
    assert "`````text\n```\n# not a title\n````\n`````" in text


def test_text_stays_text_in_markdown() -> None:
    assert escape("a|b\n*c* <img src=x>") == r"a\|b \*c\* \<img src=x\>"
    assert code("a`b|c") == r"`` a`b\|c ``"


def test_all_files_are_written_and_read_back(rich_report: RunReport, tmp_path: Path) -> None:
    paths = write_report(tmp_path / "new" / "folder", rich_report)
    assert sorted(path.name for path in paths) == ["junit.xml", "report.json", "timeline.html"]
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == [
        "junit.xml",
        "report.json",
        "timeline.html",
    ]
    assert len(read_report(tmp_path / "new" / "folder").results) == len(rich_report.results)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    write_whole(target, "old")
    target_folder = tmp_path / "no"
    target_folder.write_text("a file where a folder must be")
    with pytest.raises(ReportError, match="cannot be written"):
        write_whole(target_folder / "report.json", "new")
    assert target.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["no", "report.json"]


def test_a_report_that_is_not_there_says_what_writes_one(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="there is no report at"):
        read_report(tmp_path / "report.json")
