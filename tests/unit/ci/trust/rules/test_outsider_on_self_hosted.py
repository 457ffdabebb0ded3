"""outsider-on-self-hosted: the case that must fire, and the nearest that must not."""

from __future__ import annotations

import pytest

from ci.trust.trust import Severity

pytestmark = pytest.mark.cpu


def test_outsider_on_self_hosted_fires(audit_case):
    found = audit_case("outsider-on-self-hosted", "fires")
    assert {one.event for one in found} == {"comment:NONE@internal-pr"}
    assert found[0].severity is Severity.FAIL
    assert all(one.fix for one in found)


def test_outsider_on_self_hosted_is_silent_on_the_nearest_case(audit_case):
    assert audit_case("outsider-on-self-hosted", "silent") == []
