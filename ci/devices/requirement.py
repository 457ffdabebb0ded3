"""Stage row -> what a machine must have for it."""

from __future__ import annotations

from dataclasses import dataclass

from ci.stages.model import Stage


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """What a stage needs of a machine's devices.

    `devices` is the least number, `ranks` the size of its process groups (0:
    none). `free_fraction` is the part of a device's memory that must be free.
    `torch` says whether the tests need torch on the device: True, False, or None
    for "if it is installed". `architectures` are the built ones (`sm_90`,
    `compute_90`, ...); empty means: ask torch.
    """

    stage: str
    devices: int
    ranks: int = 0
    free_fraction: float = 0.8
    torch: bool | None = None
    architectures: tuple[str, ...] = ()


def require_devices(stage: Stage) -> Requirement:
    """Read the requirement off a stage row; a process group of k ranks needs k devices."""
    needed = max(stage.devices, stage.ranks) if stage.devices else 0
    return Requirement(
        stage=stage.name, devices=needed, ranks=stage.ranks, torch=True if stage.devices and stage.ranks else None
    )
