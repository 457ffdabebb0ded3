"""The simulation: ancestors, calls, matrices, runners, code, tokens, caches, groups."""

from __future__ import annotations

import pytest

from ci.trust.policy import OwnRunner, Policy
from ci.trust.trust import Kind

pytestmark = pytest.mark.cpu

STEPS = "steps: [{run: ls}]"


def workflow(jobs, on="push", top="permissions: {}"):
    return f"on: {on}\n{top}\njobs:\n{jobs}"


def job(name, *lines, runs_on="ubuntu-latest"):
    return "".join([f"  {name}:\n    runs-on: {runs_on}\n", *(f"    {line}\n" for line in lines), f"    {STEPS}\n"])


@pytest.mark.parametrize(
    ("condition", "state"),
    [
        ("", "skipped"),
        ("success()", "skipped"),
        ("always()", "runs"),
        ("${{ !cancelled() }}", "runs"),
        ("'!failure()'", "runs"),
        ("failure()", "maybe"),
        ("cancelled()", "maybe"),
        ("needs.gate.result == 'skipped'", "skipped"),
        ("always() && needs.gate.result == 'skipped'", "runs"),
        ("always() && needs.gate.result == 'success'", "skipped"),
        ("always() && needs.gate.outputs.go == 'true'", "skipped"),
        ("always() && needs.gate.outputs.go == ''", "runs"),
        ("always() && needs.first.result == 'success'", "skipped"),
        ("always() && needs.first == null", "runs"),
    ],
)
def test_a_job_after_a_skipped_gate(audit_texts, condition, state):
    text = workflow(
        job("first")
        + job("gate", "needs: first", "if: github.ref == 'refs/heads/other'")
        + job("last", "needs: gate", f"if: {condition}" if condition else "name: last")
    )
    found = audit_texts(text)
    assert found.state("gate", "push:default") == "skipped"
    assert found.state("last", "push:default") == state


@pytest.mark.parametrize(
    ("condition", "state"),
    [
        ("needs.ask.outputs.go == 'true'", "maybe"),
        ("failure()", "maybe"),
        ("needs.ask.result == 'failure'", "skipped"),
        ("always() && needs.ask.result == 'failure'", "maybe"),
        ("always() && needs.ask.result == 'success'", "runs"),
        ("cancelled()", "maybe"),
        ("success() && github.event_name == 'schedule'", "skipped"),
        ("failure() && github.event_name == 'schedule'", "skipped"),
        ("fromJSON('')", "skipped"),
    ],
)
def test_a_job_after_one_that_runs(audit_texts, condition, state):
    found = audit_texts(workflow(job("ask") + job("last", "needs: ask", f"if: {condition}")))
    assert found.state("last", "push:default") == state


def test_what_may_run_makes_its_descendants_unsure(audit_texts):
    found = audit_texts(
        workflow(
            job("ask") + job("maybe", "needs: ask", "if: needs.ask.outputs.go == '1'") + job("last", "needs: maybe")
        )
    )
    assert found.state("last", "push:default") == "maybe"


CALLED = """
on:
  workflow_call:
    inputs:
      runner: {type: string, default: gpu-pool}
      ref: {type: string}
permissions:
  contents: write
jobs:
  inner:
    runs-on: ${{ inputs.runner }}
    steps:
      - uses: actions/checkout@v4
        with: {ref: '${{ inputs.ref }}'}
      - run: ls
"""


def call(*lines, on="push", permissions="contents: read"):
    body = "".join(f"    {line}\n" for line in lines)
    return f"on: {on}\npermissions:\n  {permissions}\njobs:\n  outer:\n    uses: ./.github/workflows/called.yml\n{body}"


def test_a_called_workflow_is_expanded_with_inputs_and_capped_permissions(audit_texts):
    found = audit_texts(call(), files={"called.yml": CALLED})
    cell = found.cell("outer / inner", "push:default")
    assert (cell.runner.kind, cell.runner.labels) == (Kind.SELF_HOSTED, ("gpu-pool",))
    assert cell.token == {"contents": "read"}
    assert cell.secrets is False
    given = audit_texts(call("with: {runner: ubuntu-latest}", "secrets: inherit"), files={"called.yml": CALLED}).cell(
        "outer / inner", "push:default"
    )
    assert given.runner.kind is Kind.HOSTED
    assert given.secrets is True


def test_a_skipped_call_skips_all_its_jobs(audit_texts):
    found = audit_texts(
        call("if: github.ref == 'refs/heads/x'"),
        files={"called.yml": CALLED.replace("    steps", "    if: always()\n    steps")},
    )
    assert found.state("outer / inner", "push:default") == "skipped"


def test_a_matrix_of_calls_is_named_like_the_service_does(audit_texts):
    text = call("strategy: {matrix: {runner: [ubuntu-latest, gpu]}}", "with: {runner: '${{ matrix.runner }}'}")
    found = audit_texts(text, files={"called.yml": CALLED})
    assert found.cell("outer (gpu) / inner", "push:default").runner.kind is Kind.SELF_HOSTED
    assert found.cell("outer (ubuntu-latest) / inner", "push:default").runner.kind is Kind.HOSTED


def test_a_ref_given_to_a_called_workflow_keeps_its_taint(audit_texts):
    text = call(
        "with: {runner: ubuntu-latest, ref: '${{ github.event.pull_request.head.sha }}'}", on="pull_request_target"
    )
    found = audit_texts(text, files={"called.yml": CALLED})
    assert found.cell("outer / inner", "pr-target:fork").code.value == "untrusted"
    assert found.cell("outer / inner", "pr-target:internal").code.value == "internal"


@pytest.mark.parametrize(
    ("uses", "words"),
    [("./.github/workflows/nowhere.yml", "not there"), ("./.github/workflows/1.yml", "workflow_call")],
)
def test_a_call_of_what_cannot_be_called_is_invalid(audit_texts, uses, words):
    found = audit_texts(call().replace("./.github/workflows/called.yml", uses), workflow(job("a")))
    assert any(words in one.message for one in found.result.findings if one.rule == "invalid-workflow")
    assert found.state("outer", "push:default") == "invalid"


def test_workflows_that_call_each_other_end(audit_texts):
    loop = "on: {workflow_call: {}}\njobs:\n  again:\n    uses: ./.github/workflows/loop.yml\n"
    found = audit_texts(call().replace("called.yml", "loop.yml"), files={"loop.yml": loop})
    assert {cell.state.value for cell in found.cells.values()} <= {"invalid", "skipped"}


def test_a_remote_call_is_unknown_and_says_so(audit_texts):
    remote = "owner/shared/.github/workflows/x.yml@v1"
    text = f"on: pull_request\npermissions: {{}}\njobs:\n  outer:\n    uses: {remote}\n"
    cell = audit_texts(text).cell("outer", "fork-pr:opened")
    assert cell.runner.kind is Kind.UNKNOWN
    assert "not expanded" in cell.why
    mapped = audit_texts(text, policy=Policy(unknown_runners={remote.partition("@")[0]: Kind.HOSTED}))
    assert mapped.cell("outer", "fork-pr:opened").runner.kind is Kind.HOSTED
    assert mapped.rules() == set()


@pytest.mark.parametrize(
    ("runs_on", "kind"),
    [
        ("ubuntu-latest", "hosted"),
        ("Ubuntu-24.04-ARM", "hosted"),
        ("windows-2025", "hosted"),
        ("macos-15-xlarge", "hosted"),
        ("ubuntu-latest-16-cores", "self-hosted"),
        ("linux-amd64-gpu", "self-hosted"),
        ("[self-hosted, linux]", "self-hosted"),
        ("[ubuntu-latest, gpu]", "self-hosted"),
        ("{group: gpus}", "self-hosted"),
        ("{group: gpus, labels: ubuntu-latest}", "self-hosted"),
        ("{labels: ubuntu-latest}", "hosted"),
        ('${{ fromJSON(\'["self-hosted", "gpu"]\') }}', "self-hosted"),
        ("${{ github.event_name == 'push' && 'ubuntu-latest' || 'gpu' }}", "hosted"),
        ("${{ vars.RUNNER }}", "unknown"),
        ("${{ vars.RUNNER && 'gpu' || 'big-gpu' }}", "self-hosted"),
        ("${{ vars.RUNNER && 'gpu' || 'ubuntu-latest' }}", "unknown"),
        ("[self-hosted, '${{ vars.RUNNER }}']", "self-hosted"),
        ("[ubuntu-latest, '${{ vars.RUNNER }}']", "unknown"),
        ("linux-${{ vars.ARCH }}", "unknown"),
    ],
)
def test_machines(audit_texts, runs_on, kind):
    found = audit_texts(f"on: push\njobs:\n  a:\n    runs-on: {runs_on}\n    {STEPS}\n")
    assert found.cell("a", "push:default").runner.kind.value == kind


def test_the_policy_maps_machines(audit_texts):
    policy = Policy(
        hosted_labels=("*-cores",),
        unknown_runners={"${{ vars.RUNNER }}": Kind.HOSTED},
        runners={"Gpu": OwnRunner(ephemeral=True), "group:a": OwnRunner()},
    )
    text = workflow(
        job("a", runs_on="ubuntu-16-cores") + job("b", runs_on="${{ vars.RUNNER }}") + job("c", runs_on="gpu")
    )
    found = audit_texts(text, policy=policy)
    assert [found.cell(name, "push:default").runner.kind.value for name in "abc"] == ["hosted", "hosted", "self-hosted"]
    assert found.cell("c", "push:default").runner.ephemeral


def test_an_empty_machine_never_runs(audit_texts):
    found = audit_texts(workflow(job("a", runs_on="${{ vars.RUNNER }}"), on="pull_request"))
    assert found.state("a", "fork-pr:opened") == "invalid"
    assert found.state("a", "internal-pr:opened") == "runs"


TABLE = [
    ("fork-pr:opened", "untrusted", "read", False),
    ("dependabot-pr:opened", "dependency-bot", "read", True),
    ("internal-pr:opened", "internal", "write", True),
    ("push:default", "trusted", "write", True),
    ("push:feature", "internal", "write", True),
    ("push:tag", "trusted", "write", True),
    ("mirror:7", "vetted", "write", True),
    ("schedule", "trusted", "write", True),
    ("dispatch:default", "trusted", "write", True),
    ("dispatch:branch", "internal", "write", True),
    ("merge-group", "trusted", "write", True),
    ("comment:NONE@fork-pr", "trusted", "write", True),
    ("issues:opened", "trusted", "write", True),
    ("pr-target:fork", "trusted", "write", True),
    ("review:NONE@fork-pr", "untrusted", "read", False),
    ("release", "trusted", "write", True),
    ("repository-dispatch", "trusted", "write", True),
    ("workflow-run:fork-pr", "trusted", "write", True),
]
EVERYTHING = (
    "[pull_request, push, workflow_dispatch, merge_group, issue_comment, issues, pull_request_target, "
    "pull_request_review, release, repository_dispatch]"
)


@pytest.mark.parametrize(("event", "code", "token", "secrets"), TABLE)
def test_code_token_and_secrets_of_every_event(audit_texts, event, code, token, secrets):
    body = "permissions: {contents: write}\njobs:\n" + job("a")
    every = f"on: {EVERYTHING}\n" + body
    timed = "on: {schedule: [{cron: '0 0 * * *'}], workflow_run: {workflows: [x]}}\n" + body
    found = audit_texts(timed if event in ("schedule", "workflow-run:fork-pr") else every)
    cell = found.cell("a", event)
    assert (cell.state.value, cell.code.value, cell.token, cell.secrets) == ("runs", code, {"contents": token}, secrets)


@pytest.mark.parametrize(
    ("declared", "token"),
    [
        ("", {"default": "write"}),
        ("permissions: {}\n", {}),
        ("permissions: read-all\n", {"all": "read"}),
        ("permissions: write-all\n", {"all": "write"}),
        ("permissions: {contents: read, issues: none}\n", {"contents": "read"}),
    ],
)
def test_declared_permissions(audit_texts, declared, token):
    assert audit_texts(f"on: push\n{declared}jobs:\n" + job("a")).cell("a", "push:default").token == token


CHECKOUT = "    runs-on: ubuntu-latest\n    steps:\n"


@pytest.mark.parametrize(
    ("on", "step", "event", "code"),
    [
        (
            "pull_request_target",
            "{uses: actions/checkout@v4, with: {ref: '${{ github.event.pull_request.head.sha }}'}}",
            "pr-target:fork",
            "untrusted",
        ),
        (
            "pull_request_target",
            "{uses: Actions/Checkout@v4, with: {ref: 'refs/pull/${{ github.event.number }}/merge'}}",
            "pr-target:fork",
            "untrusted",
        ),
        (
            "pull_request_target",
            "{uses: actions/checkout@v4, with: {repository: '${{ github.event.pull_request.head.repo.full_name }}'}}",
            "pr-target:fork",
            "untrusted",
        ),
        (
            "pull_request_target",
            "{uses: actions/checkout@v4, with: {repository: '${{ github.event.pull_request.head.repo.full_name }}'}}",
            "pr-target:internal",
            "trusted",
        ),
        (
            "pull_request_target",
            "{uses: actions/checkout@v4, with: {ref: '${{ github.head_ref }}'}}",
            "pr-target:fork",
            "untrusted",
        ),
        (
            "pull_request_target",
            "{uses: actions/checkout@v4, with: {ref: '${{ github.base_ref }}'}}",
            "pr-target:fork",
            "trusted",
        ),
        (
            "pull_request_target",
            "{uses: actions/checkout@v4, with: {ref: '${{ github.sha }}'}}",
            "pr-target:fork",
            "trusted",
        ),
        ("pull_request_target", "{uses: actions/checkout@v4}", "pr-target:fork", "trusted"),
        (
            "issue_comment",
            "{run: 'gh pr checkout ${{ github.event.issue.number }}'}",
            "comment:NONE@fork-pr",
            "untrusted",
        ),
        ("issue_comment", "{run: 'gh pr checkout 7'}", "comment:NONE@internal-pr", "internal"),
        ("issue_comment", "{run: 'git fetch origin pull/$PR/head'}", "comment:NONE@fork-pr", "untrusted"),
        ("issue_comment", "{run: '# gh pr checkout 7'}", "comment:NONE@fork-pr", "trusted"),
        ("issue_comment", "{run: 'git fetch origin main'}", "comment:NONE@fork-pr", "trusted"),
        (
            "issue_comment",
            "{uses: actions/checkout@v4, with: {ref: '${{ steps.sha.outputs.sha }}'}}",
            "comment:MEMBER@fork-pr",
            "untrusted",
        ),
        (
            "pull_request_target",
            "{run: 'git checkout $SHA', env: {SHA: '${{ github.event.pull_request.head.sha }}'}}",
            "pr-target:fork",
            "untrusted",
        ),
        (
            "pull_request_target",
            "{run: 'git clone ${{ github.event.pull_request.head.repo.clone_url }}'}",
            "pr-target:fork",
            "untrusted",
        ),
        ("pull_request_target", "{run: 'echo ${{ github.event.pull_request.head.sha }}'}", "pr-target:fork", "trusted"),
        (
            "{workflow_run: {workflows: [x]}}",
            "{uses: actions/checkout@v4, with: {ref: '${{ github.event.workflow_run.head_sha }}'}}",
            "workflow-run:fork-pr",
            "untrusted",
        ),
        (
            "{workflow_run: {workflows: [x]}}",
            "{uses: actions/checkout@v4, with: {ref: '${{ github.event.workflow_run.head_sha }}'}}",
            "workflow-run:push-default",
            "trusted",
        ),
        (
            "{workflow_run: {workflows: [x]}}",
            "{run: 'gh run download ${{ github.event.workflow_run.id }}'}",
            "workflow-run:fork-pr",
            "untrusted",
        ),
        (
            "{workflow_dispatch: {inputs: {sha: {type: string}}}}",
            "{uses: actions/checkout@v4, with: {ref: '${{ inputs.sha || github.sha }}'}}",
            "dispatch:default",
            "vetted",
        ),
        (
            "{workflow_dispatch: {inputs: {pr: {type: string}}}}",
            "{uses: actions/checkout@v4, with: {ref: 'refs/pull/${{ inputs.pr }}/head'}}",
            "dispatch:default",
            "untrusted",
        ),
        (
            "{workflow_dispatch: {inputs: {ref: {type: choice, options: [main, next]}}}}",
            "{uses: actions/checkout@v4, with: {ref: '${{ inputs.ref }}'}}",
            "dispatch:default",
            "trusted",
        ),
        (
            "push",
            "{uses: actions/checkout@v4, with: {ref: 'refs/pull/${{ github.event.number }}/merge'}}",
            "push:default",
            "trusted",
        ),
        ("push", "{uses: actions/checkout@v4, with: {repository: other/tools, ref: v1}}", "push:default", "trusted"),
        (
            "[push, issue_comment]",
            "{if: github.event_name == 'issue_comment', run: gh pr checkout 7}",
            "push:default",
            "trusted",
        ),
        (
            "[push, issue_comment]",
            "{if: github.event_name == 'issue_comment', run: gh pr checkout 7}",
            "comment:NONE@fork-pr",
            "untrusted",
        ),
        (
            "issue_comment",
            "{if: github.event.comment.author_association == 'OWNER', run: gh pr checkout 7}",
            "comment:NONE@fork-pr",
            "untrusted",
        ),
    ],
)
def test_whose_code_a_step_fetches(audit_texts, on, step, event, code):
    found = audit_texts(f"on: {on}\npermissions: {{}}\njobs:\n  a:\n{CHECKOUT}      - {step}\n")
    assert found.cell("a", event).code.value == code


def test_steps_of_local_actions_count(audit_texts):
    steps = "    - uses: actions/checkout@v4\n      with: {ref: '${{ inputs.ref }}'}\n"
    action = f"inputs: {{ref: {{default: main}}}}\nruns:\n  using: composite\n  steps:\n{steps}"
    given = "        with: {ref: '${{ github.event.pull_request.head.sha }}'}\n"
    text = f"on: pull_request_target\npermissions: {{}}\njobs:\n  a:\n{CHECKOUT}      - uses: ./tools/fetch\n{given}"
    assert audit_texts(text, actions={"tools/fetch": action}).cell("a", "pr-target:fork").code.value == "untrusted"
    plain = text.replace(given, "")
    assert audit_texts(plain, actions={"tools/fetch": action}).cell("a", "pr-target:fork").code.value == "trusted"


def test_an_action_that_uses_itself_ends(audit_texts):
    action = "runs:\n  using: composite\n  steps:\n    - uses: ./loop\n"
    found = audit_texts(f"on: push\njobs:\n  a:\n{CHECKOUT}      - uses: ./loop\n", actions={"loop": action})
    assert found.state("a", "push:default") == "runs"


@pytest.mark.parametrize(
    ("mode", "saves"),
    [("", False), ("cache-mode: read", False), ("cache-mode: write", True), ("cache-mode: write-only", True)],
)
def test_low_trust_events_save_no_cache_unless_the_file_says_so(audit_texts, mode, saves):
    found = audit_texts(f"on: [pull_request_target, push]\n{mode}\njobs:\n" + job("a"))
    assert found.cell("a", "pr-target:fork").saves_cache is saves
    assert found.cell("a", "push:default").saves_cache is (mode in ("", "cache-mode: write", "cache-mode: write-only"))


@pytest.mark.parametrize(
    ("group", "meets"),
    [
        ("gpu", True),
        ("ci-${{ github.ref }}", False),
        ("ci-${{ github.head_ref || github.ref }}", False),
        ("ci-${{ github.head_ref || github.ref_name }}", True),
        ("${{ github.workflow }}-${{ github.event.pull_request.number || github.sha }}", False),
        ("${{ github.workflow }}-${{ github.event.pull_request.number || 'main' }}", False),
        ("${{ github.event_name }}-${{ github.head_ref }}", False),
        ("${{ github.head_ref || github.run_id }}", False),
        ("${{ github.run_id }}", False),
        ("${{ github.base_ref || github.ref_name }}", True),
        ("${{ github.repository }}", True),
    ],
)
def test_concurrency_groups_that_outsiders_share(audit_texts, group, meets):
    text = f'on: [pull_request, push]\nconcurrency: {{group: "{group}", cancel-in-progress: true}}\njobs:\n' + job("a")
    assert ("shared-concurrency" in audit_texts(text).rules()) is meets


def test_groups_meet_across_files_and_levels(audit_texts):
    trusted = "on: schedule\npermissions: {}\nconcurrency: gpu\njobs:\n" + job(
        "night", "if: github.repository == 'owner/name'"
    )
    outside = workflow(job("a", "concurrency: {group: GPU}"), on="pull_request")
    found = audit_texts(trusted, outside)
    assert found.events("shared-concurrency") >= {"fork-pr:opened"}
    (name,) = {one.job for one in found.result.findings if one.rule == "shared-concurrency"}
    assert name == "a"


def test_an_invalid_file_runs_nothing_and_the_others_are_audited(audit_texts):
    found = audit_texts(
        workflow(job("a", "if: env.X"), on="pull_request"), workflow(job("b", runs_on="gpu"), on="pull_request")
    )
    assert found.state("a", "fork-pr:opened") == "invalid"
    assert found.rules() >= {"invalid-workflow", "untrusted-on-self-hosted"}


def test_the_repository_guard_needs_the_real_name(audit_texts):
    text = workflow(job("a", "if: github.repository == 'other/name'", runs_on="gpu"), on="pull_request")
    assert audit_texts(text).state("a", "fork-pr:opened") == "skipped"


def test_what_needs_a_reviewed_job_waits_with_it(audit_texts):
    text = workflow(
        job("ask", "environment: reviewed")
        + job("gpu", "needs: ask", runs_on="gpu")
        + job("past", "needs: ask", "if: always()", runs_on="gpu"),
        on="pull_request",
    )
    found = audit_texts(
        text, policy=Policy(reviewed_environments=frozenset({"reviewed"}), dependabot_on_self_hosted=True)
    )
    assert found.state("gpu", "fork-pr:opened") == "waits"
    assert found.cell("gpu", "fork-pr:opened").code.value == "approved"
    assert found.state("past", "fork-pr:opened") == "runs"
    assert {one.job for one in found.result.findings if one.rule == "untrusted-on-self-hosted"} == {"past"}


def test_a_gate_inside_a_step_is_printed_and_discharges_nothing(audit_texts):
    text = workflow(
        "  a:\n    runs-on: gpu\n    steps:\n      - if: github.actor == 'somebody'\n        run: ls\n",
        on="pull_request",
    )
    found = audit_texts(text)
    assert "untrusted-on-self-hosted" in found.rules()
    assert "soft gate in a step: `github.actor == 'somebody'`" in found.cell("a", "fork-pr:opened").why


@pytest.mark.parametrize(
    ("output", "state"),
    [
        ("${{ github.event.pull_request.head.repo.full_name == github.repository }}", "skipped"),
        ("${{ github.event_name == 'pull_request' }}", "runs"),
        ("${{ steps.ask.outputs.go }}", "maybe"),
        ("${{ steps.ask.outcome == 'success' }}", "maybe"),
        ("${{ vars.OPEN }}", "skipped"),
    ],
)
def test_outputs_that_no_step_decides_are_known(audit_texts, output, state):
    text = workflow(
        job("gate", f'outputs: {{go: "{output}"}}') + job("gpu", "needs: gate", "if: needs.gate.outputs.go == 'true'"),
        on="pull_request",
    )
    assert audit_texts(text).state("gpu", "fork-pr:opened") == state


@pytest.mark.parametrize(
    "guard",
    [
        "github.event.pull_request.head.repo.id == github.event.pull_request.base.repo.id",
        "github.event.pull_request.head.repo.owner.login == github.repository_owner",
        "github.event.pull_request.head.user.login == 'owner'",
        "startsWith(github.event.pull_request.head.label, 'owner:')",
        "github.event.pull_request.head.repo.html_url == 'https://github.com/owner/name'",
        'contains(fromJSON(\'["OWNER", "MEMBER"]\'), github.event.pull_request.author_association)',
        "github.actor == 'somebody'",
        "github.event.pull_request.head.repo.fork != true && github.event.pull_request.head.repo != null",
    ],
)
def test_guards_that_hold_a_fork_off(audit_texts, guard):
    found = audit_texts(workflow(f"  a:\n    if: {guard}\n    runs-on: gpu\n    {STEPS}\n", on="pull_request"))
    assert "untrusted-on-self-hosted" not in found.rules()
