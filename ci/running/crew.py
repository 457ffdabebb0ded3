"""What each test needs of the fleet, and the devices that it may use. Pure but for the locks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pytest

from ci.report.model import DeviceRecord
from ci.running.locks import HeldDevices, try_lock
from ci.running.rankset import Shape
from ci.stages.markers import Tier
from ci.stages.model import Launch, Stage

PORT = "lockgate_port"
"""Mark of a test that binds a fixed TCP port: no two of a machine run at once."""


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What one test needs; a width of 0 runs in the controller itself."""

    shape: Shape
    reruns: int = 0
    ports: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """The devices that it holds."""
        return self.shape.width


def read_demand(item: pytest.Item, stage: Stage, *, reruns: int = 0) -> Demand:
    """Read a test's demand off its marks and its stage row.

    `multi_gpu` gives its own `nproc` (default: the row's ranks, at least 2) and
    `launch`; without it the row's `ranks` count, so that a repository with
    marker names of its own only writes a row. In a stage with devices every
    other test is a set of width 1, unless its tier says that it needs none.
    """
    mark = item.get_closest_marker(Tier.MULTI_GPU.value)
    launch = stage.launch
    if mark is not None:
        width = int(mark.kwargs.get("nproc", mark.args[0] if mark.args else max(stage.ranks, 2)))
        launch = Launch.parse(mark.kwargs.get("launch", stage.launch.value), what=f"launch of {item.nodeid}")
    elif stage.ranks:
        width = stage.ranks
    else:
        light = any(item.get_closest_marker(tier.value) for tier in (Tier.CPU, Tier.NATIVE_BACKEND))
        width = 1 if stage.devices and not light else 0
    dynamic = launch is Launch.DYNAMIC and width > 0
    flaky = item.get_closest_marker("flaky")
    own = int(flaky.kwargs.get("reruns", flaky.args[0] if flaky.args else 1)) if flaky else 0
    ports = [f"port-{port}" for mark in item.iter_markers(PORT) for port in mark.args]
    return Demand(
        shape=Shape(processes=1 if dynamic else width, width=width, dynamic=dynamic),
        reruns=max(reruns, own),
        ports=tuple(ports),
    )


class Locks:
    """The machine-wide locks that this run holds on its devices and ports, counted by users."""

    def __init__(self, devices: Sequence[DeviceRecord], environ: Mapping[str, str]) -> None:
        """Hold nothing yet; without devices there is nothing to lock."""
        self.uuids = tuple(device.uuid for device in devices)
        self._environ = environ
        self._held: dict[str, HeldDevices] = {}
        self._users: dict[str, int] = {}

    def take(self, names: Collection[str]) -> bool:
        """Hold all of these, or none and give False when another run has one."""
        fresh = [name for name in names if name not in self._held]
        got: dict[str, HeldDevices] = {}
        for name in fresh:
            held = try_lock([name], environ=self._environ)
            if held is None:
                for one in got.values():
                    one.release()
                return False
            got[name] = held
        self._held.update(got)
        for name in names:
            self._users[name] = self._users.get(name, 0) + 1
        return True

    def is_free(self, names: Collection[str]) -> bool:
        """Whether nobody in this run uses any of these."""
        return not any(self._users.get(name) for name in names)

    def give(self, names: Collection[str]) -> None:
        """Let go of these once; what nobody uses any more is unlocked."""
        for name in names:
            self._users[name] -= 1
            if not self._users[name]:
                self._held.pop(name).release()

    def descriptors(self, names: Collection[str]) -> list[int]:
        """Give the descriptors that the ranks on these devices inherit."""
        return [number for name in names for number in self._held[name].descriptors]
