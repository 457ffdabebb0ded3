"""Filters, matrices and triggers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.trust import globs
from ci.trust.document import parse_document
from ci.trust.evaluate import Scope
from ci.trust.matrix import expand_matrix
from ci.trust.values import EvaluationError, Unknown

pytestmark = pytest.mark.cpu


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("main", ["main"], ["mainline", "x/main"]),
        ("*", ["main", ""], ["feat/x"]),
        ("**", ["main", "feat/x/y"], []),
        ("feature/*", ["feature/a"], ["feature/a/b", "feature"]),
        ("feature/**", ["feature/a", "feature/a/b"], ["features/a"]),
        ("*feature", ["my-feature"], ["a/feature"]),
        ("**feature", ["a/feature"], ["feature2"]),
        ("v2*", ["v2", "v2.0", "v2-x"], ["v2/x", "v1"]),
        ("pull-request/[0-9]+", ["pull-request/7", "pull-request/123"], ["pull-request/", "pull-request/7x"]),
        ("v[12].[0-9]+.[0-9]+", ["v1.10.1", "v2.0.0"], ["v3.0.0", "v1.1"]),
        ("releases?", ["release", "releases"], ["releasess"]),
        ("a.b", ["a.b"], ["axb"]),
        ("[A-Z]x", ["Bx"], ["bx"]),
        ("release\\*", ["release*"], ["release1"]),
        ("[broken", [], ["[broken", "b"]),
    ],
)
def test_globs(pattern, yes, no):
    assert [name for name in yes if not globs.match_any([pattern], name)] == []
    assert [name for name in no if globs.match_any([pattern], name)] == []


def test_negation_works_in_order():
    assert globs.match_any(["releases/**", "!releases/**-alpha"], "releases/10")
    assert not globs.match_any(["releases/**", "!releases/**-alpha"], "releases/10-alpha")
    assert globs.match_any(["releases/**", "!releases/**-alpha", "releases/beta/**"], "releases/beta/3-alpha")
    assert not globs.match_any(["!main"], "feature")


@given(st.text(max_size=20), st.text(max_size=20))
def test_no_pattern_crashes(pattern, name):
    globs.match_any([pattern], name)


def expand(text, **contexts):
    return expand_matrix(parse_document(text), Scope(contexts=contexts))


def names(text, **contexts):
    return [", ".join(one.words) for one in expand(text, **contexts)]


def test_a_matrix_is_the_product_in_order():
    assert names("{os: [a, b], version: [1, 2.5, true]}") == ["a, 1", "a, 2.5", "a, true", "b, 1", "b, 2.5", "b, true"]


def test_exclude_and_include_as_the_service_does():
    assert names("{os: [a, b], v: [1, 2], exclude: [{os: a, v: 1}, {os: b}]}") == ["a, 2"]
    found = names(
        "{fruit: [apple, pear], animal: [cat, dog], "
        "include: [{color: green}, {color: pink, animal: cat}, {fruit: banana}]}"
    )
    assert found == ["apple, cat, pink", "apple, dog, green", "pear, cat, pink", "pear, dog, green", "banana"]
    assert names("{include: [{a: 1}, {a: 2, b: 3}]}") == ["1", "2, 3"]


def test_an_unknown_matrix_is_one_unknown_combination():
    (only,) = expand("${{ fromJSON(needs.a.outputs.m) }}", needs=Unknown(reason="an output"))
    assert isinstance(only.values, Unknown)
    assert only.words == ()
    assert names("{gpu: '${{ fromJSON(inputs.x) }}', n: [1]}", inputs=Unknown(reason="an input")) == ["?, 1"]


def test_a_known_expression_is_expanded():
    assert names("""'${{ fromJSON(''{"a": [1, 2]}'') }}'""") == ["1", "2"]


@pytest.mark.parametrize("text", ["[a]", "plain", "{a: \"${{ fromJSON('') }}\"}", "{a: [" + ",".join("1" * 300) + "]}"])
def test_a_matrix_that_the_service_refuses_is_an_error(text):
    with pytest.raises(EvaluationError):
        expand(text)


JOB = "\njobs:\n  job:\n    runs-on: ubuntu-latest\n    steps: [{run: ls}]\n"


def started(audit_texts, on, *more):
    found = audit_texts(f"on: {on}" + JOB, *more)
    return {cell.row.id for cell in found.result.audit.reachable() if cell.workflow.path.endswith("/0.yml")}


FORKS = {
    "fork-pr:opened",
    "fork-pr:synchronize",
    "fork-pr:reopened",
    "deleted-fork-pr:reopened",
    "fork-pr-from-default-name:opened",
}
PULLS = FORKS | {"internal-pr:opened", "dependabot-pr:opened"}
PUSHES = {"push:default", "push:feature", "push:feat/x", "mirror:7", "mirror:123"}


@pytest.mark.parametrize(
    ("on", "expected"),
    [
        ("pull_request", PULLS),
        ("{pull_request: {branches: [main]}}", PULLS),
        ("{pull_request: {branches-ignore: [main]}}", {"fork-pr-to-other-branch:opened"}),
        ("{pull_request: {branches: ['release/*']}}", {"fork-pr-to-other-branch:opened"}),
        ("{pull_request: {paths: ['src/**']}}", PULLS),
        ("{pull_request: {types: [closed]}}", {"fork-pr:closed"}),
        ("push", PUSHES | {"push:tag"}),
        ("{push: {branches: [main]}}", {"push:default"}),
        ("{push: {branches: ['feat/**']}}", {"push:feat/x"}),
        ("{push: {branches: ['*']}}", {"push:default", "push:feature"}),
        ("{push: {branches: ['**', '!main']}}", PUSHES - {"push:default"}),
        ("{push: {branches-ignore: ['pull-request/*']}}", PUSHES - {"mirror:7", "mirror:123"}),
        ("{push: {branches: ['pull-request/[0-9]+']}}", {"mirror:7", "mirror:123"}),
        ("{push: {tags: ['v*']}}", {"push:tag"}),
        ("{push: {tags-ignore: ['v*']}}", set()),
        ("{push: {tags: ['v*'], branches: [main]}}", {"push:tag", "push:default"}),
        ("{push: {paths: [x]}}", PUSHES | {"push:tag"}),
        ("{schedule: [{cron: '0 0 * * *'}]}", {"schedule"}),
        ("workflow_dispatch", {"dispatch:default", "dispatch:branch"}),
        ("merge_group", {"merge-group"}),
        ("issues", {"issues:opened"}),
        ("{issues: {types: [edited]}}", {"issues:edited"}),
        ("pull_request_target", {"pr-target:fork", "pr-target:internal"}),
        ("pull_request_review", {"review:NONE@fork-pr"}),
        ("pull_request_review_comment", {"review:NONE@fork-pr"}),
        (
            "issue_comment",
            {
                "comment:NONE@fork-pr",
                "comment:CONTRIBUTOR@fork-pr",
                "comment:MEMBER@fork-pr",
                "comment:NONE@internal-pr",
                "comment:NONE@issue",
            },
        ),
        ("release", {"release"}),
        ("repository_dispatch", {"repository-dispatch"}),
        ("discussion", {"discussion"}),
        ("workflow_call", set()),
    ],
)
def test_which_events_start_a_workflow(audit_texts, on, expected):
    assert started(audit_texts, on) == expected


RUNS = {
    "workflow-run:fork-pr",
    "workflow-run:fork-pr-from-default-name",
    "workflow-run:internal-pr",
    "workflow-run:push-default",
}


@pytest.mark.parametrize(
    ("filters", "cause", "expected"),
    [
        ("", "pull_request", RUNS - {"workflow-run:push-default"}),
        ("", "[pull_request, push]", RUNS),
        ("", "push", {"workflow-run:push-default"}),
        ("", None, RUNS),
        (", branches: [main]", None, {"workflow-run:fork-pr-from-default-name", "workflow-run:push-default"}),
        (", branches: ['release/*']", None, {"workflow-run:fork-pr", "workflow-run:internal-pr"}),
        (", branches-ignore: [main]", None, {"workflow-run:fork-pr", "workflow-run:internal-pr"}),
    ],
)
def test_a_run_is_caused_by_what_starts_the_named_workflow(audit_texts, filters, cause, expected):
    more = [f"name: gate\non: {cause}" + JOB] if cause else []
    assert (
        started(audit_texts, f"{{workflow_run: {{workflows: [gate], types: [completed]{filters}}}}}", *more) == expected
    )


def test_labels_that_files_mention_make_rows(audit_texts):
    found = audit_texts(
        "on: {pull_request: {types: [labeled]}}\njobs:\n  a:\n    if: github.event.label.name == 'gpu' || "
        'contains(fromJSON(\'["x y", "z"]\'), github.event.label.name)'
        "\n    runs-on: u\n    steps: [{run: ls}]\n"
    )
    labels = {row.id.partition("=")[2] for row in found.result.audit.rows if row.id.startswith("fork-pr:labeled=")}
    assert labels == {"gpu", "x y", "z", "(other)"}
