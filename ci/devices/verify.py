"""The pre-flight of a GPU stage: probe, judge, try a kernel, try an all-reduce. The edge of this room.

probe -> checks (pure) -> torch in a child -> torch_checks (pure) -> two-rank all-reduce -> Verification
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ci import process
from ci.devices import torch_child
from ci.devices.checks import check_devices
from ci.devices.model import Device, Inventory, simulate_devices
from ci.devices.probe import probe_devices
from ci.devices.requirement import Requirement
from ci.devices.torch_checks import TorchFacts, check_torch
from ci.errors import InfrastructureError, ProcessError
from ci.report.model import Problem

DEPTH_VARIABLE = "LOCKGATE_VERIFY"
SHALLOW = "shallow"
"""Value of `LOCKGATE_VERIFY` for suites that use the devices without torch: no kernel, no all-reduce."""

CHILD_LIMIT = 120.0
"""Seconds for a child that imports torch and starts CUDA; a cold file system needs tens of them."""


Hold = Callable[[Sequence[str]], AbstractContextManager[Mapping[str, str]]]
"""Keeps other runs off devices (UUIDs) for a while; gives those that others hold, with their holder."""


def hold_nothing(_: Sequence[str]) -> AbstractContextManager[Mapping[str, str]]:
    """Hold no device and know of no holder."""
    return nullcontext({})


@dataclass(frozen=True, kw_only=True)
class Verification:
    """The verdict on a machine: devices to use, problems (empty: fit), notes to show."""

    requirement: Requirement
    inventory: Inventory
    devices: tuple[Device, ...]
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_fit(self) -> bool:
        """Whether the stage can run here."""
        return not self.problems

    def error(self, *, hint: str = "") -> InfrastructureError:
        """Give all problems as one error; the hint offers the simulated run unless another is given."""
        stage, count = self.requirement.stage, max(self.requirement.devices, 1)
        lines = [f"  - {problem.check}: {problem.message} ({problem.hint})" for problem in self.problems]
        return InfrastructureError(
            f"this machine is not fit for {stage}, {len(lines)} problem(s):\n" + "\n".join(lines),
            hint=hint
            or (
                f"`lockgate run {stage} --simulate {count}` (or `nox -s {stage} -- --simulate {count}`) runs the same"
                " tests with CPU ranks; `python -m ci.devices` shows what is here"
            ),
        )


def verify_devices(
    requirement: Requirement,
    *,
    environ: Mapping[str, str],
    root: Path,
    hold: Hold = hold_nothing,
    deep: bool = True,
    limit: float = CHILD_LIMIT,
) -> Verification:
    """Verify this machine for a stage; all problems are listed, none is raised.

    `hold` keeps other runs of ours off the devices while they are looked at and
    names those that others have (they are in use, not broken). `deep` runs the
    checks that start processes and CUDA on the devices that nobody holds, unless
    `LOCKGATE_VERIFY=shallow`; `limit` in seconds bounds each child, which runs in
    this interpreter.
    """
    visible = [device.uuid for device in probe_devices(environ).devices if device.uuid]
    with hold(visible) as holders:
        # Asked again under the locks: what another run had on a device before is now gone, or named.
        inventory = probe_devices(environ)
        judgement = check_devices(requirement, inventory, held=frozenset(holders))
        problems, notes = list(judgement.problems), list(judgement.notes)
        notes += [
            f"{device.label} is held by {holders[device.uuid]}: it was not tried, its tests wait for it"
            for device in judgement.devices
            if device.uuid in holders
        ]
        free = [device for device in judgement.devices if device.uuid not in holders]
        if deep and environ.get(DEPTH_VARIABLE) == SHALLOW:
            deep = False
            notes.append(f"{DEPTH_VARIABLE}={SHALLOW}: neither a kernel nor an all-reduce was tried")
        if deep and free and not problems and wants_torch(requirement, problems, notes):
            children = Children(environ=environ, root=root, limit=limit)
            for group in visible_groups(free):
                found, said = children.check_group(requirement, inventory, group)
                problems += found
                notes += said
            if not problems and len(free) > 1:
                problems += children.check_reduce(free[:2], backend="nccl")
    return Verification(
        requirement=requirement,
        inventory=inventory,
        devices=judgement.devices,
        problems=tuple(problems),
        notes=tuple(dict.fromkeys(notes)),
    )


def verify_simulated(requirement: Requirement, *, count: int, root: Path) -> Verification:
    """Give `count` simulated devices; too few for the stage is a problem here as it is on a real machine."""
    inventory = simulate_devices(count, scope=root)
    judgement = check_devices(requirement, inventory)
    return Verification(
        requirement=requirement, inventory=inventory, devices=judgement.devices, problems=judgement.problems
    )


def wants_torch(requirement: Requirement, problems: list[Problem], notes: list[str]) -> bool:
    """Whether the torch checks can and must run; a missing torch becomes a problem or a note."""
    if requirement.torch is False:
        return False
    if importlib.util.find_spec("torch") is not None:
        return True
    if requirement.torch:
        hint = "install a CUDA build of torch into this environment"
        problems.append(
            Problem(check="torch", message="torch is not installed and the stage's ranks need it", hint=hint)
        )
    else:
        notes.append("torch is not installed: no kernel was run to try the devices")
    return False


def visible_groups(devices: Sequence[Device]) -> list[list[Device]]:
    """Split devices into what one process can see: all whole GPUs together, each MIG instance alone."""
    whole = [device for device in devices if not device.is_mig]
    return ([whole] if whole else []) + [[device] for device in devices if device.is_mig]


def mask_environment(environ: Mapping[str, str], devices: Sequence[Device]) -> dict[str, str]:
    """Give the environment of a child that may use exactly these devices, named by UUID, set before it starts."""
    shown = "" if any(device.simulated for device in devices) else ",".join(device.uuid for device in devices)
    return {**environ, "CUDA_VISIBLE_DEVICES": shown}


@dataclass(frozen=True, kw_only=True)
class Children:
    """How the child processes of one verification are started."""

    environ: Mapping[str, str]
    root: Path
    limit: float
    python: str = sys.executable

    def check_group(
        self, requirement: Requirement, inventory: Inventory, devices: Sequence[Device]
    ) -> tuple[list[Problem], list[str]]:
        """Ask torch in one child that sees exactly these devices."""
        names = tuple(device.uuid for device in devices)
        try:
            facts = TorchFacts.parse(self._run(["kernel"], devices))
        except ProcessError as error:
            hint = "run it by hand: `python -m ci.devices.torch_child kernel`"
            return [
                Problem(check="kernel", message=f"the kernel check failed: {error.message}", hint=hint, devices=names)
            ], []
        return check_torch(facts, requirement=requirement, inventory=inventory, devices=devices)

    def check_reduce(self, devices: Sequence[Device], *, backend: str) -> list[Problem]:
        """Run an all-reduce with one rank on each of these devices; a rank that hangs runs into the limit."""
        with tempfile.TemporaryDirectory(prefix="lockgate-reduce-") as folder:
            store = str(Path(folder, "store"))
            words = [["reduce", str(rank), str(len(devices)), store, backend] for rank in range(len(devices))]
            with ThreadPoolExecutor(len(devices)) as threads:
                answers = list(threads.map(self._try_rank, words, devices))
        errors = [answer for answer in answers if answer]
        if not errors:
            return []
        labels = " and ".join(device.label for device in devices)
        return [
            Problem(
                check="all-reduce",
                message=f"an all-reduce over {labels} failed: {'; '.join(errors)}",
                hint="NCCL_DEBUG=INFO says more; `nvidia-smi topo -m` shows how the devices are joined",
                devices=tuple(device.uuid for device in devices),
            )
        ]

    def _try_rank(self, words: Sequence[str], device: Device) -> str:
        try:
            return str(self._run(words, [device])["error"])
        except ProcessError as error:
            return error.message

    def _run(self, words: Sequence[str], devices: Sequence[Device]) -> Mapping[str, Any]:
        command = [self.python, torch_child.__file__, *words]
        environ = mask_environment(self.environ, devices)
        done = process.run(command, cwd=self.root, environ=environ, limit=self.limit, capture=True)
        try:
            document = json.loads(done.stdout.strip().splitlines()[-1])
        except (ValueError, IndexError):
            raise ProcessError(f"the child answered {done.stdout[-200:]!r}, expected a JSON document") from None
        if not isinstance(document, dict):
            raise ProcessError(f"the child answered {document!r}, expected a JSON object")
        return document
