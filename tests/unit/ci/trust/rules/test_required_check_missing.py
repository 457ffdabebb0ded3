"""required-check-missing: the case that must fire, and the nearest that must not."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.cpu


def test_required_check_missing_fires(audit_case):
    found = audit_case("required-check-missing", "fires")
    assert [(one.job, one.event) for one in found] == [("unit", "merge-group")]
    assert all(one.fix for one in found)


def test_required_check_missing_is_silent_on_the_nearest_case(audit_case):
    assert audit_case("required-check-missing", "silent") == []
