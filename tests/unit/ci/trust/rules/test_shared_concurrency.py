"""shared-concurrency: the case that must fire, and the nearest that must not."""

from __future__ import annotations

import pytest

from ci.trust.trust import Severity

pytestmark = pytest.mark.cpu


def test_shared_concurrency_fires(audit_case):
    found = audit_case("shared-concurrency", "fires")
    assert "fork-pr-from-default-name:opened" in {one.event for one in found}
    assert {one.severity for one in found} == {Severity.FAIL}
    assert "schedule" in found[0].message
    assert all(one.fix for one in found)


def test_shared_concurrency_is_silent_on_the_nearest_case(audit_case):
    assert audit_case("shared-concurrency", "silent") == []
