"""What the supervisor tells the pytest session: one JSON file, named by the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from ci.errors import ProcessError
from ci.report.document import decode
from ci.report.model import DeviceRecord
from ci.stages.model import Stage

JOB_VARIABLE = "LOCKGATE_JOB"


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of one stage, as its pytest session needs it.

    `folder` takes the event logs. `plan` is the file of a plan that
    selects (empty: all run), `done` those that an earlier session of this run answered.
    `process_group` is auto, none, gloo or nccl. `devices` are what the ranks may use;
    `durations` is the file of recorded durations and `kind` the part of it that fits.
    """

    run_id: str
    folder: str
    stage: Stage
    devices: tuple[DeviceRecord, ...] = ()
    simulated: bool = False
    process_group: str = "auto"
    preload: tuple[str, ...] = ("torch",)
    nodes: int = 1
    listen: str = ""
    reruns: int = 0
    plan: str = ""
    done: tuple[str, ...] = ()
    shard: str = ""
    durations: str = ""
    kind: str = "cpu"
    session: int = 0

    def dump(self) -> str:
        """Render as JSON."""
        return json.dumps(asdict(self))


def parse_job(text: str) -> Job:
    """Parse what `Job.dump` rendered."""
    return decode(Job, json.loads(text), place="job")


def read_job(environ: Mapping[str, str] = os.environ) -> Job:
    """Read the job that the environment names; raises `ProcessError` without one."""
    path = environ.get(JOB_VARIABLE)
    if not path:
        raise ProcessError(f"{JOB_VARIABLE} is not set", hint="this plugin is loaded by `lockgate run` alone")
    return parse_job(Path(path).read_text(encoding="utf-8"))
