"""untrusted-with-power: the case that must fire, and the nearest that must not."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.cpu


def test_untrusted_with_power_fires(audit_case):
    found = audit_case("untrusted-with-power", "fires")
    assert {one.event for one in found} == {"pr-target:fork"}
    assert "INDEX_TOKEN" in found[0].message
    assert found[0].line == 12
    assert all(one.fix for one in found)


def test_untrusted_with_power_is_silent_on_the_nearest_case(audit_case):
    assert audit_case("untrusted-with-power", "silent") == []
