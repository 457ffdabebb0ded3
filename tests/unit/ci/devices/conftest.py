"""Devices to judge: a function that makes a fit GPU, and one that makes a machine of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ci.devices.model import GIB, Device, Inventory


@pytest.fixture
def gpu() -> Callable[..., Device]:
    """Give a function that makes a fit GPU; keywords override its fields."""

    def make(index: int, **fields: Any) -> Device:
        values: dict[str, Any] = {
            "index": index,
            "uuid": f"GPU-{index}0000000-1111-2222-3333-444444444444",
            "name": "Fake H200",
            "capability": (9, 0),
            "memory_total": 80 * GIB,
            "memory_free": 79 * GIB,
            "ecc_uncorrected": 0,
        }
        return Device(**(values | fields))

    return make


@pytest.fixture
def machine() -> Callable[..., Inventory]:
    """Give a function that makes an inventory of these devices."""

    def make(*devices: Device, **fields: Any) -> Inventory:
        values: dict[str, Any] = {"driver": "580.65.06", "driver_cuda": (13, 0), "nvml_version": "13.580.65.06"}
        return Inventory(devices=devices, **(values | fields))

    return make
