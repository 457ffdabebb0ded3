"""schedule-without-guard: the case that must fire, and the nearest that must not."""

from __future__ import annotations

import pytest

from ci.trust.trust import Severity

pytestmark = pytest.mark.cpu


def test_schedule_without_guard_fires(audit_case):
    found = audit_case("schedule-without-guard", "fires")
    assert [(one.job, one.event, one.severity) for one in found] == [("night", "schedule", Severity.WARN)]
    assert all(one.fix for one in found)


def test_schedule_without_guard_is_silent_on_the_nearest_case(audit_case):
    assert audit_case("schedule-without-guard", "silent") == []
