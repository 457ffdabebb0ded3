"""persisted-credentials: the case that must fire, and the nearest that must not."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.cpu


def test_persisted_credentials_fires(audit_case):
    found = audit_case("persisted-credentials", "fires")
    assert [(one.job, one.event, one.line) for one in found] == [("test", None, 10)]
    assert all(one.fix for one in found)


def test_persisted_credentials_is_silent_on_the_nearest_case(audit_case):
    assert audit_case("persisted-credentials", "silent") == []
