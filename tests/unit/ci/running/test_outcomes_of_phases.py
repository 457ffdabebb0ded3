from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.report.model import Outcome
from ci.running.outcome import OTHER, Phase, decide_outcome, find_skip_class, is_declared

pytestmark = pytest.mark.cpu


def phase(when: str, outcome: str = "passed", **more: object) -> Phase:
    return Phase(when=when, outcome=outcome, **more)


GOOD = [phase("setup"), phase("call"), phase("teardown")]
CASES = {
    "all well": (GOOD, Outcome.PASSED, ""),
    "the test fails": ([phase("setup"), phase("call", "failed", reason="no"), phase("teardown")], Outcome.FAILED, "no"),
    "setup fails": ([phase("setup", "failed", reason="no"), phase("teardown")], Outcome.ERROR, "setup failed: no"),
    "teardown fails": ([*GOOD[:2], phase("teardown", "failed", reason="no")], Outcome.ERROR, "teardown failed: no"),
    "both fail: the test's failure is told": (
        [phase("setup"), phase("call", "failed", reason="a"), phase("teardown", "failed", reason="b")],
        Outcome.FAILED,
        "a",
    ),
    "skipped": ([phase("setup", "skipped", reason="why"), phase("teardown")], Outcome.SKIPPED, "why"),
    "xfailed": ([phase("setup"), phase("call", "skipped", xfail=True), phase("teardown")], Outcome.XFAILED, ""),
    "skipped, then its teardown fails": (
        [phase("setup"), phase("call", "skipped"), phase("teardown", "failed", reason="b")],
        Outcome.ERROR,
        "teardown failed: b",
    ),
    "no phase at all": ([], Outcome.ERROR, "the test gave no answer"),
    "no call": ([phase("setup"), phase("teardown")], Outcome.ERROR, "the test gave no answer"),
}


@pytest.mark.parametrize("name", CASES)
def test_phases_add_up(name):
    phases, outcome, reason = CASES[name]
    assert decide_outcome(phases) == (outcome, reason)


WORDS = st.sampled_from(["passed", "failed", "skipped"])


@given(st.lists(st.tuples(st.sampled_from(["setup", "call", "teardown"]), WORDS, st.booleans()), max_size=5))
def test_a_failed_phase_or_a_missing_call_is_never_a_pass(rows):
    phases = [phase(when, outcome, xfail=xfail) for when, outcome, xfail in rows]
    outcome, _ = decide_outcome(phases)
    if any(one.outcome == "failed" for one in phases):
        assert outcome in (Outcome.FAILED, Outcome.ERROR)
    if not any(one.when == "call" and one.outcome == "passed" for one in phases):
        assert outcome is not Outcome.PASSED


def test_classes_of_skips():
    assert find_skip_class("needs model-cache: org/name is not there") == "model-cache"
    assert find_skip_class("could not import 'torch.distributed': No module") == "import:torch.distributed"
    assert find_skip_class("unconditional skip") == OTHER


def test_a_row_allows_a_skip_by_its_class_or_by_a_pattern_of_its_reason():
    assert is_declared("cuda", "needs cuda: none", ["cuda"])
    assert is_declared(OTHER, "only on Windows", ["only on *"])
    assert not is_declared("cuda", "needs cuda: none", ["clickhouse", "only on *"])
    assert not is_declared("cuda", "needs cuda: none", [])
