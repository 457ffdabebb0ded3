"""Our own workflows: who reaches our machines, who writes, what is pinned."""

from __future__ import annotations

import re

import pytest

from ci.trust.policy import OwnRunner, Policy

pytestmark = pytest.mark.cpu

POLICY = Policy(
    default_token="read",
    merge_queue=True,
    required_checks=("cpu_gate", "package", "gpu"),
    runners={"self-hosted": OwnRunner(), "gpu": OwnRunner(), "multi-gpu": OwnRunner()},
)
FILES = ("gate.yml", "gpu.yml", "nightly.yml")


@pytest.fixture
def texts(root):
    folder = root / ".github" / "workflows"
    return {
        name: (folder / name).read_text(encoding="utf-8").replace("lockgate/lockgate", "owner/name") for name in FILES
    }


@pytest.fixture
def found(texts, audit_texts):
    return audit_texts(files=texts, policy=POLICY)


def test_nothing_fails_and_nothing_warns(found):
    assert found.rules() == set()
    assert found.rules("warn") == set()


def test_who_reaches_our_machines(found):
    assert found.reaching("unknown") == set()
    assert {(job.partition(" (")[0], event) for job, event in found.reaching()} == {
        *(
            (job, event)
            for job in ("gpu_smoke", "multi_gpu")
            for event in (
                "internal-pr:labeled=run-gpu",
                "mirror:7",
                "mirror:123",
                "dispatch:default",
                "dispatch:branch",
                "merge-group",
            )
        ),
        ("record", "schedule"),
        ("record", "dispatch:default"),
    }


def test_only_the_publisher_writes_and_saves_caches(found):
    writers = {
        (cell.name, tuple(cell.token.items()))
        for cell in found.result.audit.reachable()
        if "write" in cell.token.values()
    }
    assert writers == {
        ("publish", (("contents", "read"), ("actions", "write"))),
        ("unlabel", (("pull-requests", "write"),)),
    }
    assert {cell.name for cell in found.result.audit.reachable() if cell.saves_cache} == {"publish"}
    assert {cell.runner.kind.value for cell in found.result.audit.reachable() if cell.name == "publish"} == {"hosted"}


def test_an_unrelated_label_runs_nothing(found):
    assert not [cell for cell in found.result.audit.reachable() if cell.row.id.endswith("labeled=(other)")]


def test_every_required_check_reports_in_the_merge_queue(found):
    for job in ("cpu_gate", "package", "gpu"):
        assert found.state(job, "merge-group") == "runs"


@pytest.mark.parametrize("name", [*(f"workflows/{file}" for file in FILES), "actions/stage/action.yml"])
def test_actions_are_pinned_by_commit_with_their_version(root, name):
    uses = re.findall(r"uses: (\S+)(.*)", (root / ".github" / name).read_text(encoding="utf-8"))
    for action, comment in uses:
        assert action.startswith("$/") or re.fullmatch(r"[\w-]+/[\w/-]+@[0-9a-f]{40}", action), action
        assert action.startswith("$/") or re.fullmatch(r" # v\d+\.\d+\.\d+", comment), comment


@pytest.mark.parametrize("name", FILES)
def test_files_start_closed_and_scripts_are_one_line(texts, name):
    text = texts[name]
    assert "\npermissions: {}\n" in text
    assert "secrets" not in text
    assert "run: |" not in text
    assert text.count("persist-credentials: false") == text.count("actions/checkout@")
