"""What torch says in a child process -> problems: pure, one message per check.

The compute capability and the CUDA version can only be judged with torch's own
words, because they are about what was built, not about what the machine has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ci.devices.model import Device, Inventory
from ci.devices.requirement import Requirement
from ci.report.model import Problem

ARCHITECTURE = re.compile(r"(?P<kind>sm|compute)_(?P<digits>\d{2,3})(?P<suffix>[af]?)")


@dataclass(frozen=True, kw_only=True)
class TorchFacts:
    """What a child process found: torch's builds, and what a kernel did on each device (UUID -> error or "")."""

    version: str
    cuda: str = ""
    rocm: str = ""
    architectures: tuple[str, ...] = ()
    count: int = 0
    error: str = ""
    kernels: tuple[str, ...] = ()

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> TorchFacts:
        """Read the child's JSON document."""
        return cls(
            version=str(document["version"]),
            cuda=str(document.get("cuda") or ""),
            rocm=str(document.get("rocm") or ""),
            architectures=tuple(map(str, document.get("architectures", ()))),
            count=int(document.get("count", 0)),
            error=str(document.get("error", "")),
            kernels=tuple(map(str, document.get("kernels", ()))),
        )


def check_torch(
    facts: TorchFacts, *, requirement: Requirement, inventory: Inventory, devices: Sequence[Device]
) -> tuple[list[Problem], list[str]]:
    """Judge torch against the driver and the devices it was shown; gives problems and notes."""
    problems = check_build(facts)
    if problems:
        return problems, []
    found, notes = check_cuda(facts, inventory)
    problems += found
    built = requirement.architectures or facts.architectures
    problems += [problem for device in devices for problem in check_capability(device, built)]
    problems += check_kernels(facts, devices)
    return problems, notes


def check_build(facts: TorchFacts) -> list[Problem]:
    """Check that the installed torch is a CUDA build."""
    if facts.cuda:
        return []
    kind = f"a ROCm build ({facts.rocm})" if facts.rocm else "a CPU build"
    hint = "install a CUDA build of torch into this environment: https://pytorch.org/get-started/locally/"
    return [Problem(check="torch", message=f"torch {facts.version} is {kind}, a CUDA build is needed", hint=hint)]


def check_cuda(facts: TorchFacts, inventory: Inventory) -> tuple[list[Problem], list[str]]:
    """Check that the driver runs the CUDA version that torch was built with.

    Within one major version an older driver runs newer programs (CUDA's minor
    version compatibility), so that is a note: the kernel check decides.
    """
    driver = inventory.driver_cuda
    wanted = _version(facts.cuda)
    if driver is None or wanted is None or driver >= wanted:
        return [], []
    text = (
        f"the driver {inventory.driver} runs CUDA up to {driver[0]}.{driver[1]},"
        f" torch {facts.version} was built with CUDA {facts.cuda}"
    )
    if driver[0] == wanted[0]:
        return [], [f"{text}: it works within one major version, except for kernels compiled when first used"]
    return [Problem(check="cuda", message=text, hint="update the driver, or install torch for an older CUDA")], []


def check_capability(device: Device, built: Sequence[str]) -> list[Problem]:
    """Check that the device's compute capability was built, or that a built PTX can be compiled for it."""
    if device.capability is None or not built or any(runs_on(name, device.capability) for name in built):
        return []
    text = (
        f"{device.label} ({device.name}) has compute capability {device.capability[0]}.{device.capability[1]},"
        f" built are {', '.join(built)}"
    )
    hint = "build for it (TORCH_CUDA_ARCH_LIST, CMAKE_CUDA_ARCHITECTURES), or install a torch that is"
    return [Problem(check="capability", message=text, hint=hint, devices=(device.uuid,))]


def runs_on(architecture: str, capability: tuple[int, int]) -> bool:
    """Whether code of an architecture runs on a compute capability.

    `sm_XY` runs on the same major version from Y on, `compute_XY` (PTX) on
    everything from XY on; suffix `a` binds to exactly this version, `f` to its
    major version. Source: CUDA C++ Programming Guide, "Compute Capabilities".
    """
    match = ARCHITECTURE.fullmatch(architecture)
    if match is None:
        return False
    digits = match["digits"]
    built = (int(digits[:-1]), int(digits[-1]))
    if match["suffix"] == "a":
        return built == capability
    same_major = built[0] == capability[0]
    return built <= capability and (same_major or (match["kind"] == "compute" and not match["suffix"]))


def check_kernels(facts: TorchFacts, devices: Sequence[Device]) -> list[Problem]:
    """Check that a real kernel ran on every device and gave the right numbers."""
    if facts.error or facts.count != len(devices):
        text = f"torch sees {facts.count} of {len(devices)} device(s)" + (f": {facts.error}" if facts.error else "")
        hint = "`nvidia-smi` and `dmesg` show more; a device may be in exclusive mode or in a bad state"
        return [Problem(check="kernel", message=text, hint=hint, devices=tuple(device.uuid for device in devices))]
    return [
        Problem(
            check="kernel",
            message=f"a kernel on {device.label} failed: {error}",
            hint="`dmesg` shows the Xid event, if there was one; reset the GPU",
            devices=(device.uuid,),
        )
        for device, error in zip(devices, facts.kernels, strict=True)
        if error
    ]


def _version(text: str) -> tuple[int, int] | None:
    match = re.match(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None
