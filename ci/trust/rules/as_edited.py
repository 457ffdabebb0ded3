"""A fork can edit every guard: what protects our machines then is a setting outside the files.

A pull request is simulated by its own files, so any label that a runner of the
repository answers to can be named by a fork that is allowed to start. Attested
settings discharge it; with `require_attestation` their absence fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ci.trust.cells import Audit, Cell, Finding
from ci.trust.conditions import Cause
from ci.trust.policy import ATTESTATIONS, Policy
from ci.trust.rules.base import rule
from ci.trust.simulate import simulate
from ci.trust.trust import Kind, Severity, Trust

ID = "as-edited"
FIX = (
    f"attest one of {', '.join(f'attest.{key}' for key in ATTESTATIONS)}, "
    "or the workflows that the runner group is limited to"
)


def check(audit: Audit) -> Iterator[Finding]:
    """Give one finding for every set of labels of our own machines."""
    machines: dict[tuple[str, ...], Cell] = {}
    for cell in audit.cells:
        if cell.runner.kind.exposed and cell.job.uses is None:
            machines.setdefault(tuple(sorted(label.lower() for label in cell.runner.labels)), cell)
    for cell in machines.values():
        settled = discharges(audit.policy, cell.runner.labels)
        required = audit.policy.require_attestation and not settled and cell.runner.kind is Kind.SELF_HOSTED
        labels = ", ".join(cell.runner.labels)
        yield Finding(
            rule=ID,
            severity=Severity.FAIL if required else Severity.SETTING,
            workflow=cell.workflow.path,
            job=cell.name,
            event=None,
            line=cell.line,
            message=f"a fork's edited workflow can name {labels}; "
            + (f"settled by {'; '.join(settled)}" if settled else "no attested setting keeps it away"),
            fix="" if settled else FIX,
        )
    yield from _edited_causes(audit)


def _edited_causes(audit: Audit) -> Iterator[Finding]:
    """Ask what `workflow_run` files do when a fork makes their cause start on its pull request."""
    quiet = {(cell.workflow.path, cell.row.id) for cell in audit.cells if cell.cause is Cause.TRIGGER}
    called = {path: one for path, one in audit.folder.workflows.items() if one.only_called}
    rows = [row for row in audit.rows if row.id.startswith("workflow-run:fork-pr")]
    for path, workflow in audit.folder.workflows.items():
        if "workflow_run" not in workflow.triggers or workflow.problems:
            continue
        cells, _ = simulate(replace(audit.folder, workflows={**called, path: workflow}), rows, audit.policy)
        opened = [cell for cell in cells if cell.state.reachable and (path, cell.row.id) in quiet and _is_open(cell)]
        if opened:
            trigger = workflow.triggers["workflow_run"]
            yield Finding(
                rule=ID,
                severity=Severity.SETTING,
                workflow=path,
                job=opened[0].name,
                event=None,
                line=trigger.line,
                message=f"a fork can make {', '.join(trigger.workflows)} start on its pull request, "
                "and so cause this job",
                fix="ask for github.event.workflow_run.event and for its head_repository in the job",
            )


def _is_open(cell: Cell) -> bool:
    return cell.runner.kind.exposed or cell.code is Trust.UNTRUSTED


def discharges(policy: Policy, labels: Sequence[str]) -> list[str]:
    """List the attested settings that keep a fork's edited workflow away from labels."""
    found = [f"{ATTESTATIONS[key]} ({evidence})" for key, evidence in policy.attestations.items()]
    limited = {name.lower(): runner.workflows for name, runner in policy.runners.items() if runner.workflows}
    found += [
        f"{label} is limited to {', '.join(limited[label.lower()])}" for label in labels if label.lower() in limited
    ]
    return found


RULE = rule(__doc__, id=ID, severity=Severity.SETTING, check=check)
