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


def test_devices_keep_nothing_but_shared_memory_does(audit_texts):
    text = (
        "on: [pull_request, schedule]\npermissions: {}\njobs:\n  a:\n    runs-on: gpu\n    steps: [{run: ls}]\n"
        "    container: {image: x, volumes: ['/dev/dri/by-path:/dev/dri/by-path']}\n"
    )
    assert "host-path-from-lower-trust" not in audit_texts(text).rules()
    assert "host-path-from-lower-trust" in audit_texts(text.replace("/dev/dri/by-path", "/dev/shm/store")).rules()
