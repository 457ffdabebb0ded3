"""What a watch will do: model + selection -> points, warnings, the run's record, the ring's options."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from monitoring.errors import CaptureError, SelectionError, SiteUnreachable
from monitoring.hooks.families import find_family
from monitoring.hooks.families.base import Rotary, attention_implementation, backbone
from monitoring.hooks.families.generic import module_points
from monitoring.hooks.points import Point
from monitoring.hooks.select import Selection
from monitoring.hooks.sites import table_digest
from monitoring.policy import Policy, Schedule
from monitoring.rows import RunRecord


@dataclass(frozen=True, kw_only=True)
class Planned:
    """The points that will be watched, and what could not be."""

    points: tuple[Point, ...]
    family: str
    warnings: tuple[str, ...] = ()


def unwrap(model: nn.Module) -> nn.Module:
    """Find the module behind `torch.compile`'s wrapper, whose hooks the compiled code runs."""
    if not isinstance(model, nn.Module):
        raise CaptureError(f"watch needs a torch.nn.Module, found {type(model).__name__}")
    inner = getattr(model, "_orig_mod", None)
    return inner if isinstance(inner, nn.Module) else model


def parse_rotary(text: str) -> Rotary:
    """Read the `rotary` argument."""
    try:
        return Rotary(text)
    except ValueError:
        raise CaptureError(f"rotary is {text!r}, expected 'before' or 'after'") from None


def plan_points(model: nn.Module, selection: Selection, rotary: Rotary, *, shard_rank: int = 0) -> Planned:
    """Find the selected sites in a model.

    A site that every rank holds whole is left to rank 0. Sites that the model
    lacks are named in one warning. Raises `SiteUnreachable` for a site that is
    computed out of sight, `SelectionError` when nothing is left.
    """
    family = find_family(model)
    wanted = {site.name: site for site in selection.sites}
    hidden = family.unreachable(model, rotary) if wanted else {}
    blocked = {name: reason for name, reason in hidden.items() if name in wanted}
    if blocked:
        lines = "\n".join(f"{name}: {reason}" for name, reason in blocked.items())
        raise SiteUnreachable(
            f"{', '.join(blocked)} cannot be captured from this {type(model).__name__}",
            hint=f"{lines}\nor leave {'it' if len(blocked) == 1 else 'them'} out of the selection",
        )
    available = [point for point in family.points(model, rotary) if point.name in wanted] if wanted else []
    missing = [name for name in wanted if name not in {point.name for point in available}]
    points = [point for point in available if shard_rank == 0 or (point.site is not None and point.site.tp_sharded)]
    if shard_rank == 0:
        points += module_points(model, selection.modules)
    what = f"{type(model).__name__} (family {family.name})"
    if not available and not selection.modules:
        raise SelectionError(
            f"nothing of the selection {selection.text!r} is in {what}; it lacks {', '.join(missing)}",
            hint="select sites that it has, or modules:<glob> for any module's output",
        )
    lacks = (f"{what} lacks {', '.join(missing)}: not captured",) if missing else ()
    return Planned(points=tuple(points), family=family.name, warnings=lacks)


def find_device(model: nn.Module) -> int:
    """Find where the model computes: -1 for host memory, else the CUDA device's index."""
    kinds = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    if not kinds or {device.type for device in kinds} == {"cpu"}:
        return -1
    if {device.type for device in kinds} == {"cuda"} and len(kinds) == 1:
        return int(next(iter(kinds)).index or 0)
    found = ", ".join(sorted(str(device) for device in kinds))
    raise CaptureError(
        f"the model is on {found}, expected host memory or one CUDA device", hint="move it to one device"
    )


def find_shard(model: nn.Module, given: tuple[int, int] | None) -> tuple[int, int]:
    """Find this process's (rank, count) of tensor parallelism, from the model's parameters unless given."""
    if given is not None:
        rank, count = given
        if not 0 <= rank < count:
            raise CaptureError(f"shard is {given}, expected (rank, count) with 0 <= rank < count")
        return rank, count
    for parameter in model.parameters():
        mesh = getattr(parameter, "device_mesh", None)
        if mesh is not None and mesh.size() > 1:
            return int(mesh.get_local_rank(mesh.ndim - 1)), int(mesh.size(mesh.ndim - 1))
    return 0, 1


def agree_run_id(fresh: str, *, shards: int) -> str:
    """Let tensor-parallel ranks take rank 0's id; they watch together, so a collective call cannot hang."""
    distributed = torch.distributed
    if shards == 1 or not (distributed.is_available() and distributed.is_initialized()):
        return fresh
    box = [fresh]
    distributed.broadcast_object_list(box, src=0)
    return str(box[0])


def name_model(model: nn.Module) -> str:
    """Name a model for the rows: where it was loaded from, else its class."""
    return str(getattr(getattr(model, "config", None), "name_or_path", "") or type(model).__name__)


def ring_options(policy: Policy) -> dict[str, Any]:
    """Translate a policy into the native ring's arguments."""
    pressure, limits, delivery = policy.backpressure, policy.limits, policy.delivery
    return {
        "capacity_bytes": limits.ring_bytes,
        "capacity_records": limits.ring_records,
        "policy": pressure.mode.value,
        "deadline": float(pressure.deadline),
        "sample_every": pressure.sample_every,
        "flush_bytes": min(limits.batch_bytes, limits.ring_bytes),
        "flush_records": min(limits.batch_records, limits.ring_records),
        "flush_seconds": float(limits.flush_interval),
        "retry_seconds": float(delivery.retry_seconds),
        "spool_dir": delivery.spool_dir,
        "spool_bytes": delivery.spool_bytes,
    }


def begin_record(  # noqa: PLR0913 - the columns of a run's record
    planned: Planned,
    model: nn.Module,
    *,
    run_id: str,
    model_id: str,
    shard: tuple[int, int],
    rotary: Rotary,
    schedule: Schedule,
) -> RunRecord:
    """Write down what a complete run must contain, and the facts that the reader needs."""
    now = time.time_ns()
    details = describe(model, family=planned.family, rotary=rotary)
    if not schedule.keeps_everything:  # the reader then takes gaps between steps for what they are
        details["schedule"] = str(schedule)
    return RunRecord(
        run_id=run_id,
        model_id=model_id,
        shard_rank=shard[0],
        shard_count=shard[1],
        started_at=now,
        updated_at=now,
        expected=tuple((point.name, point.layer) for point in planned.points),
        details=details,
    )


def describe(model: nn.Module, *, family: str, rotary: Rotary) -> dict[str, str]:
    """Describe a model for its run's record; sizes are of the whole model, not of a shard."""
    config = getattr(model, "config", None)
    facts: dict[str, Any] = {
        "family": family,
        "model_class": type(model).__name__,
        "dtype": _dtypes(model.parameters()),
        "torch": torch.__version__,
        "table_digest": table_digest(),
    }
    names = {
        "layers": "num_hidden_layers",
        "hidden": "hidden_size",
        "heads": "num_attention_heads",
        "kv_heads": "num_key_value_heads",
        "head_dim": "head_dim",
        "vocabulary": "vocab_size",
        "experts": "num_experts",
    }
    facts |= {name: getattr(config, attribute, None) for name, attribute in names.items()}
    if config is not None and hasattr(model, "generate"):
        facts |= {"attention": attention_implementation(model), "decoder": type(backbone(model)).__name__}
        facts |= {"rotary": rotary.value, "transformers": _transformers_version()}
    return {name: str(value) for name, value in facts.items() if value is not None}


def _dtypes(parameters: Iterable[torch.Tensor]) -> str:
    return ",".join(sorted({str(parameter.dtype).removeprefix("torch.") for parameter in parameters}))


def _transformers_version() -> str | None:
    try:
        import transformers
    except ImportError:
        return None
    return str(transformers.__version__)
