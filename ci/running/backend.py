"""What the rank processes start with: backend, modules to import first, pytest arguments. Pure."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator

from ci.running.job import Job

WITH_VALUE = frozenset({"-p", "--junitxml", "--junit-xml", "--basetemp"})
KNOWN_IMPORTED = "ignore:Module already imported so cannot be rewritten:pytest.PytestAssertRewriteWarning"
"""Ranks are forked from a process that has imported us, which pytest remarks on when we are installed."""
OURS = "ci.running.session"
OWN = ("--junitxml", "--junit-xml", "--basetemp", "--lf", "--ff", "--nf", "--sw", "--last-failed", "--failed-first")


def choose_backend(job: Job) -> str:
    """Name the process group's backend: nccl on real devices, gloo without, "" for none."""
    if job.process_group == "none":
        return ""
    if job.process_group != "auto":
        return job.process_group
    if importlib.util.find_spec("torch") is None:
        return ""
    return "nccl" if job.devices and not job.simulated else "gloo"


def rank_arguments(given: Iterable[str]) -> tuple[str, ...]:
    """Give a rank's pytest the controller's arguments, without those that write reports or choose tests."""
    return (*_keep(iter(given)), "--capture=no", "-W", KNOWN_IMPORTED)


def _keep(words: Iterator[str]) -> Iterator[str]:
    for word in words:
        name = word.split("=", 1)[0]
        if word in WITH_VALUE:
            value = next(words, "")
            if word == "-p" and value != OURS:
                yield from (word, value)
        elif name not in OWN:
            yield word
