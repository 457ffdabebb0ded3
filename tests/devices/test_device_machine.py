"""Two runs on one machine: devices that another run holds are in use, not broken, before, during and after."""

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

RUN = """
import json, os
from pathlib import Path
from ci.running.events import EventLog, read_events
from ci.running.locks import try_lock
from ci.running.machine import find_machine, guard_machine
from ci.stages.model import Stage

folder = Path(os.environ["FOLDER"])
mine = os.environ.get("HOLD", "")
held = try_lock([mine], environ=os.environ) if mine else None
found = find_machine(Stage(name="x", devices=2), simulate=0, environ=os.environ, root=folder)
log = EventLog(folder / "events-supervisor.jsonl", clock=lambda: 1.0)
with log, guard_machine(found, environ=os.environ, log=log):
    Path(os.environ["FAKE_NVML_FILE"]).write_text(os.environ["CHANGE"])
    if "XID" in os.environ["CHANGE"]:
        import time
        time.sleep(1)
events, _ = read_events(folder)
print(json.dumps({
    "fit": found.is_fit, "problems": [one.message for one in found.problems], "notes": list(found.notes),
    "devices": len(found.devices), "events": [dict(event.data) for event in events],
}))
"""


@pytest.fixture
def guard(machine: Machine, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Give a function that finds a machine of two GPUs and guards it while its settings become `change`."""

    def run(*, before: str = "", change: str = "", hold: str = "") -> dict[str, Any]:
        settings = tmp_path / "settings"
        settings.write_text(before)
        environ = machine(COUNT=2, FILE=settings) | {"CHANGE": change, "FOLDER": str(tmp_path), "HOLD": hold}
        environ |= {"LOCKGATE_VERIFY": "shallow", "LOCKGATE_LOCK_DIR": str(tmp_path / "locks")}
        done = subprocess.run(
            [sys.executable, "-c", RUN], env=environ, capture_output=True, text=True, timeout=60, check=True
        )
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    return run


GPU_0 = "GPU-00000000-1111-2222-3333-444444444444"


def test_a_machine_that_stays_as_it_was_has_no_event(guard: Callable[..., dict[str, Any]]) -> None:
    found = guard()
    assert found["fit"]
    assert found["devices"] == 2
    assert found["events"] == []


def test_a_device_of_another_run_is_noted_and_its_processes_are_no_strangers(
    guard: Callable[..., dict[str, Any]],
) -> None:
    found = guard(before="FAKE_NVML_0_PIDS=1\nFAKE_NVML_0_USED=40000\n", hold=GPU_0)
    assert found["fit"], found["problems"]
    assert found["devices"] == 2
    assert any("GPU 0 is held by" in note for note in found["notes"])


def test_without_the_lock_the_same_process_is_a_stranger(guard: Callable[..., dict[str, Any]]) -> None:
    found = guard(before="FAKE_NVML_0_PIDS=1\n")
    assert not found["fit"]
    assert "GPU 0 is used by" in found["problems"][0]


def test_what_is_left_on_a_device_is_a_problem_unless_another_run_has_it(guard: Callable[..., dict[str, Any]]) -> None:
    (event,) = guard(change="FAKE_NVML_0_PIDS=1\n")["events"]
    assert event["problem"]["check"] == "after: processes"


def test_what_another_run_does_on_its_device_is_not_held_against_this_one(guard: Callable[..., dict[str, Any]]) -> None:
    assert guard(change="FAKE_NVML_0_PIDS=1\n", hold=GPU_0)["events"] == []


def test_events_during_the_run_are_problems_or_notes(guard: Callable[..., dict[str, Any]]) -> None:
    (event,) = guard(change="FAKE_NVML_1_XID=79\n")["events"]
    assert event["problem"]["check"] == "xid"


def test_a_programs_own_fault_is_a_note(guard: Callable[..., dict[str, Any]]) -> None:
    (event,) = guard(change="FAKE_NVML_1_XID=31\n")["events"]
    assert "Xid 31" in event["message"]
