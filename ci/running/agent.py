"""One node's part in sets that span several: it starts torchrun when the controller says so, and ends it.

    LOCKGATE_TOKEN=<secret> python -m ci.running.agent HOST:PORT

The agent lives as long as the controller does; when the wire is cut it ends
everything that it has started.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ci import process
from ci.errors import CiError, InfrastructureError, UsageError
from ci.output import Output
from ci.running.channel import Channel, Message, connect
from ci.running.spec import RankSpec
from ci.running.tree import find_marked, kill_all

TOKEN = "LOCKGATE_TOKEN"  # noqa: S105 - the name of the variable
WAIT_FOR_CONTROLLER = 300.0
PAUSE = 0.5
MONITOR_EVERY = "5"
"""Seconds between torchrun's looks at its workers: it must not end a crashed rank's peers before they are heard."""


def start_node(order: Mapping[str, Any], *, cwd: Path, environ: Mapping[str, str]) -> subprocess.Popen[str]:
    """Start this node's ranks of a set: torchrun with a c10d rendezvous that is new for the set."""
    spec = order["spec"]
    file = Path(tempfile.mkdtemp(prefix="lockgate-node-"), "spec.json")
    file.write_text(json.dumps(spec), encoding="utf-8")
    words = [
        sys.executable, "-m", "torch.distributed.run", f"--nnodes={order['nodes']}",
        f"--nproc-per-node={order['per_node']}", "--rdzv-backend=c10d", f"--rdzv-endpoint={order['endpoint']}",
        f"--rdzv-id={order['id']}", "--max-restarts=0", f"--monitor-interval={MONITOR_EVERY}",
        "-m", "ci.running.rank", str(file),
    ]  # fmt: skip
    with Path(f"{spec['log']}node{order['node']}.log").open("ab") as log:
        return process.start(words, cwd=cwd, environ={**environ, **spec["environ"]}, stdout=log, stderr=log)


def make_order(name: str, spec: RankSpec, *, nodes: int, endpoint: str) -> Message:
    """Say what every node has to start for a set."""
    return {
        "do": "start", "set": name, "nodes": nodes, "per_node": spec.world // nodes, "endpoint": endpoint,
        "id": f"{name}-{spec.token[:8]}", "node": 0, "spec": asdict(spec),
    }  # fmt: skip


def serve(channel: Channel, *, cwd: Path, environ: Mapping[str, str]) -> None:
    """Do what the controller says until it is gone, then end what is left."""
    sets: dict[str, tuple[str, subprocess.Popen[str]]] = {}
    try:
        while (order := channel.receive()) is not None:
            if order["do"] == "start":
                sets[order["set"]] = (order["mark"], start_node(order, cwd=cwd, environ=environ))
            elif order["do"] == "signal":
                kill_all(order["pids"], order["number"])
            elif order["do"] == "drop" and order["set"] in sets:
                end_set(*sets.pop(order["set"]))
    finally:
        for mark, child in sets.values():
            end_set(mark, child)


def end_set(mark: str, child: subprocess.Popen[str]) -> None:
    """End torchrun, its ranks and what their tests have started."""
    kill_all(find_marked(mark) - {os.getpid()})
    process.end_group(child, grace=PAUSE)


def main(arguments: list[str], environ: Mapping[str, str] = os.environ) -> int:
    """Join a controller; waits for one that is not up yet."""
    try:
        if len(arguments) != 1 or ":" not in arguments[0]:
            raise UsageError("expected one word, HOST:PORT", hint="python -m ci.running.agent HOST:PORT")
        if not environ.get(TOKEN):
            raise UsageError(f"{TOKEN} is not set", hint="give it the same secret as on the first node")
        end = time.monotonic() + WAIT_FOR_CONTROLLER
        while True:
            try:
                channel = connect(arguments[0], limit=PAUSE * 10)
                break
            except OSError as error:
                if time.monotonic() > end:
                    raise InfrastructureError(f"no controller listens at {arguments[0]}: {error}") from error
                time.sleep(PAUSE)
        channel.send({"say": "agent", "token": environ[TOKEN]})
        serve(channel, cwd=Path.cwd(), environ=environ)
    except CiError as error:
        Output.for_process().error(error)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
