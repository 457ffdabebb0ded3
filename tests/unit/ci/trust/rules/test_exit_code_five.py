"""exit-code-five: the case that must fire, and the nearest that must not."""

from __future__ import annotations

import pytest

from ci.trust.trust import Severity

pytestmark = pytest.mark.cpu


def test_exit_code_five_fires(audit_case):
    found = audit_case("exit-code-five", "fires")
    assert [(one.job, one.line, one.severity) for one in found] == [("test", 8, Severity.WARN)]
    assert all(one.fix for one in found)


def test_exit_code_five_is_silent_on_the_nearest_case(audit_case):
    assert audit_case("exit-code-five", "silent") == []
