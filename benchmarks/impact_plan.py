# ruff: noqa: E501 - a row of a table is one line
"""Plan time and memory on synthetic repositories: `python benchmarks/impact_plan.py [--tests 1000 10000 100000]`.

Each size has a real git repository and a real manifest file. The plan runs as
people run it (`python -m ci plan`), so start-up, git and the manifest's check
count. Bar: 10,000 tests and 2,000 files with 50 changed in at most 1.0 s and
300 MB, and linear from there to 100,000 tests.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ci.impact.blocks import parse_blocks
from ci.manifest.model import Core, Header, Kind, Manifest, SourceFile, TestRecord, blob_id, pack
from ci.manifest.store import write_manifest

FUNCTIONS = 12
EXECUTED = 25
"""Blocks that a test executes in each of the modules that it uses."""

SETTINGS = '[tool.lockgate.stages.unit]\nselect = ""\ndocumentation = ["*.md"]\n'


def source_of(number: int, *, edit: str = "") -> str:
    """Write a module of some functions, importing two others."""
    lines = [f"import m{max(0, number - 7):05}", f"import m{number // 2:05}", "", f"LIMIT = {number}", ""]
    for place in range(FUNCTIONS):
        lines += [
            "",
            f"def f{place}(x):",
            f"    y = x + LIMIT + {place}{edit if place == 0 else ''}",
            "    return y * 2",
        ]
    return "\n".join(lines) + "\n"


def build(root: Path, *, tests: int, files: int, seed: int) -> tuple[Path, str]:
    """Write a repository of `files` modules and test files, and its manifest; give it and the base commit."""
    draw = random.Random(seed)
    modules = {f"src/m{number:05}.py": source_of(number) for number in range(files)}
    per_file = 25
    test_files = {
        f"tests/test_{number:05}.py": f"def test_x():\n    assert {number} >= 0\n"
        for number in range(tests // per_file)
    }
    texts = {"pyproject.toml": SETTINGS, **modules, **test_files}
    for path, text in texts.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    git(root, "init", "--quiet", "--initial-branch=main", ".")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "-m", "base")
    base = git(root, "rev-parse", "HEAD")
    names = list(modules)
    executed: dict[str, dict[str, list[int]]] = {}
    imported: dict[str, list[int]] = {}
    for number in range(tests):
        closure = draw.sample(names, min(len(names), 150))
        for path in closure:
            imported.setdefault(path, []).append(number)
        for path in closure[:8]:
            for place in draw.sample(range(FUNCTIONS), EXECUTED // 8):
                executed.setdefault(path, {}).setdefault(f"f{place}", []).append(number)
    for number in range(tests):
        imported.setdefault(f"tests/test_{number // per_file:05}.py", []).append(number)
    manifest = Manifest(
        header=Header(
            tool="benchmark", blocks_version=1, stage="unit", source=base, started=time.time(), created=time.time(),
            is_complete=True, core=Core.CTRACE,
        ),
        files={
            path: SourceFile(
                path=path, blob=blob_id(text.encode()), kind=Kind.PYTHON if path.endswith(".py") else Kind.DATA,
                blocks=parse_blocks(text.encode()).digests if path.endswith(".py") else {},
            )
            for path, text in texts.items()
        },
        tests=tuple(
            TestRecord(id=f"tests/test_{number // per_file:05}.py::test_x[{number}]", path=f"tests/test_{number // per_file:05}.py", outcome="passed", duration=0.01)
            for number in range(tests)
        ),
        executed={path: {name: pack(users) for name, users in blocks.items()} for path, blocks in executed.items()},
        imported={path: pack(users) for path, users in imported.items()},
        edges={path: frozenset(draw.sample(names, 10)) for path in names},
    )  # fmt: skip
    out = root.parent / "manifest.sqlite"
    write_manifest(manifest, out)
    return out, base


def change(root: Path, *, count: int, files: int, start: int = 0, edit: str = " + 1") -> str:
    """Change one function in some modules, and commit."""
    for number in range(start, files, max(1, files // count)):
        (root / f"src/m{number:05}.py").write_text(source_of(number, edit=edit))
    git(root, "commit", "--quiet", "--all", "-m", "change")
    return git(root, "rev-parse", "HEAD")


def git(root: Path, *words: str) -> str:
    """Run git without this machine's settings."""
    environ = {
        **os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_AUTHOR_NAME": "b", "GIT_AUTHOR_EMAIL": "b@example.invalid",
        "GIT_COMMITTER_NAME": "b", "GIT_COMMITTER_EMAIL": "b@example.invalid",
    }  # fmt: skip
    done = subprocess.run(["git", *words], cwd=root, env=environ, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def measure(root: Path, manifest: Path, base: str, head: str) -> dict[str, float]:
    """Run one plan in a process of its own; seconds of wall and CPU (children included), MB at most."""
    out = root.parent / "plan.json"
    words = ["plan", "unit", "--manifest", str(manifest), "--base", base, "--head", head, "--out", str(out)]
    code = (
        "import resource, sys; from ci.cli import main; code = main(sys.argv[1:]);"
        "print(max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)));"
        "sys.exit(code)"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, "--root", str(root), *words], capture_output=True, text=True, check=True
    )
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    plan = json.loads(out.read_text())
    return {
        "wall": wall,
        "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "mb": int(done.stdout.splitlines()[-1]) / 1024,
        "selected": plan["counts"]["selected"],
        "changes": len({item["path"] for item in plan["changes"]}),
        "decision": plan["decision"],
    }


def main() -> None:
    """Measure every size, twice with drift and without, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--files", type=int, default=2_000)
    parser.add_argument("--changed", type=int, default=50)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    print("| tests | files | changed | drifted | selected | wall s (best) | CPU s (best) | MB |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|")
    for tests in options.tests:
        with tempfile.TemporaryDirectory(prefix="lockgate-bench-") as name:
            root = Path(name) / "repository"
            root.mkdir()
            manifest, base = build(root, tests=tests, files=options.files, seed=1)
            head = change(root, count=options.changed, files=options.files)
            later = change(root, count=options.changed, files=options.files, start=3, edit=" + 2")
            for drifted, ends in ((0, (base, head)), (options.changed, (head, later))):
                runs = [measure(root, manifest, *ends) for _ in range(options.repeat)]
                best = min(runs, key=lambda run: run["wall"])
                cpu = min(run["cpu"] for run in runs)
                print(
                    f"| {tests} | {options.files} | {best['changes']} | {drifted} | {best['selected']} | {best['wall']:.2f} "
                    f"| {cpu:.2f} | {best['mb']:.0f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
