from __future__ import annotations

from types import SimpleNamespace

import pytest

from ci.report.model import DeviceRecord
from ci.running.crew import Locks, read_demand
from ci.running.rankset import Shape
from ci.stages.model import Launch, Stage

pytestmark = pytest.mark.cpu


def item(*marks: pytest.MarkDecorator):
    """A stand-in for a pytest item: a node id and marks, which is all that a demand is read from."""
    plain = [mark.mark for mark in marks]
    return SimpleNamespace(
        nodeid="test_a.py::test_a",
        get_closest_marker=lambda name: next((mark for mark in plain if mark.name == name), None),
        iter_markers=lambda name: [mark for mark in plain if mark.name == name],
    )


PLAIN = Stage(name="plain")
RANKS = Stage(name="ranks", ranks=4)
DEVICES = Stage(name="devices", devices=2)
MULTI = pytest.mark.multi_gpu


@pytest.mark.parametrize(
    ("marks", "stage", "shape"),
    [
        ((), PLAIN, Shape(processes=0, width=0, dynamic=False)),
        ((), RANKS, Shape(processes=4, width=4, dynamic=False)),
        ((), DEVICES, Shape(processes=1, width=1, dynamic=False)),
        ((pytest.mark.cpu,), DEVICES, Shape(processes=0, width=0, dynamic=False)),
        ((pytest.mark.native_backend,), DEVICES, Shape(processes=0, width=0, dynamic=False)),
        ((MULTI,), PLAIN, Shape(processes=2, width=2, dynamic=False)),
        ((MULTI,), RANKS, Shape(processes=4, width=4, dynamic=False)),
        ((MULTI(nproc=3),), RANKS, Shape(processes=3, width=3, dynamic=False)),
        ((MULTI(8),), PLAIN, Shape(processes=8, width=8, dynamic=False)),
        ((MULTI(launch="dynamic", nproc=4),), PLAIN, Shape(processes=1, width=4, dynamic=True)),
        ((), Stage(name="s", ranks=2, launch=Launch.DYNAMIC), Shape(processes=1, width=2, dynamic=True)),
        ((MULTI(launch="static"),), Stage(name="s", launch=Launch.DYNAMIC), Shape(processes=2, width=2, dynamic=False)),
        ((), Stage(name="s", launch=Launch.DYNAMIC), Shape(processes=0, width=0, dynamic=False)),
    ],
)
def test_a_test_says_what_it_needs_by_its_marks_and_its_row(marks, stage, shape):
    assert read_demand(item(*marks), stage).shape == shape


def flaky(*arguments: int, **keywords: int) -> pytest.MarkDecorator:
    """Make the mark of pytest-rerunfailures, which is not registered here."""
    return pytest.MarkDecorator(pytest.Mark("flaky", arguments, keywords, _ispytest=True), _ispytest=True)


def test_reruns_are_the_runs_or_the_tests_own_whichever_is_more():
    assert read_demand(item(), RANKS, reruns=1).reruns == 1
    for mark, least in ((flaky(reruns=3), 3), (flaky(), 1), (flaky(2), 2)):
        assert read_demand(item(mark), RANKS, reruns=1).reruns == least


def test_fixed_ports_are_named_for_the_lock():
    assert read_demand(item(pytest.mark.lockgate_port(29500, 29501)), RANKS).ports == ("port-29500", "port-29501")


def devices(count: int) -> list[DeviceRecord]:
    return [DeviceRecord(uuid=f"SIM-test-{number}", index=number, name="x") for number in range(count)]


def test_locks_are_all_or_nothing_between_runs_and_counted_within_one(tmp_path):
    environ = {"LOCKGATE_LOCK_DIR": str(tmp_path)}
    mine, theirs = (Locks(devices(2), environ) for _ in range(2))
    assert mine.take(["SIM-test-0"])
    assert not theirs.take(["SIM-test-1", "SIM-test-0"])
    assert theirs.take(["SIM-test-1"])
    assert mine.take(["SIM-test-0"])  # a second user of the same run
    mine.give(["SIM-test-0"])
    assert not mine.is_free(["SIM-test-0"])
    assert not theirs.take(["SIM-test-0"])
    mine.give(["SIM-test-0"])
    assert theirs.take(["SIM-test-0"])
    assert len(theirs.descriptors(["SIM-test-0", "SIM-test-1"])) == 2
    theirs.give(["SIM-test-0", "SIM-test-1"])
