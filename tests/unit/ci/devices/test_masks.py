"""CUDA_VISIBLE_DEVICES is read as the CUDA driver reads it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.devices.masks import Selection, select_devices
from ci.devices.model import Device

pytestmark = pytest.mark.cpu

UUIDS = ("GPU-aa000000-1", "GPU-ab000000-2", "GPU-bb000000-3", "GPU-cc000000-4")
GPUS = tuple(Device(index=index, uuid=uuid) for index, uuid in enumerate(UUIDS))
MIGS = (
    Device(index=0, uuid=UUIDS[0]),
    Device(index=1, uuid=UUIDS[1], partitioned=True),
    Device(index=1, uuid="MIG-1a-x", parent=UUIDS[1], legacy_name=f"MIG-{UUIDS[1]}/7/0"),
    Device(index=1, uuid="MIG-1b-y", parent=UUIDS[1], legacy_name=f"MIG-{UUIDS[1]}/8/0"),
    Device(index=2, uuid=UUIDS[2]),
)


def indices(selection: Selection) -> list[int]:
    """Name the chosen devices by their number."""
    return [device.index for device in selection.devices]


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("   ", []),
        ("-1", []),
        ("0", [0]),
        ("2,0", [2, 0]),
        (" 1 , 3 ", [1, 3]),
        ("0,-1,1", [0]),
        ("0,9,1", [0]),
        ("9", []),
        ("0,,1", [0]),
        ("0,x,1", [0]),
        ("none", []),
        ("NoDevFiles", []),
        ("1,1", []),
        ("0,2,0", []),
        ("1gpu,2", [1, 2]),
        ("+1", [1]),
        ("GPU-aa", [0]),
        ("GPU-a", []),
        ("GPU-bb,GPU-aa", [2, 0]),
        ("GPU-bb,1", [2]),
        ("1,GPU-bb", [1]),
        ("GPU-bb,GPU-zz,GPU-aa", [2]),
        ("GPU-bb,GPU-bb000000", []),
        (UUIDS[3], [3]),
        ("MIG-1a", []),
    ],
)
def test_a_mask_shows_what_cuda_would(mask: str | None, expected: list[int]) -> None:
    assert indices(select_devices(mask, GPUS)) == expected


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (None, [UUIDS[0], "MIG-1a-x", "MIG-1b-y", UUIDS[2]]),
        ("1", ["MIG-1a-x"]),
        ("GPU-ab", ["MIG-1a-x"]),
        ("MIG-1b", ["MIG-1b-y"]),
        ("MIG-1b,MIG-1a", ["MIG-1b-y", "MIG-1a-x"]),
        ("MIG-1", []),
        (f"MIG-{UUIDS[1]}/8/0", ["MIG-1b-y"]),
        ("MIG-1a,GPU-aa", ["MIG-1a-x"]),
        ("0,1,2", [UUIDS[0], "MIG-1a-x", UUIDS[2]]),
    ],
)
def test_a_partitioned_gpu_is_used_by_its_instances(mask: str | None, expected: list[str]) -> None:
    assert [device.uuid for device in select_devices(mask, MIGS).devices] == expected


def test_a_partitioned_gpu_without_instances_shows_nothing() -> None:
    bare = (Device(index=0, uuid=UUIDS[0], partitioned=True),)
    assert select_devices("0", bare).devices == ()
    assert select_devices(None, bare).devices == ()


def test_the_reason_names_the_entry_and_what_it_hides() -> None:
    selection = select_devices("0,7,1", GPUS)
    assert selection.ignored == ("7", "1")
    assert "'7' names no device" in selection.reason
    assert "behind it: 1" in selection.reason


@pytest.mark.parametrize(("mask", "words"), [("", "is empty"), ("1,1", "names GPU 1 twice")])
def test_a_mask_that_hides_everything_says_why(mask: str, words: str) -> None:
    assert words in select_devices(mask, GPUS).reason


ENTRIES = st.sampled_from(["0", "1", "2", "3", "9", "-1", "", "x", "GPU-aa", "GPU-a", "GPU-bb", "MIG-1", *UUIDS])


@given(st.lists(ENTRIES, max_size=6))
def test_any_mask_shows_each_device_at_most_once(entries: list[str]) -> None:
    found = select_devices(",".join(entries), GPUS)
    assert len(set(found.devices)) == len(found.devices)
    assert set(found.devices) <= set(GPUS)


@given(st.text(max_size=40))
def test_no_text_breaks_the_reader(mask: str) -> None:
    assert len(select_devices(mask, MIGS).devices) <= len(MIGS)


@given(st.lists(ENTRIES, min_size=1, max_size=5))
def test_a_longer_mask_never_shows_more_before_its_first_bad_entry(entries: list[str]) -> None:
    whole = select_devices(",".join(entries), GPUS)
    if whole.ignored and whole.devices:
        good = ",".join(entries[: len(entries) - len(whole.ignored)])
        assert select_devices(good, GPUS).devices == whole.devices


def test_the_fixture_machine_counts_like_the_driver(gpu: Callable[..., Device]) -> None:
    assert indices(select_devices("1", [gpu(0), gpu(1)])) == [1]
