"""What a rank must know before it can speak to its controller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class RankSpec:
    """Who a rank is, where the controller listens, what to run with.

    `environ` is added to the environment; `store` is the file of a file store,
    new for every set; `files` are those whose tests will run (no others are
    collected); `limit` is the process group's in seconds; `backend` is "" for
    no process group; `local`: the rank is forked on this machine, else torchrun
    started it.
    """

    set: str
    rank: int
    world: int
    address: str
    token: str
    log: str
    arguments: tuple[str, ...]
    environ: Mapping[str, str]
    backend: str
    store: str
    limit: float
    files: tuple[str, ...] = ()
    device: str = ""
    local: bool = True
