"""as-edited: named settings, attestations, and what the policy requires."""

from __future__ import annotations

import pytest

from ci.trust.trust import Severity

pytestmark = pytest.mark.cpu


def test_as_edited_names_machines_even_when_no_outsider_reaches_them(audit_case):
    (found,) = audit_case("as-edited", "fires")
    assert (found.severity, found.event) == (Severity.SETTING, None)
    assert "gpu-pool" in found.message
    assert "attest.fork_approval" in found.fix


def test_as_edited_is_silent_without_machines_of_our_own(audit_case):
    assert audit_case("as-edited", "silent") == []


def test_as_edited_is_discharged_by_an_attested_setting_and_still_printed(audit_case):
    (found,) = audit_case("as-edited", "attested")
    assert found.severity is Severity.SETTING
    assert "2026-01-05" in found.message
    assert found.fix == ""


def test_as_edited_fails_when_an_attestation_is_required_and_missing(audit_case):
    (found,) = audit_case("as-edited", "required")
    assert found.severity is Severity.FAIL


RUN = (
    "on: {workflow_run: {workflows: [nightly]}}\npermissions: {}\njobs:\n  a:\n    runs-on: ubuntu-latest\n    steps:\n"
    "      - uses: actions/checkout@v4\n        with: {ref: '${{ github.event.workflow_run.head_sha }}'}\n"
)
CAUSE = "name: nightly\non: push\njobs:\n  b:\n    runs-on: ubuntu-latest\n    steps: [{run: ls}]\n"


def test_as_edited_sees_that_a_fork_can_add_a_trigger_to_the_cause_of_a_run(audit_texts):
    (found,) = [one for one in audit_texts(RUN, CAUSE).result.findings if one.rule == "as-edited"]
    assert "a fork can make nightly start" in found.message
    guarded = RUN.replace("    runs-on", "    if: github.event.workflow_run.event == 'push'\n    runs-on")
    assert not [one for one in audit_texts(guarded, CAUSE).result.findings if one.rule == "as-edited"]


def test_as_edited_leaves_remote_workflows_to_their_own_rows(audit_texts):
    text = "on: push\njobs:\n  a:\n    uses: other/shared/.github/workflows/x.yml@v1\n"
    assert not [one for one in audit_texts(text).result.findings if one.rule == "as-edited"]
