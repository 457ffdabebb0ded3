"""Reports to render: a function that makes one, and one that makes a result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ci.report.model import DeviceRecord, Mark, Outcome, RankResult, RunReport, TestResult

START = 1_700_000_000.0
NASTY = "</script><b>&\"'`|\x00\x1b[31m\ud800 ü \u2028"


@pytest.fixture
def result() -> Callable[..., TestResult]:
    """Give a function that makes a passed result; keywords override its fields."""

    def make(name: str, **fields: Any) -> TestResult:
        values: dict[str, Any] = {"outcome": Outcome.PASSED, "duration": 1.0, "started": START}
        return TestResult(id=name, **(values | fields))

    return make


@pytest.fixture
def report() -> Callable[..., RunReport]:
    """Give a function that makes a finished green report of these results."""

    def make(*results: TestResult, **fields: Any) -> RunReport:
        values: dict[str, Any] = {
            "stage": "multi_gpu",
            "commit": "0123456789abcdef",
            "started": START - 1,
            "finished": START + 20,
            "exit_code": 0,
        }
        return RunReport(results=results, **(values | fields))

    return make


@pytest.fixture
def rich_report(report: Callable[..., RunReport], result: Callable[..., TestResult]) -> RunReport:
    """Give a report that holds one of everything, with text that no format may trip over."""
    devices = tuple(DeviceRecord(uuid=f"GPU-{one}", index=one, name="Fake H200", capability="9.0") for one in range(2))
    both = tuple(device.uuid for device in devices)
    ranks = (
        RankResult(rank=0, outcome=Outcome.PASSED, duration=1.0, device="GPU-0"),
        RankResult(rank=1, outcome=Outcome.CRASHED, duration=0.5, device="GPU-1", reason=NASTY),
    )
    rows = [
        result(
            f"tests/test_a.py::test_{outcome.value}[{NASTY}]",
            outcome=outcome,
            devices=both,
            width=2,
            started=START + at,
        )
        for at, outcome in enumerate(Outcome)
    ]
    rows.append(
        result("tests/test_a.py::C::test_ranks", outcome=Outcome.CRASHED, ranks=ranks, reason=NASTY, output=NASTY * 3)
    )
    marks = (Mark(time=START + 2, kind="restart", text=NASTY, devices=both),)
    return report(*rows, devices=devices, marks=marks, exit_code=1, reasons=(NASTY,), notes=(NASTY,))
