"""YAML 1.2 with lines, and what makes the service refuse a workflow."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.trust.document import DocumentError, Table, parse_document, plain_value
from ci.trust.workflow import parse_action, parse_workflow

pytestmark = pytest.mark.cpu


def test_a_document_of_too_many_values_is_refused_early(monkeypatch):
    monkeypatch.setattr("ci.trust.document.MAX_NODES", 100)
    with pytest.raises(DocumentError, match="more than 100 values"):
        parse_document("[" + "a," * 101 + "]")


def test_words_of_yaml_1_1_are_strings_and_lines_are_kept():
    root = parse_document(
        "on: push\nyes: no\nnumber: 0x1F\noctal: 0o17\nfloat: 1e3\nnothing: ~\nflag: true\ndate: 2026-01-01\n"
    )
    assert plain_value(root) == {
        "on": "push",
        "yes": "no",
        "number": 31.0,
        "octal": 15.0,
        "float": 1000.0,
        "nothing": None,
        "flag": True,
        "date": "2026-01-01",
    }
    assert isinstance(root, Table)
    assert root.key_lines["octal"] == 4


def test_anchors_are_followed():
    assert plain_value(parse_document("a: &x {k: 1}\nb: *x\nc: [*x]\n")) == {
        "a": {"k": 1.0},
        "b": {"k": 1.0},
        "c": [{"k": 1.0}],
    }


NAMES = "abcdef"
UNFOLDING = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 8)}]\n" for before, name in itertools.pairwise(NAMES)
)
"""Six lines that unfold to a quarter of a million values."""


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: 2\nA: 3\n", 3, "already defined on line 1"),
        ("a: &x {k: 1}\nb:\n  <<: *x\n", 3, "merge keys"),
        ("a: &x [*x]\n", 1, "alias"),
        ("a: *nowhere\n", 1, "alias"),
        ("a:\n  if: !cancelled()\n", 2, "quote the text"),
        ("a: [\n", 2, "YAML"),
        ("a: 'x\n", 2, "YAML"),
        ("a: 1\n---\nb: 2\n", 2, "second document"),
        ("? [a]\n: 1\n", 1, "scalar"),
        ("a: \x01\n", 1, "YAML"),
        ("[" * 100, 1, "nested"),
        ("a: b: c\n", 1, "YAML"),
        (UNFOLDING, 6, "following aliases"),
    ],
)
def test_what_the_service_refuses_is_an_error_with_its_line(text, line, words):
    with pytest.raises(DocumentError, match=words) as caught:
        parse_document(text)
    assert caught.value.line == line


@given(
    st.one_of(
        st.text(max_size=80),
        st.lists(
            st.sampled_from(
                [
                    "a",
                    ":",
                    " ",
                    "\n",
                    "- ",
                    "[",
                    "]",
                    "{",
                    "}",
                    "&a",
                    "*a",
                    "|",
                    ">",
                    "'",
                    '"',
                    "!",
                    "%",
                    "#",
                    "?",
                    "  ",
                ]
            ),
            max_size=30,
        ).map("".join),
    )
)
def test_no_text_crashes_the_reader(text):
    workflow = parse_workflow(text, path="x.yml")
    assert workflow.path == "x.yml"
    parse_action(text, path="x/action.yml")


STEP = "    runs-on: ubuntu-latest\n    steps: [{run: ls}]\n"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "no mapping"),
        ("- a\n", 1, "no mapping"),
        ("jobs:\n  a:\n" + STEP, 1, "`on` is missing"),
        ("on: push\n", 1, "`jobs` is missing"),
        ("on: push\njobs: {}\n", 2, "`jobs` is missing"),
        ("on: {}\njobs:\n  a:\n" + STEP, 1, "names no event"),
        ("on: push\njobs:\n  a:\n    steps: [{run: ls}]\n", 3, "neither `runs-on` nor `uses`"),
        ("on: push\njobs:\n  a:\n    needs: b\n" + STEP, 3, "needs 'b'"),
        ("on: push\njobs:\n  a:\n    needs: [a]\n" + STEP, 3, "waits for itself"),
        ("on: push\njobs:\n  a:\n    runs-on: ubuntu-latest\n    steps: [{name: x}]\n", 5, "neither `uses` nor `run`"),
        ("on: push\njobs:\n  a:\n    if: secrets.X != ''\n" + STEP, 4, "secrets"),
        ("on: push\njobs:\n  a:\n    if: matrix.x == 1\n" + STEP, 4, "matrix"),
        ("on: push\njobs:\n  a:\n    if: steps.x.outcome == 'success'\n" + STEP, 4, "steps"),
        ("on: push\njobs:\n  a:\n    if: hashFiles('x') != ''\n" + STEP, 4, "hashFiles"),
        ("on: push\njobs:\n  a:\n    if: a ==\n" + STEP, 4, "named-value"),
        ('on: push\njobs:\n  a:\n    if: github.x == "y"\n' + STEP, 4, "Unexpected symbol"),
        ("on: push\njobs:\n  a:\n    if: ${{ always() \n" + STEP, 4, "not closed"),
        ("on: push\njobs:\n  a:\n    runs-on: ${{ env.X }}\n    steps: [{run: ls}]\n", 4, "env"),
        ("on: push\njobs:\n  a:\n    runs-on: u\n    steps:\n      - run: echo ${{ nofunction() }}\n", 6, "nofunction"),
        ("on: push\njobs:\n  a:\n    runs-on: u\n    steps:\n      - if: secrets.A\n        run: ls\n", 6, "secrets"),
        ("on: {push: {branches: [a], branches-ignore: [b]}}\njobs:\n  a:\n" + STEP, 1, "both branches"),
        ("on: push\npermissions: admin\njobs:\n  a:\n" + STEP, 2, "admin"),
        ("on: push\njobs:\n  a:\n    permissions: {contents: all}\n" + STEP, 4, "contents"),
    ],
)
def test_an_invalid_workflow_is_a_problem_with_its_line(text, line, words):
    problems = parse_workflow(text, path="x.yml").problems
    assert any(words in problem.message and problem.line == line for problem in problems), problems


def test_unknown_keys_hide_nothing_and_refuse_nothing():
    workflow = parse_workflow("on: push\nnovelty: 1\njobs:\n  a:\n    shiny: true\n" + STEP, path="x.yml")
    assert workflow.problems == ()
    assert list(workflow.jobs) == ["a"]


def test_conditions_keep_what_the_fence_rules_need():
    text = "on: push\njobs:\n" + "".join(
        f"  {name}:\n    if: {condition}\n{STEP}"
        for name, condition in {
            "bare": "github.ref == 'x'",
            "fenced": "${{ github.ref == 'x' }}",
            "outside": "${{ github.ref }} == 'x'",
            "always": "always()",
            "folded": ">\n      ${{ github.ref == 'x' }}",
            "stripped": ">-\n      ${{ github.ref == 'x' }}",
            "empty": "''",
            "flag": "false",
        }.items()
    )
    jobs = parse_workflow(text, path="x.yml").jobs
    assert {name for name, job in jobs.items() if job.condition.fenced} == {"outside", "folded"}
    assert {name for name, job in jobs.items() if job.condition.checks_status} == {"always"}
    assert jobs["empty"].condition.node is None
    assert jobs["bare"].condition.line == 4


def test_volumes_of_containers_services_and_options_are_read():
    text = """
on: push
jobs:
  a:
    runs-on: gpu
    container:
      image: x
      volumes: ["/a:/a:ro"]
      options: --gpus all -v /b:/b --volume=/c:/c
    services:
      db: {image: y, volumes: ["/d:/d"]}
    steps: [{run: ls}]
"""
    volumes = parse_workflow(text, path="x.yml").jobs["a"].volumes
    assert [volume.text for volume in volumes] == ["/a:/a:ro", "/b:/b", "/c:/c", "/d:/d"]
