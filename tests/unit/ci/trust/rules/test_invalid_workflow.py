"""invalid-workflow: the case that must fire, and the nearest that must not."""

from __future__ import annotations

import pytest

from ci.trust.trust import Severity

pytestmark = pytest.mark.cpu


def test_invalid_workflow_fires(audit_case):
    found = audit_case("invalid-workflow", "fires")
    assert [(one.line, one.severity) for one in found] == [(5, Severity.FAIL)]
    assert "env" in found[0].message
    assert all(one.fix for one in found)


def test_invalid_workflow_is_silent_on_the_nearest_case(audit_case):
    assert audit_case("invalid-workflow", "silent") == []
