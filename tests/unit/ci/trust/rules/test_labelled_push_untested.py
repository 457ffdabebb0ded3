"""labelled-push-untested: the case that must fire, and the nearest that must not."""

from __future__ import annotations

import pytest

from ci.trust.trust import Severity

pytestmark = pytest.mark.cpu


def test_labelled_push_untested_fires(audit_case):
    found = audit_case("labelled-push-untested", "fires")
    assert [(one.job, one.event, one.severity) for one in found] == [
        ("gpu", "internal-pr:labeled=run-gpu", Severity.WARN)
    ]
    assert all(one.fix for one in found)


def test_labelled_push_untested_is_silent_on_the_nearest_case(audit_case):
    assert audit_case("labelled-push-untested", "silent") == []
