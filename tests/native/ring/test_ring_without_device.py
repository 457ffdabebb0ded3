"""A machine without a CUDA device: the library loads, and says in words what is missing."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.native_backend, pytest.mark.ring_native]


def test_a_cuda_ring_without_a_device_is_a_clear_error(native):
    if native.cuda_device_count() > 0:
        device, reason = native.cuda_device_count(), "there is no CUDA device"
    elif native.features()["mode"] == "cuda":
        device, reason = 0, "but there is no device"
    else:
        device, reason = 0, "built without CUDA; build with: LOCKGATE_NATIVE=cuda"
    with pytest.raises(RuntimeError, match=reason):
        native.Ring(native.NullSink(), run_id="r", model_id="m", device=device)
    assert native.cuda_status()


def test_features_name_what_was_built(native):
    features = native.features()
    assert features["mode"] in {"cpu", "cuda"}
    assert bool(features["cuda_archs"]) == (features["mode"] == "cuda")
    assert features["abi"] == native.ABI
    native.check_hook_table(features["hook_table_version"], features["hook_table_digest"])
    with pytest.raises(ImportError, match=r"was built for hook table .* build it again: invoke build-native"):
        native.check_hook_table(features["hook_table_version"] + 1, "other")
