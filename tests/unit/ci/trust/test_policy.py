"""The policy: every problem is listed at once, acceptances have a reason and a day."""

from __future__ import annotations

import datetime as dt

import pytest

from ci.errors import ConfigError
from ci.trust.policy import Policy, parse_policy
from ci.trust.trust import Kind

pytestmark = pytest.mark.cpu

UNTRUSTED = "on: pull_request\npermissions: {}\njobs:\n  a:\n    runs-on: gpu\n    steps: [{run: ls}]\n"


def test_a_whole_policy():
    policy = parse_policy(
        {
            "repository": "owner/name",
            "hosted-labels": ["*-cores"],
            "default_token": "read",
            "vars": {"RUNNER": "ubuntu-latest"},
            "runners": {"gpu": {"ephemeral": True}, "group:big": {"workflows": ["a.yml"]}},
            "unknown_runners": {"${{ x }}": "hosted"},
            "environments": {"GPU": {"reviewers": True}, "other": {}},
            "required_checks": ["unit"],
            "merge_queue": True,
            "attest": {"fork-approval": "checked on 2026-01-01"},
            "require-attestation": True,
            "dependabot_on_self_hosted": True,
            "accept": [{"rule": "as-edited", "reason": "no runner yet", "expires": dt.date(2030, 1, 1)}],
        },
        source="test",
    )
    assert policy.hosted_labels == ("*-cores",)
    assert policy.runners["gpu"].ephemeral
    assert policy.is_ephemeral("GPU")
    assert policy.unknown_runners == {"${{ x }}": Kind.HOSTED}
    assert policy.reviewed_environments == {"gpu"}
    assert policy.attestations == {"fork_approval": "checked on 2026-01-01"}
    assert policy.require_attestation
    assert policy.accepted[0].workflow == "*"


def test_an_empty_policy_assumes_the_worst():
    assert parse_policy({}, source="test") == Policy()
    assert Policy().default_token == "write"


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"hosted_label": []}, ["unknown key 'hosted_label'", "did you mean 'hosted_labels'"]),
        ({"repository": "name"}, ["repository is 'name', expected owner/name"]),
        ({"hosted_labels": "x"}, ["hosted_labels is 'x', expected an array of strings"]),
        ({"default_token": "admin"}, ["default_token is 'admin'"]),
        ({"vars": {"A": 1}}, ["vars.A is 1, expected a string"]),
        (
            {"runners": {"gpu": True, "x": {"ephemerl": True}}},
            ["runners.gpu is True", "ephemerl", "did you mean 'ephemeral'"],
        ),
        ({"runners": {"gpu": {"ephemeral": "yes"}}}, ["runners.gpu.ephemeral is 'yes', expected true or false"]),
        ({"unknown_runners": {"a": "cloud"}}, ["unknown_runners.a is 'cloud'", "hosted, self-hosted"]),
        ({"environments": []}, ["environments is [], expected a table"]),
        ({"attest": {"fork_aproval": "x"}}, ["did you mean 'fork_approval'"]),
        ({"attest": {"runner_hook": True}}, ["attest.runner_hook is True, expected who checked it"]),
        ({"accept": {}}, ["accept is {}, expected an array of tables"]),
        ({"accept": [{"rule": "x"}]}, ["accept[1]: reason is missing", "accept[1]: expires is None"]),
        (
            {"accept": [{"rule": "x", "reason": " ", "expires": "soon", "jb": 1}]},
            ["unknown key 'jb'", "reason is ' '", "expires is 'soon'"],
        ),
        ({"merge_queue": 1, "require_attestation": "no"}, ["merge_queue is 1", "require_attestation is 'no'"]),
    ],
)
def test_every_problem_is_listed_before_stopping(table, words):
    with pytest.raises(ConfigError) as caught:
        parse_policy(table, source="policy.toml")
    assert "policy.toml" in caught.value.message
    assert [word for word in words if word not in caught.value.message] == []
    assert "docs/security.md" in caught.value.hint


def accepted(expires, **more):
    row = {"rule": "untrusted-on-self-hosted", "reason": "one-off machine", "expires": expires, **more}
    return parse_policy({"accept": [row]}, source="test")


def test_an_accepted_finding_no_longer_fails_and_is_listed_with_its_reason(audit_texts):
    rule = "untrusted-on-self-hosted"
    policy = accepted(dt.date(2026, 6, 1))
    policy = Policy(accepted=policy.accepted, dependabot_on_self_hosted=True)
    found = audit_texts(UNTRUSTED, policy=policy)
    assert found.rules() == set()
    assert {(finding.rule, one.reason) for finding, one in found.result.accepted} == {(rule, "one-off machine")}


def test_an_acceptance_past_its_day_no_longer_covers_and_is_itself_a_warning(audit_texts):
    found = audit_texts(UNTRUSTED, policy=accepted(dt.date(2026, 5, 31)))
    assert "untrusted-on-self-hosted" in found.rules()
    assert any("expired on 2026-05-31" in one.message for one in found.result.findings if one.rule == "acceptance")


def test_an_acceptance_of_another_place_covers_nothing_and_says_so(audit_texts):
    found = audit_texts(UNTRUSTED, policy=accepted(dt.date(2026, 7, 1), job="b"))
    assert "untrusted-on-self-hosted" in found.rules()
    assert any("covers no finding" in one.message for one in found.result.findings if one.rule == "acceptance")


def test_an_acceptance_of_one_event_leaves_the_others(audit_texts):
    found = audit_texts(UNTRUSTED, policy=accepted(dt.date(2026, 7, 1), event="fork-pr:*"))
    assert found.events("untrusted-on-self-hosted") == {"deleted-fork-pr:reopened", "fork-pr-from-default-name:opened"}
