"""cache-from-lower-trust: the case that must fire, and the nearest that must not."""

from __future__ import annotations

import pytest

from ci.trust.trust import Severity

pytestmark = pytest.mark.cpu


def test_cache_from_lower_trust_fires(audit_case):
    found = audit_case("cache-from-lower-trust", "fires")
    assert {(one.event, one.severity) for one in found} == {("pr-target:fork", Severity.FAIL)}
    assert all(one.fix for one in found)


def test_cache_from_lower_trust_is_silent_on_the_nearest_case(audit_case):
    assert audit_case("cache-from-lower-trust", "silent") == []
