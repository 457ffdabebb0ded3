"""required-check-skipped: the case that must fire, and the nearest that must not."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.cpu


def test_required_check_skipped_fires(audit_case):
    found = audit_case("required-check-skipped", "fires")
    assert {(one.job, one.event) for one in found} >= {("required", "fork-pr:opened"), ("required", "merge-group")}
    assert all(one.fix for one in found)


def test_required_check_skipped_is_silent_on_the_nearest_case(audit_case):
    assert audit_case("required-check-skipped", "silent") == []
