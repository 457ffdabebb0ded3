from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.report.model import Outcome
from ci.running.merge import AGREED, RankAnswer, merge_answers

pytestmark = pytest.mark.cpu

ANSWERS = st.builds(
    RankAnswer,
    rank=st.integers(0, 7),
    outcome=st.sampled_from([None, *(one for one in Outcome if one not in (Outcome.NOT_RUN, Outcome.INFRASTRUCTURE))]),
    reason=st.text(max_size=5),
    sequence=st.sampled_from(["none", "1", "2"]),
    died=st.sampled_from(["", "SIGSEGV", "exited with code 0 in the middle of a test"]),
    trouble=st.sampled_from(["", "asked to end"]),
)


@given(st.lists(ANSWERS, min_size=1, max_size=4), st.booleans())
def test_only_agreement_is_good_and_everything_else_is_red(answers, graced):
    verdict = merge_answers(answers, graced=graced)
    words = {answer.word for answer in answers}
    if len(words) == 1 and words <= set(AGREED):
        assert verdict.outcome in words
    else:
        assert verdict.outcome.is_red
    if verdict.keeps_set:
        assert all(answer.outcome is not None for answer in answers)
        assert len({answer.sequence for answer in answers}) == 1


def rank(number: int, outcome: Outcome | None = Outcome.PASSED, **more: str) -> RankAnswer:
    return RankAnswer(rank=number, outcome=outcome, **more)


def test_a_crash_outranks_the_failures_that_it_causes():
    answers = [rank(0, Outcome.FAILED, reason="Connection closed by peer"), rank(1, None, died="SIGSEGV")]
    verdict = merge_answers(answers)
    assert verdict.outcome is Outcome.CRASHED
    assert verdict.reason == "rank 1 crashed: SIGSEGV; rank 0 failed: Connection closed by peer"
    assert verdict.blamed == 1
    assert not verdict.keeps_set


def test_a_peer_that_waits_is_late_because_of_the_rank_that_did_not_pass():
    verdict = merge_answers([rank(0, None), rank(1, Outcome.SKIPPED, reason="no")], limit="grace of 5 s", graced=True)
    assert verdict.outcome is Outcome.FAILED
    assert verdict.reason == "rank 1 skipped: no; rank 0 was still in the test (grace of 5 s)"


def test_a_hang_at_the_test_limit_is_named_with_the_limit():
    verdict = merge_answers([rank(0), rank(1, None), rank(2, None)], limit="test limit of 60 s")
    assert verdict.outcome is Outcome.HUNG
    assert verdict.reason == "rank 1 hung; rank 0 passed; rank 2 hung (test limit of 60 s)"


def test_an_error_of_one_ranks_fixture_is_an_error():
    assert merge_answers([rank(0), rank(1, Outcome.ERROR)]).outcome is Outcome.ERROR
    assert merge_answers([rank(0, Outcome.FAILED), rank(1, Outcome.ERROR)]).outcome is Outcome.FAILED


def test_ranks_out_of_step_drop_the_set_and_an_assertion_after_the_collective_keeps_it():
    apart = merge_answers([rank(0, sequence="3"), rank(1, sequence="2")])
    assert apart.outcome is Outcome.PASSED
    assert apart.why_dropped == "the ranks are out of step (rank 0 at 3, rank 1 at 2)"
    together = merge_answers([rank(0, Outcome.FAILED, sequence="3"), rank(1, sequence="3")])
    assert together.keeps_set


def test_a_rank_may_not_end_the_session():
    verdict = merge_answers([rank(0), rank(1, trouble="asked to end the whole session")])
    assert verdict.outcome is Outcome.FAILED
    assert "asked to end the whole session" in verdict.reason


def test_one_rank_alone_is_told_without_a_number():
    assert merge_answers([rank(0, Outcome.FAILED, reason="assert 1 == 2")]).reason == "assert 1 == 2"
    assert merge_answers([rank(0, None)], limit="test limit of 3 s").reason == "ran past the test limit of 3 s"


def test_equal_ranks_are_told_together():
    answers = [rank(0, Outcome.FAILED, reason="no"), *(rank(number) for number in (1, 2, 3))]
    assert merge_answers(answers).reason == "rank 0 failed: no; ranks 1, 2, 3 passed"
