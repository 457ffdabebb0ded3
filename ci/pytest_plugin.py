"""pytest's way to us, in every session where the package is installed: guards, and the tier audit on request.

Light: nothing is imported but what a session asks for.
"""

from __future__ import annotations

import os

import pytest

from ci.stages.markers import GUARD, MarkedTest, audit_tiers

GUARD_LINE = f"{GUARD}(need, *details): skip at set-up what this machine lacks; made by ci.stages.guards"
PORT_LINE = "lockgate_port(number, ...): the test binds this TCP port; no two of a machine run at once under lockgate"
MOST_LISTED = 20


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that asks for the audit."""
    parser.getgroup("lockgate").addoption(
        "--lockgate-audit",
        action="store_true",
        help="fail unless every collected test bears exactly one tier marker (cpu, native_backend, gpu, multi_gpu)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register our marks, so that strict markers accept them."""
    config.addinivalue_line("markers", GUARD_LINE)
    config.addinivalue_line("markers", PORT_LINE)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Audit the tiers of all collected tests, before any is deselected; raises `UsageError` listing the problems."""
    if not config.getoption("lockgate_audit", default=False):
        return

    tests = [MarkedTest(id=item.nodeid, marks=frozenset(mark.name for mark in item.iter_markers())) for item in items]
    problems = audit_tiers(tests)
    if problems:
        listed = "\n".join(f"  - {problem}" for problem in problems[:MOST_LISTED])
        more = f"\n  ... and {len(problems) - MOST_LISTED} more" if len(problems) > MOST_LISTED else ""
        raise pytest.UsageError(f"tier audit, {len(problems)} problem(s):\n{listed}{more}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose guard finds something missing; the first thing that happens to a test."""
    marks = list(item.iter_markers(GUARD))
    if marks:
        from ci.stages.guards import find_missing

        reason = find_missing(marks, os.environ)
        if reason:
            pytest.skip(reason)
