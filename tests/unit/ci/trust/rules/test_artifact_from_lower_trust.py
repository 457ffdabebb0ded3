"""artifact-from-lower-trust: the case that must fire, and the nearest that must not."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.cpu


def test_artifact_from_lower_trust_fires(audit_case):
    found = audit_case("artifact-from-lower-trust", "fires")
    assert {one.event for one in found} == {"workflow-run:fork-pr", "workflow-run:fork-pr-from-default-name"}
    assert {one.line for one in found} == {11}
    assert all(one.fix for one in found)


def test_artifact_from_lower_trust_is_silent_on_the_nearest_case(audit_case):
    assert audit_case("artifact-from-lower-trust", "silent") == []
