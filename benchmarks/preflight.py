"""Time of the pre-flight without torch, against asking torch. Runs on a fake machine of 8 GPUs; cc is needed.

    python benchmarks/preflight.py [--rounds 20]

Each round is a fresh process that has the tool imported, as `lockgate run` has, and
then times one `verify_devices(deep=False)`: import of pynvml, NVML, all questions,
all checks. The peer is a fresh process that imports torch and counts the devices.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

BAR_MILLISECONDS = 50.0
ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "tests" / "devices" / "fake_nvml.c"

PREFLIGHT = """
import os, sys, time
from pathlib import Path
import ci.cli
from ci.devices.requirement import Requirement
from ci.devices.verify import verify_devices
wanted = Requirement(stage="multi_gpu", devices=2, ranks=2)
wall, cpu = time.perf_counter(), time.process_time()
found = verify_devices(wanted, environ=os.environ, root=Path("."), deep=False)
print((time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3, len(found.devices), "torch" in sys.modules)
wall = time.perf_counter()
verify_devices(wanted, environ=os.environ, root=Path("."), deep=False)
print((time.perf_counter() - wall) * 1e3)
"""

PEER = """
import time
wall, cpu = time.perf_counter(), time.process_time()
import torch
torch.cuda.device_count()
print((time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3)
"""


def build_fake(folder: Path) -> None:
    """Build the fake NVML library."""
    library = folder / "libnvidia-ml.so.1"
    words = ["cc", "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
    subprocess.run(words, check=True)


def run(code: str, environ: dict[str, str]) -> list[str]:
    """Run a fresh process; give the words that it printed."""
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    return done.stdout.split()


def main() -> int:
    """Measure, print, and answer 1 when the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        build_fake(Path(folder))
        environ = os.environ | {"LD_LIBRARY_PATH": folder, "FAKE_NVML_COUNT": "8", "PYTHONPATH": str(ROOT)}
        rows = [run(PREFLIGHT, environ) for _ in range(rounds)]
        assert all(row[2:4] == ["8", "False"] for row in rows), rows
        first = median(float(row[0]) for row in rows)
        cpu = median(float(row[1]) for row in rows)
        again = median(float(row[4]) for row in rows)
        try:
            peer = [run(PEER, environ) for _ in range(3)]
        except subprocess.CalledProcessError:
            peer = []
    bar = f"bar {BAR_MILLISECONDS:g} ms"
    print(f"pre-flight of 8 fake GPUs, median of {rounds}: {first:.1f} ms wall, {cpu:.1f} ms CPU ({bar})")
    print(f"the same again in one process (pynvml imported): {again:.2f} ms")
    if peer:
        wall, used = (median(float(row[at]) for row in peer) for at in (0, 1))
        times = f"{wall / first:.0f} times the pre-flight"
        print(f"import torch and count devices: {wall:.0f} ms wall, {used:.0f} ms CPU: {times}")
    else:
        print("torch is not installed: not compared")
    return 1 if first > BAR_MILLISECONDS else 0


if __name__ == "__main__":
    sys.exit(main())
