"""Local reusable workflows: which file a job calls, and the jobs at the end of its calls."""

from __future__ import annotations

from collections.abc import Iterator

from ci.trust.model import Folder, Job, Workflow
from ci.trust.steps import own_path

MAX_CALLS = 10
"""Levels of calls that are followed; the service allows fewer."""


def leaf_jobs(owner: Workflow, job: Job, name: str, folder: Folder, depth: int) -> Iterator[tuple[Workflow, Job, str]]:
    """List the jobs that a job stands for, with their file and their name behind their callers'."""
    called = called_workflow(job, folder)
    if called is None or depth >= MAX_CALLS or not called.jobs:
        yield owner, job, name
        return
    for inner in called.jobs.values():
        yield from leaf_jobs(called, inner, f"{name} / {inner.id}", folder, depth + 1)


def called_workflow(job: Job, folder: Folder) -> Workflow | None:
    """Give the local workflow that a job calls, None for none or a remote one."""
    path = own_path(job.uses.text) if job.uses else ""
    if not path:
        return None
    found = folder.workflows.get(path)
    if found is not None:
        return found
    name = path.rpartition("/")[2]
    return next((workflow for known, workflow in folder.workflows.items() if known == name), None)
