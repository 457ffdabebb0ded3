"""Single edits of good workflows: every one that opens a machine is found, every neutral one raises nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ci.trust.policy import OwnRunner, Policy
from ci.trust.read import find_place, read_folder

pytestmark = [pytest.mark.cpu, pytest.mark.slow]

POLICY = Policy(
    default_token="read",
    merge_queue=True,
    required_checks=("cpu_gate", "package", "gpu"),
    runners={"self-hosted": OwnRunner(), "gpu": OwnRunner(), "multi-gpu": OwnRunner()},
)
LOOSE = Policy(default_token="read", dependabot_on_self_hosted=True)
CODE, EVENT, GROUP = "untrusted-on-self-hosted", "outsider-on-self-hosted", "shared-concurrency"
HEAD = "github.event.pull_request.head.repo.full_name == github.repository"

AUTHOR = "      github.event.pull_request.user"
GUARDED = f"      {HEAD} &&\n{AUTHOR}"
NOT_PULL = "      github.event_name != 'pull_request' ||\n      (github.event.action"
SMOKE_IF = "if: github.event_name != 'workflow_dispatch' || inputs.stage != 'multi_gpu'"
MULTI_IF = "if: github.event_name != 'workflow_dispatch' || inputs.stage != 'gpu_smoke'"
PACKAGE_NAME = "    name: package\n"
PACKAGE = PACKAGE_NAME + "    runs-on: ubuntu-24.04"
QUEUE, DISPATCH = "  merge_group:\n", "  workflow_dispatch:\n"
"""Places in our own workflows that the edits are about."""

OPENING = {
    "guard dropped": ("gpu", GUARDED, AUTHOR, CODE),
    "or for and before the guard": (
        "gpu",
        "== 'run-gpu' &&\n      github.event.pull_request.head",
        "== 'run-gpu' ||\n      github.event.pull_request.head",
        CODE,
    ),
    "or for and after the guard": ("gpu", GUARDED, f"      {HEAD} ||\n{AUTHOR}", CODE),
    "base for head repository": (
        "gpu",
        GUARDED,
        f"      github.event.pull_request.base.repo.full_name == github.repository &&\n{AUTHOR}",
        CODE,
    ),
    "the base's name as a guard": ("gpu", GUARDED, f"      github.repository == 'owner/name' &&\n{AUTHOR}", CODE),
    "the base's fork flag as a guard": (
        "gpu",
        GUARDED,
        f"      github.event.repository.fork == false &&\n{AUTHOR}",
        CODE,
    ),
    "the head's fork flag compared with false": (
        "gpu",
        GUARDED,
        f"      github.event.pull_request.head.repo.fork == false &&\n{AUTHOR}",
        CODE,
    ),
    "not equal for equal": ("gpu", GUARDED, f"      {HEAD.replace('==', '!=')} &&\n{AUTHOR}", CODE),
    "owner for repository": (
        "gpu",
        GUARDED,
        f"      github.event.pull_request.base.user.login == github.repository_owner &&\n{AUTHOR}",
        CODE,
    ),
    "the author's association as a guard": (
        "gpu",
        GUARDED,
        f"      github.event.pull_request.author_association != 'NONE' &&\n{AUTHOR}",
        CODE,
    ),
    "event compared with equal": (
        "gpu",
        NOT_PULL,
        "      github.event_name == 'pull_request' ||\n      (github.event.action",
        CODE,
    ),
    "always past the gate": (
        "gpu",
        SMOKE_IF,
        "if: always() && (github.event_name != 'workflow_dispatch' || inputs.stage != 'multi_gpu')",
        CODE,
    ),
    "not cancelled past the gate": ("gpu", MULTI_IF, "if: ${{ !cancelled() && inputs.stage != 'gpu_smoke' }}", CODE),
    "not failed past the gate": ("gpu", MULTI_IF, "if: ${{ !failure() && inputs.stage != 'gpu_smoke' }}", CODE),
    "the gate not needed": ("gpu", "    name: gpu_smoke\n    needs: plan\n", "    name: gpu_smoke\n", CODE),
    "needs of an ungated job": (
        "gpu",
        "    name: multi_gpu\n    needs: plan\n",
        "    name: multi_gpu\n    needs: gpu\n",
        None,
    ),
    "text outside the fence": (
        "gpu",
        NOT_PULL,
        "      ${{ github.event_name != 'pull_request' }} ||\n      (github.event.action",
        CODE,
    ),
    "a block that keeps its newline": (
        "gpu",
        "    name: plan (${{ matrix.stage }})\n    if: >-\n",
        "    name: plan (${{ matrix.stage }})\n    if: >\n      ${{ false }}\n\n",
        CODE,
    ),
    "comments start it": ("gpu", QUEUE, QUEUE + "  issue_comment:\n", EVENT),
    "issues start it": ("gpu", QUEUE, QUEUE + "  issues:\n", EVENT),
    "discussions start it": ("gpu", QUEUE, QUEUE + "  discussion:\n", EVENT),
    "reviews start it": ("gpu", QUEUE, QUEUE + "  pull_request_review:\n", CODE),
    "review comments start it": ("gpu", QUEUE, QUEUE + "  pull_request_review_comment:\n", CODE),
    "runs of the gate start it": ("gpu", QUEUE, QUEUE + "  workflow_run:\n    workflows: [gate]\n", EVENT),
    "the privileged trigger": ("gpu", "  pull_request:\n    types", "  pull_request_target:\n    types", CODE),
    "a custom label in the gate": (
        "gate",
        "    name: cpu_gate\n    runs-on: ubuntu-24.04",
        "    name: cpu_gate\n    runs-on: linux-gpu-h100",
        CODE,
    ),
    "a group in the gate": ("gate", PACKAGE, PACKAGE_NAME + "    runs-on: {group: builders}", CODE),
    "a larger machine's label": ("gate", PACKAGE, f"{PACKAGE_NAME}    runs-on: ubuntu-24.04-16-cores", CODE),
    "a variable with a fallback": ("gate", PACKAGE, PACKAGE_NAME + "    runs-on: ${{ vars.RUNNER || 'gpu' }}", CODE),
    "a label by event": (
        "gate",
        PACKAGE,
        PACKAGE_NAME + "    runs-on: ${{ github.event_name == 'push' && 'ubuntu-24.04' || 'gpu' }}",
        CODE,
    ),
    "a list with our label": ("gate", PACKAGE, f"{PACKAGE_NAME}    runs-on: [ubuntu-24.04, gpu]", CODE),
    "a matrix with our label": (
        "gate",
        PACKAGE,
        PACKAGE_NAME + "    strategy: {matrix: {on: [ubuntu-24.04, gpu]}}\n    runs-on: ${{ matrix.on }}",
        CODE,
    ),
    "a remote workflow": (
        "gate",
        "jobs:\n",
        "jobs:\n  shared:\n    uses: other/shared/.github/workflows/build.yml@v1\n\n",
        CODE,
    ),
    "the nightly for pull requests": ("nightly", DISPATCH, DISPATCH + "  pull_request_target:\n", EVENT),
    "the nightly for comments": ("nightly", DISPATCH, DISPATCH + "  issue_comment:\n", EVENT),
    "the nightly after a run of the gate": (
        "nightly",
        DISPATCH,
        DISPATCH + "  workflow_run:\n    workflows: [gate]\n",
        EVENT,
    ),
    "the group by the head's name": (
        "gate",
        "group: gate-${{ github.ref }}",
        "group: gate-${{ github.head_ref || github.ref_name }}",
        GROUP,
    ),
    "one group for all": ("gate", "group: gate-${{ github.ref }}", "group: runner-gpu", GROUP),
    "the gate with power": ("gate", "  pull_request:\n  push", "  pull_request_target:\n  push", None),
}
"""Edit -> (workflow, before, after, the rule that must find it; None: it opens nothing, by the service's own rules)."""

NEUTRAL = {
    "a comment": ("gpu", "jobs:\n", "jobs:\n  # for everybody\n"),
    "another hosted image": ("gate", PACKAGE, f"{PACKAGE_NAME}    runs-on: ubuntu-latest"),
    "parentheses": ("gpu", GUARDED, f"      ({HEAD}) &&\n{AUTHOR}"),
    "operands the other way round": (
        "gpu",
        GUARDED,
        f"      github.repository == github.event.pull_request.head.repo.full_name &&\n{AUTHOR}",
    ),
    "another case": ("gpu", GUARDED, f"      {HEAD.replace('head.repo', 'HEAD.Repo')} &&\n{AUTHOR}"),
    "an index for a dot": (
        "gpu",
        GUARDED,
        f"      {HEAD.replace('.head.', chr(91) + chr(39) + 'head' + chr(39) + '].')} &&\n{AUTHOR}",
    ),
    "a longer limit": ("gpu", "timeout-minutes: 60", "timeout-minutes: 75"),
    "a step more": ("gpu", "    name: gpu_smoke\n", "    name: gpu_smoke (one device)\n"),
    "a whole fence": (
        "gpu",
        SMOKE_IF,
        "if: ${{ github.event_name != 'workflow_dispatch' || inputs.stage != 'multi_gpu' }}",
    ),
    "success spelt out": (
        "gpu",
        SMOKE_IF,
        "if: success() && (github.event_name != 'workflow_dispatch' || inputs.stage != 'multi_gpu')",
    ),
    "a guard more": (
        "gpu",
        SMOKE_IF,
        f"if: (github.event_name != 'pull_request' || {HEAD}) && inputs.stage != 'multi_gpu'",
    ),
    "a narrower mirror": ("gpu", 'branches: ["pull-request/[0-9]+"]', 'branches: ["pull-request/[1-9]*"]'),
    "a ref as a group": (
        "gate",
        "group: gate-${{ github.ref }}",
        "group: gate-${{ github.event_name }}-${{ github.ref }}",
    ),
    "pull requests that cannot pass the nightly's guard": ("nightly", DISPATCH, DISPATCH + "  pull_request:\n"),
    "another hour": ("nightly", "17 2 * * *", "41 3 * * *"),
}


@pytest.fixture(scope="module")
def own(request):
    folder = request.config.rootpath / ".github" / "workflows"
    texts = {
        path.stem: path.read_text(encoding="utf-8").replace("lockgate/lockgate", "owner/name")
        for path in folder.glob("*.yml")
    }
    actions = read_folder(find_place(request.config.rootpath)).actions
    return texts, actions


@pytest.fixture
def audit_own(own, audit_texts):
    texts, actions = own

    def audit(name="", before="", after=""):
        edited = dict(texts)
        if name:
            assert edited[name].count(before) == 1, (
                f"the edit's text stands {edited[name].count(before)} times in {name}.yml"
            )
            edited[name] = edited[name].replace(before, after)
        found = audit_texts(files={f"{path}.yml": text for path, text in edited.items()}, policy=POLICY)
        assert actions
        return found

    return audit


def substance(found):
    return {(one.rule, one.job, one.event) for one in found.result.findings if one.severity.value == "fail"}


def test_our_own_workflows_fail_nothing_and_warn_of_nothing(audit_own):
    found = audit_own()
    assert found.rules() == set()
    assert found.rules("warn") == set()
    reaching = {event for _, event in found.reaching()}
    assert reaching == {
        "internal-pr:labeled=run-gpu",
        "mirror:7",
        "mirror:123",
        "dispatch:default",
        "dispatch:branch",
        "merge-group",
        "schedule",
    }


@pytest.mark.parametrize("edit", [edit for edit, row in OPENING.items() if row[3] is not None])
def test_an_edit_that_opens_a_machine_is_found(audit_own, edit):
    name, before, after, rule = OPENING[edit]
    assert rule in audit_own(name, before, after).rules()


@pytest.mark.parametrize("edit", [edit for edit, row in OPENING.items() if row[3] is None])
def test_an_edit_that_looks_like_one_opens_no_machine(audit_own, edit):
    name, before, after, _ = OPENING[edit]
    assert not {CODE, EVENT} & audit_own(name, before, after).rules()


@pytest.mark.parametrize("edit", NEUTRAL)
def test_a_neutral_edit_raises_nothing(audit_own, edit):
    found = audit_own(*NEUTRAL[edit])
    assert substance(found) == set()
    assert {one for one in found.rules("warn") if one != "schedule-without-guard"} == set()


GOOD = ("cases/head-repository.yml", "cases/behind-gate.yml", "cases/stripped-fence.yml", "cases/realigned.yml")
SYSTEMATIC = {
    "guard dropped": lambda text: re.sub(re.escape(HEAD), "true", text, count=1),
    "or for and": lambda text: text.replace(f"&&\n      {HEAD}", f"||\n      {HEAD}", 1),
    "base for head": lambda text: text.replace("pull_request.head.repo", "pull_request.base.repo", 1),
    "negated": lambda text: text.replace(HEAD, HEAD.replace("==", "!="), 1),
    "compared with text": lambda text: text.replace(HEAD, f"'{HEAD.partition(' ')[0]}'", 1),
    "always added": lambda text: text.replace(HEAD, f"{HEAD} || always()", 1),
    "the base's own name": lambda text: text.replace(HEAD, "github.repository == 'owner/name'", 1),
    "the fork flag": lambda text: text.replace(HEAD, "github.event.pull_request.head.repo.fork == false", 1),
    "the head's name": lambda text: text.replace(HEAD, "github.head_ref != 'main'", 1),
    "an unknown variable": lambda text: text.replace(HEAD, f"({HEAD} || vars.OPEN != 'no')", 1),
    "the privileged trigger": lambda text: re.sub(
        r"^(on: |  )pull_request\b",
        r"\1pull_request_target",
        text.replace(HEAD, "github.event.pull_request", 1),
        count=1,
        flags=re.MULTILINE,
    ),
}


def fitting():
    """Pair every good fixture with the edits that change it."""
    data = Path(__file__).parents[4] / "tests" / "data" / "trust"
    texts = {fixture: (data / fixture).read_text(encoding="utf-8") for fixture in GOOD}
    return [
        (fixture, name) for fixture, text in texts.items() for name, edit in SYSTEMATIC.items() if edit(text) != text
    ]


def test_most_systematic_edits_fit_most_good_fixtures():
    assert len(fitting()) >= len(GOOD) * len(SYSTEMATIC) - 4


@pytest.mark.parametrize(("fixture", "mutation"), fitting())
def test_every_systematic_edit_of_a_good_fixture_is_found(audit_texts, data, fixture, mutation):
    text = (data / fixture).read_text(encoding="utf-8")
    assert not {CODE, EVENT} & audit_texts(text, policy=LOOSE).rules()
    edited = SYSTEMATIC[mutation](text)
    assert {CODE, EVENT} & audit_texts(edited, policy=LOOSE).rules(), edited


@pytest.mark.parametrize("fixture", GOOD)
@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text + "# the end\n",
        lambda text: text.replace("pytest", "python -m pytest"),
        lambda text: text.replace("  gpu:", "  gpus:").replace("needs: gpu", "needs: gpus"),
    ],
)
def test_neutral_edits_of_good_fixtures_raise_nothing(audit_texts, data, fixture, edit):
    text = (data / fixture).read_text(encoding="utf-8")
    assert not audit_texts(edit(text), policy=LOOSE).rules()


@pytest.mark.parametrize("name", ["gpu", "nightly"])
def test_no_lost_or_doubled_line_crashes_the_audit(own, audit_texts, name):
    lines = own[0][name].splitlines(keepends=True)
    for number, line in list(enumerate(lines))[::4]:
        if line.strip() and not line.lstrip().startswith("#"):
            audit_texts("".join(lines[:number] + lines[number + 1 :]), policy=POLICY)
            audit_texts("".join([*lines[:number], line, line, *lines[number + 1 :]]), policy=POLICY)
