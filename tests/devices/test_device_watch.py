"""A machine that changes under a run: Xid events while it goes on, leftovers after it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.cpu, pytest.mark.slow]

Machine = Callable[..., dict[str, str]]

WATCH = """
import json, os, time
from pathlib import Path
from ci.devices.probe import probe_devices
from ci.devices.watch import watch_devices, check_events
from ci.devices.afterwards import verify_afterwards

before = probe_devices(os.environ).devices
events = []
with watch_devices(before, tell=events.append):
    Path(os.environ["FAKE_NVML_FILE"]).write_text(os.environ["CHANGE"])
    end = time.monotonic() + float(os.environ.get("WAIT", "3"))
    while not events and time.monotonic() < end:
        time.sleep(0.02)
after = verify_afterwards(before, environ=os.environ, limit=0.5)
print(json.dumps({
    "events": [[event.uuid, event.code] for event in events],
    "problems": [problem.message for problem in check_events(events)],
    "after": [[problem.check, problem.message] for problem in after],
}))
"""


@pytest.fixture
def watch(machine: Machine, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Give a function that watches two GPUs while the settings become `change`."""

    def run(change: str, *, wait: float = 3.0, events: int = 1) -> dict[str, Any]:
        settings = tmp_path / "settings"
        settings.write_text("")
        environ = machine(COUNT=2, FILE=settings, EVENTS=events) | {"CHANGE": change, "WAIT": str(wait)}
        done = subprocess.run(
            [sys.executable, "-c", WATCH], env=environ, capture_output=True, text=True, timeout=60, check=True
        )
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    return run


def test_an_xid_of_the_machine_is_heard_and_is_a_problem(watch: Callable[..., dict[str, Any]]) -> None:
    found = watch("FAKE_NVML_1_XID=79\n")
    assert found["events"] == [["GPU-10000000-1111-2222-3333-444444444444", 79]]
    assert "Xid 79" in found["problems"][0]
    assert found["after"] == []


def test_an_xid_of_a_program_is_heard_and_is_no_problem(watch: Callable[..., dict[str, Any]]) -> None:
    found = watch("FAKE_NVML_0_XID=31\n")
    assert [code for _, code in found["events"]] == [31]
    assert found["problems"] == []


@pytest.mark.parametrize(
    ("change", "check", "words"),
    [
        ("FAKE_NVML_0_PIDS=1\n", "after: processes", "GPU 0 is still used after the run by"),
        ("FAKE_NVML_1_USED=2048\n", "after: memory", "GPU 1 has 2.0 GiB less free memory"),
        ("FAKE_NVML_1_ECC=1\n", "after: ecc", "GPU 1 counted 1 uncorrected ECC error(s) during the run"),
        ("FAKE_NVML_1_HANDLE=15\n", "after: reachable", "GPU 1 (GPU-10000000-1111-2222-3333-444444444444) has gone"),
        ("FAKE_NVML_INIT=999\n", "afterwards", "NVML cannot be used any more"),
    ],
)
def test_what_a_run_leaves_behind_is_named(
    change: str, check: str, words: str, watch: Callable[..., dict[str, Any]]
) -> None:
    found = watch(change, wait=0.1)
    assert found["events"] == []
    assert [row[0] for row in found["after"]] == [check]
    assert words in found["after"][0][1]


def test_a_driver_without_events_is_compared_after_the_run_all_the_same(watch: Callable[..., dict[str, Any]]) -> None:
    found = watch("FAKE_NVML_0_XID=79\nFAKE_NVML_0_USED=2048\n", wait=0.5, events=0)
    assert found["events"] == []
    assert [row[0] for row in found["after"]] == ["after: memory"]
