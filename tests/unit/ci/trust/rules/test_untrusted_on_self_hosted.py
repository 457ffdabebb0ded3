"""untrusted-on-self-hosted: the case that must fire, and the nearest that must not."""

from __future__ import annotations

import pytest

from ci.trust.trust import Severity

pytestmark = pytest.mark.cpu


def test_untrusted_on_self_hosted_fires(audit_case):
    found = audit_case("untrusted-on-self-hosted", "fires")
    events = {one.event for one in found}
    assert events == {
        "fork-pr:opened",
        "fork-pr:synchronize",
        "fork-pr:reopened",
        "deleted-fork-pr:reopened",
        "fork-pr-from-default-name:opened",
    }
    assert {(one.job, one.line, one.severity) for one in found} == {("test", 5, Severity.FAIL)}
    assert "gpu-pool" in found[0].message
    assert all(one.fix for one in found)


def test_untrusted_on_self_hosted_is_silent_on_the_nearest_case(audit_case):
    assert audit_case("untrusted-on-self-hosted", "silent") == []
