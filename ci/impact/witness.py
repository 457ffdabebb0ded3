"""A pytest plugin that writes what failed: one JSON list of node ids, collection errors by their file.

Loaded with `-p ci.impact.witness` by `lockgate replay --verify` and the
benchmarks; the file is named by `LOCKGATE_WITNESS`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

VARIABLE = "LOCKGATE_WITNESS"


def pytest_configure(config: pytest.Config) -> None:
    """Watch this run, if anyone wants to know."""
    target = os.environ.get(VARIABLE)
    if target:
        config.pluginmanager.register(Witness(Path(target)), "lockgate-witness")


class Witness:
    """Collects the ids of failures until the session ends."""

    def __init__(self, target: Path) -> None:
        """Write to `target` at the end."""
        self.target = target
        self.failed: set[str] = set()
        self.ran: set[str] = set()

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note a test that failed in any phase."""
        self.ran.add(report.nodeid)
        if report.failed:
            self.failed.add(report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        """Note a file that could not be collected."""
        if report.failed:
            self.failed.add(report.nodeid)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write what was seen."""
        document = {"failed": sorted(self.failed), "ran": len(self.ran), "exit": int(exitstatus)}
        self.target.write_text(json.dumps(document), encoding="utf-8")
