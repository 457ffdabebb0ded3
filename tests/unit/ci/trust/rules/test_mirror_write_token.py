"""mirror-write-token: the case that must fire, and the nearest that must not."""

from __future__ import annotations

import pytest

from ci.trust.trust import Severity

pytestmark = pytest.mark.cpu


def test_mirror_write_token_fires(audit_case):
    found = audit_case("mirror-write-token", "fires")
    assert [(one.event, one.severity) for one in found] == [("mirror:7", Severity.WARN)]
    assert all(one.fix for one in found)


def test_mirror_write_token_is_silent_on_the_nearest_case(audit_case):
    assert audit_case("mirror-write-token", "silent") == []
