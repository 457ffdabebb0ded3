"""dependabot-on-self-hosted: the case that must fire, and the nearest that must not."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.cpu


def test_dependabot_on_self_hosted_fires(audit_case):
    found = audit_case("dependabot-on-self-hosted", "fires")
    assert {(one.job, one.event) for one in found} == {("test", "dependabot-pr:opened")}
    assert all(one.fix for one in found)


def test_dependabot_on_self_hosted_is_silent_on_the_nearest_case(audit_case):
    assert audit_case("dependabot-on-self-hosted", "silent") == []
