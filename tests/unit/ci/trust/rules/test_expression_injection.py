"""expression-injection: the case that must fire, and the nearest that must not."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.cpu


def test_expression_injection_fires(audit_case):
    found = audit_case("expression-injection", "fires")
    assert [(one.event, one.line) for one in found] == [("issues:opened", 10)]
    assert "github.event.issue.title" in found[0].message
    assert all(one.fix for one in found)


def test_expression_injection_is_silent_on_the_nearest_case(audit_case):
    assert audit_case("expression-injection", "silent") == []
