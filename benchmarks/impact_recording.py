"""What recording costs: CPU of a test suite plain, recorded, under coverage's contexts and under pytest-testmon.

    python benchmarks/impact_recording.py PATH... [--rounds N] [--source src] [--only MODE ...] [-- PYTEST ARGS]

Each PATH is a project with its tests (an unpacked sdist will do); it is copied
aside and committed to a git repository of its own. Every round runs every mode
once, so that a busy machine slows all alike; the smallest CPU time (user +
system, children included) of each mode counts. Bars: `shared` at most +25 %
on Python 3.12 and later, +135 % before; `fork` at most 35 ms a test beside it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
MODES = ("plain", "shared", "fork", "coverage", "testmon")
LIMIT = 3600
FORK_BAR = 0.035


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One run: CPU seconds of it and all its children, and how many tests passed and ran."""

    seconds: float
    passed: int
    ran: int


def prepare(project: Path, work: Path) -> Path:
    """Copy a project and give it one commit."""
    root = work / project.name
    shutil.copytree(project, root, symlinks=True, ignore=shutil.ignore_patterns(".git", "__pycache__", ".testmondata"))
    (root / ".gitignore").write_text("__pycache__/\n*.pyc\n.testmondata*\n.coverage*\n.hypothesis/\n")
    identity = ["-c", "user.name=b", "-c", "user.email=b@example.org"]
    for words in (["init", "-q"], ["add", "-A", "-f"], ["commit", "-q", "-m", "base"]):
        subprocess.run(["git", *identity, *words], cwd=root, check=True, capture_output=True)
    return root


def command_of(mode: str, root: Path, arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """Give the command line of a mode and what it adds to the environment."""
    pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    if mode in ("shared", "fork"):
        folder = root.parent / f"record-{mode}"
        shutil.rmtree(folder, ignore_errors=True)
        extra = {
            "LOCKGATE_RECORD_DIR": str(folder),
            "LOCKGATE_RECORD_ISOLATION": mode,
            "LOCKGATE_RECORD_STAGE": "bench",
        }
        return [*pytest, "-p", "ci.manifest.plugin"], extra
    if mode == "coverage":
        settings = root.parent / "coveragerc"
        settings.write_text(
            f"[run]\ndata_file = {root.parent / 'peer.data'}\nsource = {root}\ndynamic_context = test_function\n"
        )
        return ["-m", "coverage", "run", f"--rcfile={settings}", *pytest], {}
    if mode == "testmon":
        data = root.parent / "testmondata"
        for path in (*root.parent.glob("testmondata*"), *root.glob(".testmondata*")):
            path.unlink()
        # It asks the cache for `--lf`.
        words = [word for word in pytest if word not in ("-p", "no:cacheprovider")]
        return [*words, "--testmon"], {"TESTMON_DATAFILE": str(data)}
    return pytest, {}


def measure(mode: str, root: Path, arguments: list[str], source: str) -> Sample:
    """Run one mode once."""
    words, extra = command_of(mode, root, arguments)
    inherited = {
        key: value for key, value in os.environ.items() if not key.startswith(("LOCKGATE", "COVERAGE", "PYTEST"))
    }
    path = os.pathsep.join([str(root / source), str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
    environ = {**inherited, **extra, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    with tempfile.TemporaryFile("w+") as stream:
        child = subprocess.Popen([sys.executable, *words], cwd=root, env=environ, stdout=stream, stderr=stream)
        _, _, usage = os.wait4(child.pid, 0)
        stream.seek(0)
        text = stream.read()
    counts = {
        word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|xfailed|error)", text[-2000:])
    }
    if not counts.get("passed"):
        raise SystemExit(f"{mode} on {root.name} passed no test:\n{text[-3000:]}")
    return Sample(seconds=usage.ru_utime + usage.ru_stime, passed=counts["passed"], ran=sum(counts.values()))


def bench(project: Path, options: argparse.Namespace) -> dict[str, object]:
    """Measure all modes on one project."""
    with tempfile.TemporaryDirectory(prefix="impact-recording-") as folder:
        root = prepare(project, Path(folder))
        best: dict[str, Sample] = {}
        for number in range(options.rounds):
            for mode in options.only:
                if mode == "testmon" and importlib.util.find_spec("testmon") is None:
                    continue
                if mode == "fork" and number:
                    continue
                sample = measure(mode, root, options.arguments, options.source)
                if mode not in best or sample.seconds < best[mode].seconds:
                    best[mode] = sample
                print(
                    f"  {project.name} round {number + 1} {mode}: {sample.seconds:.2f} s CPU, {sample.passed} passed",
                    file=sys.stderr,
                )
    return report(project.name, best)


def report(name: str, best: dict[str, Sample]) -> dict[str, object]:
    """Give overheads over the plain run, and the cost of a fork beside the shared one."""
    plain = best["plain"]
    values: dict[str, object] = {
        "project": name,
        "python": sys.version.split()[0],
        "tests": plain.passed,
        "plain_s": round(plain.seconds, 2),
    }
    for mode in ("shared", "coverage", "testmon"):
        if mode in best:
            values[f"{mode}_overhead_percent"] = round(100 * (best[mode].seconds / plain.seconds - 1), 1)
    if "fork" in best and "shared" in best:
        each = (best["fork"].seconds - best["shared"].seconds) / best["fork"].ran
        values["fork_ms_per_test"] = round(1000 * each, 1)
        values["fork_bar_met"] = each <= FORK_BAR
    values["passed"] = {mode: sample.passed for mode, sample in best.items()}
    bar = 25.0 if sys.version_info >= (3, 12) else 135.0
    if "shared" in best:
        values["bar_percent"] = bar
        values["bar_met"] = float(str(values["shared_overhead_percent"])) <= bar
    return values


def main() -> int:
    """Measure every project and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--source", default="src", help="folder of the project that goes onto PYTHONPATH")
    parser.add_argument("--only", nargs="+", choices=MODES, default=list(MODES))
    words = sys.argv[1:]
    place = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:place])
    options.arguments = words[place + 1 :]
    for path in options.paths:
        if not path.is_dir():
            parser.error(f"{path} is not a folder")
    print(json.dumps([bench(path.resolve(), options) for path in options.paths], indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
