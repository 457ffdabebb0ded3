"""A repository of its own for each test, the tool as its users start it, and what the run left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import uuid
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ci.running.tree import find_marked

SOURCES = Path(__file__).resolve().parents[2]
CONFIGURATION = """
[tool.lockgate.stages.ranks]
select = "multi_gpu"
ranks = 2
test_timeout = 3
grace = 1
timeout = 90
[tool.lockgate.stages.plain]
select = "cpu"
test_timeout = 3
timeout = 60
[tool.pytest.ini_options]
addopts = ["--strict-markers"]
testpaths = ["tests"]
filterwarnings = ["error"]
markers = ["cpu: tier", "gpu: tier", "multi_gpu: tier", "slow: schedule", "flaky: reruns", "own: of this repository"]
"""
HEADLINE = re.compile(r"\w+( \[.*\])?: (green|red|nothing|never)")
LIGHT = ("--process-group", "none", "--preload", "")


def heed_interrupts() -> None:
    """Give SIGINT its default meaning, in a child before it becomes another program."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@dataclass(frozen=True, kw_only=True)
class Ran:
    """One finished run."""

    code: int
    output: str
    seconds: float
    folder: Path
    left: set[int]

    @property
    def report(self) -> dict[str, Any]:
        return json.loads((self.folder / "report.json").read_text(encoding="utf-8"))

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """Results by the test's bare name."""
        return {result["id"].rpartition("::")[2]: result for result in self.report["results"]}

    @property
    def outcomes(self) -> dict[str, str]:
        return {name: result["outcome"] for name, result in self.results.items()}

    @property
    def junit(self) -> dict[str, list[str]]:
        """Testcase name -> tags of its children that are verdicts."""
        cases = ET.parse(self.folder / "junit.xml").getroot().iter("testcase")
        verdicts = ("failure", "error", "skipped")
        return {case.attrib["name"]: [child.tag for child in case if child.tag in verdicts] for case in cases}

    @property
    def first_line(self) -> str:
        """The summary's first line."""
        return next(line for line in self.output.splitlines() if HEADLINE.match(line))


class Project:
    """A repository with a stage table, whose tests the tool runs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tag = f"LOCKGATE_TEST_{uuid.uuid4().hex}"
        self.write("pyproject.toml", CONFIGURATION)

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    def environ(self, more: Mapping[str, str]) -> dict[str, str]:
        hidden = ("CI", "LOCKGATE_", "GITHUB_", "PYTEST_", "COVERAGE_", "CUDA_", "NOX_")
        base = {
            key: value for key, value in os.environ.items() if not key.startswith(hidden) or key == "LOCKGATE_LOCK_DIR"
        }
        locks = self.root / ".locks"
        return {**base, "PYTHONPATH": str(SOURCES), "LOCKGATE_LOCK_DIR": str(locks), self.tag: "1", **more}

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "ci", "run", *words]

    def start(self, *words: str, environ: Mapping[str, str] = {}, **keywords: Any) -> subprocess.Popen[str]:
        # As from a terminal: a shell starts its background jobs, and so all that they start, with SIGINT ignored.
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "preexec_fn": heed_interrupts, **keywords}
        return subprocess.Popen(self.command(*words), cwd=self.root, env=self.environ(environ), text=True, **streams)

    def run(self, stage: str, *words: str, environ: Mapping[str, str] = {}, limit: float = 100.0) -> Ran:
        """Run a stage as a person does; `left` are the processes of the run that are there a moment later."""
        begin = time.monotonic()
        child = self.start(stage, *words, environ=environ)
        output, _ = child.communicate(timeout=limit)
        return self.finished(child.returncode, output, time.monotonic() - begin, stage, words)

    def ranks(self, *words: str, environ: Mapping[str, str] = {}) -> Ran:
        """Run the stage of ranks without torch."""
        return self.run("ranks", *LIGHT, *words, environ=environ)

    def finished(self, code: int, output: str, seconds: float, stage: str, words: tuple[str, ...] = ()) -> Ran:
        folder = self.root / ".lockgate" / "report" / stage
        if "--report" in words:
            folder = self.root / words[words.index("--report") + 1]
        return Ran(code=code, output=output, seconds=seconds, folder=folder, left=self.living())

    def living(self) -> set[int]:
        """The processes that carry this test's mark."""
        return find_marked(self.tag) - {os.getpid()}

    def wait_until(self, condition: Any, limit: float = 20.0) -> bool:
        end = time.monotonic() + limit
        while time.monotonic() < end:
            if condition():
                return True
            time.sleep(0.05)
        return False


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)
