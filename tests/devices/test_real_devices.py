"""On a real device: what NVML says is what torch sees, and the verification finds it fit."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from ci.devices.afterwards import check_afterwards
from ci.devices.probe import probe_devices
from ci.devices.requirement import Requirement
from ci.devices.verify import Children, mask_environment
from ci.devices.watch import XidEvent, watch_devices
from ci.stages.guards import require_cuda

pytestmark = [pytest.mark.gpu, require_cuda()]


def test_nvml_and_torch_agree_on_the_device() -> None:
    import torch

    device = probe_devices(os.environ).devices[0]
    seen = torch.cuda.get_device_properties(0)
    assert re.fullmatch(r"(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", device.uuid)
    assert device.is_mig or device.uuid == f"GPU-{seen.uuid}"
    assert device.capability == (seen.major, seen.minor)
    assert device.memory_total >= seen.total_memory


def test_the_kernel_check_finds_the_device_fit(tmp_path: Path) -> None:
    inventory = probe_devices(os.environ)
    device = inventory.devices[0]
    children = Children(environ=os.environ, root=tmp_path, limit=120.0)
    problems, _ = children.check_group(Requirement(stage="gpu_smoke", devices=1), inventory, [device])
    assert problems == []


def test_a_uuid_in_the_mask_shows_this_device_alone() -> None:
    device = probe_devices(os.environ).devices[0]
    shown = probe_devices(mask_environment(os.environ, [device])).devices
    assert [one.uuid for one in shown] == [device.uuid]


def test_a_quiet_device_has_no_event_and_is_as_it_was() -> None:
    before = probe_devices(os.environ).devices[:1]
    heard: list[XidEvent] = []
    begin = time.monotonic()
    with watch_devices(before, tell=heard.append):
        pass
    assert time.monotonic() - begin < 5
    assert heard == []
    hardware = [
        one for one in check_afterwards(before, probe_devices(os.environ)) if one.check.endswith(("ecc", "remap"))
    ]
    assert hardware == []
