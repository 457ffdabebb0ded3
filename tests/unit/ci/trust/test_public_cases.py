"""Cases known from public workflows, written anew, each with its verdict per event."""

from __future__ import annotations

import pytest

from ci.trust.policy import Policy

pytestmark = pytest.mark.cpu

FORK_OPENED = {
    "fork-pr:opened",
    "fork-pr:synchronize",
    "fork-pr:reopened",
    "deleted-fork-pr:reopened",
    "fork-pr-from-default-name:opened",
}
MACHINE = "untrusted-on-self-hosted"


@pytest.fixture
def audit(audit_texts, data):
    def run(name, **settings):
        text = (data / "cases" / f"{name}.yml").read_text(encoding="utf-8")
        return audit_texts(text, policy=Policy(**settings))

    return run


def test_realigned_design_passes_level_a(audit):
    found = audit("realigned")
    assert found.rules() == set()
    assert found.reaching() == {
        (job, event)
        for job in ("one_gpu", "two_gpus")
        for event in ("schedule", "dispatch:default", "dispatch:branch", "internal-pr:labeled=run-gpu")
    }
    assert found.state("cpu", "fork-pr:opened") == "runs"
    assert found.cell("cpu", "fork-pr:opened").runner.kind.value == "hosted"
    assert found.state("one_gpu", "fork-pr:labeled=run-gpu") == "skipped"
    assert "head.repo.full_name" in found.cell("one_gpu", "fork-pr:labeled=run-gpu").why
    assert found.state("one_gpu", "internal-pr:synchronize+label=run-gpu") == "skipped"
    assert found.cell("one_gpu", "dispatch:branch").code.value == "internal"


def test_its_first_revision_fails_for_every_one_of_three_jobs(audit):
    found = audit("first-revision")
    failing = {(one.job, one.event) for one in found.result.findings if one.rule == MACHINE}
    assert failing == {(job, event) for job in ("cpu", "one_gpu", "two_gpus") for event in FORK_OPENED}


def test_comparing_the_fork_flag_with_false_admits_a_deleted_fork(audit):
    found = audit("deleted-fork", dependabot_on_self_hosted=True)
    assert found.events(MACHINE) == {"deleted-fork-pr:reopened"}
    assert found.rules() == {MACHINE}


def test_comparing_the_head_repository_admits_no_fork(audit):
    found = audit("head-repository", dependabot_on_self_hosted=True)
    assert found.rules() == set()
    assert found.reaching() == {("gpu", "internal-pr:opened"), ("gpu", "dependabot-pr:opened")}


@pytest.mark.parametrize("name", ["vacuous-repository", "vacuous-fork-flag"])
def test_the_base_repository_is_no_fork_guard(audit, name):
    assert audit(name).events(MACHINE) == FORK_OPENED


def test_a_persistent_label_lets_a_later_push_run_unreviewed(audit):
    found = audit("persistent-label")
    assert found.events(MACHINE) == {
        "fork-pr:labeled=run-gpu",
        "fork-pr:synchronize+label=run-gpu",
        "deleted-fork-pr:labeled=run-gpu",
    }
    assert found.state("gpu", "fork-pr:synchronize") == "skipped"
    assert found.state("gpu", "fork-pr:labeled=(other)") == "skipped"


def test_the_label_action_alone_still_runs_fork_code_but_no_later_push(audit):
    found = audit("label-action")
    assert found.events(MACHINE) == {"fork-pr:labeled=run-gpu", "deleted-fork-pr:labeled=run-gpu"}
    assert found.state("gpu", "fork-pr:synchronize+label=run-gpu") == "skipped"


@pytest.mark.parametrize("name", ["past-skipped-gate-always", "past-skipped-gate-not-cancelled"])
def test_a_status_function_runs_past_a_skipped_gate_and_the_next_job_is_skipped_again(audit, name):
    found = audit(name)
    assert found.state("gate", "fork-pr:opened") == "skipped"
    assert found.state("gpu", "fork-pr:opened") == "runs"
    assert found.state("after", "fork-pr:opened") == "skipped"
    assert {one.job for one in found.result.findings if one.rule == MACHINE} == {"gpu"}


def test_a_job_behind_a_skipped_gate_is_skipped(audit):
    found = audit("behind-gate", dependabot_on_self_hosted=True)
    assert found.rules() == set()
    assert found.state("gpu", "internal-pr:opened") == "runs"
    assert "gate" in found.cell("gpu", "fork-pr:opened").why


def test_variables_are_empty_for_forks_so_the_fallback_decides(audit):
    found = audit("vars-fallback")
    cell = found.cell("test", "fork-pr:opened")
    assert (cell.runner.kind.value, cell.runner.labels) == ("self-hosted", ("gpu-pool",))
    assert found.cell("test", "internal-pr:opened").runner.kind.value == "unknown"
    assert found.events(MACHINE) == FORK_OPENED
    settled = audit("vars-fallback", variables={"RUNNER": "ubuntu-latest"})
    assert settled.cell("test", "internal-pr:opened").runner.kind.value == "hosted"
    assert settled.events(MACHINE) == FORK_OPENED


def test_the_author_of_the_issue_is_not_the_author_of_the_comment(audit):
    confused = audit("issue-association")
    assert confused.events("outsider-on-self-hosted") == {"comment:NONE@internal-pr"}
    assert confused.state("gpu", "comment:NONE@fork-pr") == "skipped"
    right = audit("comment-association")
    assert right.rules() == set()
    assert {event for _, event in right.reaching()} == {"comment:MEMBER@fork-pr"}


def test_a_run_that_takes_repository_and_commit_from_an_artifact(audit):
    found = audit("run-artifact")
    cell = found.cell("gpu", "workflow-run:fork-pr-from-default-name")
    assert (cell.state.value, cell.code.value) == ("runs", "untrusted")
    assert found.events(MACHINE) == {"workflow-run:fork-pr-from-default-name"}
    assert "artifact-from-lower-trust" in found.rules()
    assert found.state("gpu", "workflow-run:fork-pr") == "skipped"
    assert found.cell("gpu", "workflow-run:push-default").code.value == "trusted"


def test_an_environment_without_reviewers_gates_nothing(audit):
    found = audit("environment")
    assert found.events(MACHINE) == FORK_OPENED
    assert found.cell("gpu", "fork-pr:opened").environment == "gpu-approval"


def test_an_environment_with_attested_reviewers_waits(audit):
    found = audit("environment", reviewed_environments=frozenset({"gpu-approval"}))
    cell = found.cell("gpu", "fork-pr:opened")
    assert (cell.state.value, cell.code.value) == ("waits", "approved")
    assert found.events(MACHINE) == set()


def test_a_computed_environment_is_empty_for_a_deleted_fork(audit):
    found = audit(
        "computed-environment", reviewed_environments=frozenset({"gpu-approval"}), dependabot_on_self_hosted=True
    )
    assert found.state("gpu", "fork-pr:opened") == "waits"
    assert found.cell("gpu", "deleted-fork-pr:reopened").environment is None
    assert found.events(MACHINE) == {"deleted-fork-pr:reopened"}


def test_a_required_check_that_a_condition_skips_counts_as_success(audit):
    found = audit("required-skip", required_checks=("gpu",), dependabot_on_self_hosted=True)
    assert found.events("required-check-skipped") == {"fork-pr:opened", "fork-pr:synchronize"}


def test_a_fork_branch_named_main_cancels_the_nightly(audit):
    found = audit("branch-named-main")
    assert found.events("shared-concurrency") == {"fork-pr-from-default-name:opened"}
    (finding,) = [one for one in found.result.findings if one.rule == "shared-concurrency"]
    assert "cancel" in finding.message
    assert "schedule" in finding.message


@pytest.mark.parametrize("name", ["text-after-fence", "folded-fence"])
def test_text_outside_the_fence_is_always_true(audit, name):
    found = audit(name)
    assert found.events(MACHINE) == FORK_OPENED
    assert "always true" in found.cell("gpu", "fork-pr:opened").why


def test_a_stripped_block_is_the_expression(audit):
    assert audit("stripped-fence", dependabot_on_self_hosted=True).rules() == set()
