"""The child processes of the verification: the only code of this room that imports torch.

`torch_child.py kernel` prints one JSON document (`TorchFacts`);
`torch_child.py reduce RANK SIZE STORE BACKEND` takes part in an
all-reduce. The caller sets CUDA_VISIBLE_DEVICES and a time limit.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

SIDE = 256
"""Rows and columns of the test matrices: large enough for a tuned kernel, small enough for any device."""


def run_kernel() -> dict[str, Any]:
    """Describe torch, then multiply two matrices of whole numbers on each device and compare with the CPU."""
    import torch

    facts: dict[str, Any] = {
        "version": torch.__version__,
        "cuda": torch.version.cuda or "",
        "rocm": getattr(torch.version, "hip", None) or "",
    }
    if not facts["cuda"]:
        return facts
    facts["architectures"] = torch.cuda.get_arch_list()
    try:
        torch.cuda.init()
        facts["count"] = torch.cuda.device_count()
    except RuntimeError as error:
        facts["error"] = str(error)
        return facts
    facts["kernels"] = [_multiply(torch, position) for position in range(facts["count"])]
    return facts


def _multiply(torch: Any, position: int) -> str:
    # Small whole numbers: every product and sum is exact in float32 and in TF32, so equality is a fair test.
    left = (torch.arange(SIDE * SIDE) % 7).reshape(SIDE, SIDE).float()
    right = (torch.arange(SIDE * SIDE) % 5).reshape(SIDE, SIDE).float()
    try:
        found = (left.to(f"cuda:{position}") @ right.to(f"cuda:{position}")).cpu()
    except RuntimeError as error:
        return str(error).splitlines()[0]
    wrong = int((found != left @ right).sum())
    return f"{wrong} of {SIDE * SIDE} numbers are wrong" if wrong else ""


def run_reduce(rank: int, size: int, store: str, backend: str) -> dict[str, Any]:
    """Add up rank + 1 over all ranks; every rank must get size * (size + 1) / 2."""
    import torch
    import torch.distributed as dist

    device = "cuda:0" if backend == "nccl" else "cpu"
    file_store = dist.FileStore(store, size)
    dist.init_process_group(backend, store=file_store, rank=rank, world_size=size)
    try:
        value = torch.full((1024,), float(rank + 1), device=device)
        dist.all_reduce(value)
        expected = size * (size + 1) / 2
        wrong = int((value != expected).sum())
        return {"error": f"rank {rank} got {float(value[0])}, expected {expected}" if wrong else ""}
    finally:
        dist.destroy_process_group()


def main(arguments: list[str]) -> None:
    """Run the part that the caller asks for and print its document as the last line."""
    # Started by its path, so that a tested repository's own `ci` package cannot stand in its way; this
    # folder must then not be searched for modules.
    if sys.path and sys.path[0] == str(Path(__file__).parent):
        del sys.path[0]
    if arguments[0] == "kernel":
        document = run_kernel()
    else:
        rank, size, store, backend = arguments[1:]
        document = run_reduce(int(rank), int(size), store, backend)
    print(json.dumps(document), flush=True)  # noqa: T201 - this is the process's answer


if __name__ == "__main__":
    main(sys.argv[1:])
