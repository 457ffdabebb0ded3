"""host-path-from-lower-trust: the case that must fire, and the nearest that must not."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.cpu


def test_host_path_from_lower_trust_fires(audit_case):
    found = audit_case("host-path-from-lower-trust", "fires")
    assert {(one.job, one.event) for one in found} == {("mirror", "mirror:7"), ("mirror", "mirror:123")}
    assert "/data/cache" in found[0].message
    assert "nightly" in found[0].message
    assert all(one.fix for one in found)


def test_host_path_from_lower_trust_is_silent_on_the_nearest_case(audit_case):
    assert audit_case("host-path-from-lower-trust", "silent") == []
