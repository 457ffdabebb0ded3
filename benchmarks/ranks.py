"""Two-rank tests on persistent ranks, against spawn in every test and against plain pytest under torchrun.

    python benchmarks/ranks.py [--tests 20] [--without-torchrun]

Each way runs the same all-reduce as often as there are tests. Wall and CPU
seconds are of the whole command, all descendants included. Ratios against spawn
count: absolute times depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ci.process import adopt_orphans

SOURCES = Path(__file__).resolve().parents[1]
CONFIGURATION = """
[tool.lockgate.stages.ranks]
select = "multi_gpu"
ranks = 2
[tool.pytest.ini_options]
markers = ["multi_gpu: two ranks"]
"""
REDUCE = """
import pytest, torch, torch.distributed as dist
def reduce():
    value = torch.ones(1024)
    dist.all_reduce(value)
    assert value[0] == dist.get_world_size()
"""
PERSISTENT = """
@pytest.mark.multi_gpu
@pytest.mark.parametrize("number", range({tests}))
def test_reduce(number):
    reduce()
"""
SPAWN = """
import torch.multiprocessing as mp
def work(rank, store):
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
    reduce()
    dist.destroy_process_group()
@pytest.mark.parametrize("number", range({tests}))
def test_reduce(number, tmp_path):
    mp.spawn(work, (str(tmp_path / "store"),), nprocs=2)
"""
TORCHRUN = """
@pytest.fixture(scope="session", autouse=True)
def group():
    dist.init_process_group("gloo")
    yield
    dist.destroy_process_group()
@pytest.mark.parametrize("number", range({tests}))
def test_reduce(number):
    reduce()
"""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one way took, in seconds."""

    name: str
    wall: float
    cpu: float


def measure(name: str, commands: Sequence[Sequence[str]], *, cwd: Path) -> Cost:
    """Run commands one after the other; the CPU seconds are those of every descendant."""
    environ = {**os.environ, "PYTHONPATH": str(SOURCES), "OMP_NUM_THREADS": "1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.monotonic()
    for command in commands:
        done = subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{name} failed:\n{done.stdout}{done.stderr}")
    wall = time.monotonic() - begin
    with suppress(ChildProcessError):  # orphans come to us: their time counts too
        while True:
            os.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(name=name, wall=wall, cpu=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def read_overheads(folder: Path) -> list[float]:
    """Give, for every test, the seconds between dispatch and verdict that no rank spent in the test."""
    spent: dict[str, float] = {}
    for path in folder.glob("events-s*.jsonl"):
        for event in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
            if event["event"] == "rank":
                spent[event["test"]] = max(spent.get(event["test"], 0.0), event["duration"])
    events = [json.loads(line) for line in (folder / "events-main.jsonl").read_text(encoding="utf-8").splitlines()]
    started = {event["test"]: event["t"] for event in events if event["event"] == "start"}
    return [
        event["t"] - started[event["test"]] - spent[event["test"]] for event in events if event["event"] == "finish"
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", type=int, default=20)
    parser.add_argument("--without-torchrun", action="store_true", help="leave the two slow ways out")
    options = parser.parse_args()
    tests = options.tests
    adopt_orphans()
    pytest_words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    with tempfile.TemporaryDirectory(prefix="lockgate-bench-") as place:
        root = Path(place)
        (root / "pyproject.toml").write_text(CONFIGURATION, encoding="utf-8")
        for name, body in (("persistent", PERSISTENT), ("spawn", SPAWN), ("torchrun", TORCHRUN)):
            (root / f"test_{name}.py").write_text(REDUCE + body.format(tests=tests), encoding="utf-8")
        costs = [
            measure("persistent ranks", [[sys.executable, "-m", "ci", "run", "ranks", "test_persistent.py"]], cwd=root),
            measure("spawn in every test", [[*pytest_words, "test_spawn.py"]], cwd=root),
        ]
        if not options.without_torchrun:
            each = [[*torchrun, "-m", "pytest", "-q", f"test_torchrun.py::test_reduce[{n}]"] for n in range(tests)]
            costs += [
                measure("torchrun per test", each, cwd=root),
                measure(
                    "torchrun once (can be falsely green)",
                    [[*torchrun, "-m", "pytest", "-q", "test_torchrun.py"]],
                    cwd=root,
                ),
            ]
        overheads = read_overheads(root / ".lockgate" / "report" / "ranks")
    spawn = costs[1]
    print(f"{tests} two-rank tests, gloo, Python {sys.version.split()[0]}, {os.cpu_count()} cores")
    print(f"{'way':38}{'wall s':>9}{'CPU s':>9}{'wall x':>9}{'CPU x':>9}   (x: spawn's over this one's)")
    for cost in costs:
        ratios = f"{spawn.wall / cost.wall:9.1f}{spawn.cpu / cost.cpu:9.1f}"
        print(f"{cost.name:38}{cost.wall:9.2f}{cost.cpu:9.2f}{ratios}")
    low, high = min(overheads), max(overheads)
    middle = statistics.median(overheads)
    print(
        f"overhead per test on persistent ranks: median {middle * 1e3:.1f} ms, {low * 1e3:.1f} to {high * 1e3:.1f} ms"
    )


if __name__ == "__main__":
    main()
