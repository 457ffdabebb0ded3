"""A fork can edit every guard: what protects our machines then is a setting outside the files.

A pull request is simulated by its own files, so any label that a runner of the
repository answers to can be named by a fork that is allowed to start. Attested
settings discharge it; with `require_attestation` their absence fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ci.trust.cells import Audit, Cell, Finding
from ci.trust.policy import ATTESTATIONS, Policy
from ci.trust.rules.base import rule
from ci.trust.trust import Kind, Severity

ID = "as-edited"
FIX = (
    f"attest one of {', '.join(f'attest.{key}' for key in ATTESTATIONS)}, "
    "or the workflows that the runner group is limited to"
)


def check(audit: Audit) -> Iterator[Finding]:
    """Give one finding for every set of labels of our own machines."""
    machines: dict[tuple[str, ...], Cell] = {}
    for cell in audit.cells:
        if cell.runner.kind.exposed:
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


def discharges(policy: Policy, labels: Sequence[str]) -> list[str]:
    """List the attested settings that keep a fork's edited workflow away from labels."""
    found = [f"{ATTESTATIONS[key]} ({evidence})" for key, evidence in policy.attestations.items()]
    limited = {name.lower(): runner.workflows for name, runner in policy.runners.items() if runner.workflows}
    found += [
        f"{label} is limited to {', '.join(limited[label.lower()])}" for label in labels if label.lower() in limited
    ]
    return found


RULE = rule(__doc__, id=ID, severity=Severity.SETTING, check=check)
