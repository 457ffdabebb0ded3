"""A rank's torch.distributed process group, and what it says of itself. torch is imported when asked, never before."""

from __future__ import annotations

import gc
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from ci.running.spec import RankSpec

PAGE = os.sysconf("SC_PAGE_SIZE")


def begin(spec: RankSpec) -> str:
    """Join the process group of the set; gives what went wrong, or ""."""
    if not spec.backend:
        return ""
    try:
        import torch
        import torch.distributed as dist

        if spec.backend == "nccl":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group(
            spec.backend, init_method=f"file://{spec.store}" if spec.local else "env://", rank=spec.rank,
            world_size=spec.world, timeout=timedelta(seconds=spec.limit),
        )  # fmt: skip
    except Exception as error:  # noqa: BLE001 - whatever it is, the controller names it
        return f"{type(error).__name__}: {error}"
    return ""


def end() -> str:
    """Leave the process group, if there is one; gives what went wrong, or ""."""
    dist = _distributed()
    if dist is None or not dist.is_initialized():
        return ""
    try:
        dist.destroy_process_group()
    except Exception as error:  # noqa: BLE001 - the tests have their answers; this one is shown
        return f"{type(error).__name__}: {error}"
    return ""


def read_sequence() -> str:
    """Tell how many collectives this rank has started, "none" without a group: ranks in step say the same."""
    dist = _distributed()
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return "none"
    try:
        number = dist.group.WORLD._get_sequence_number_for_group()  # noqa: SLF001 - torch has no public name for it
    except (RuntimeError, AttributeError):
        return "unknown"
    return str(number)


def read_health() -> dict[str, Any]:
    """Tell the memory of this process in bytes and whether CUDA still answers, if it was started at all."""
    resident = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE
    health: dict[str, Any] = {"resident": resident, "allocated": 0, "total": 0, "sticky": ""}
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return health
    try:
        cuda.synchronize()
        if cuda.memory_allocated():
            gc.collect()  # what only a reference cycle holds is no leak
        health |= {
            "allocated": cuda.memory_allocated(),
            "total": cuda.get_device_properties(cuda.current_device()).total_memory,
        }
    except RuntimeError as error:
        health["sticky"] = str(error).splitlines()[0]
    return health


def _distributed() -> Any:
    """Give torch.distributed if this process has imported it."""
    return sys.modules.get("torch.distributed")
