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
