"""publisher-cancelled: the case that must fire, and the nearest that must not."""

from __future__ import annotations

import pytest

from ci.trust.trust import Severity

pytestmark = pytest.mark.cpu


def test_publisher_cancelled_fires(audit_case):
    found = audit_case("publisher-cancelled", "fires")
    assert [(one.job, one.severity) for one in found] == [("publish", Severity.WARN)]
    assert all(one.fix for one in found)


def test_publisher_cancelled_is_silent_on_the_nearest_case(audit_case):
    assert audit_case("publisher-cancelled", "silent") == []
