"""What a job may do: token, secrets, cache."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ci.trust.model import Job, Text, Workflow
from ci.trust.rows import Row

SECRET = re.compile(r"\bsecrets\s*(?:\.\s*([A-Za-z_][A-Za-z0-9_-]*)|\[)|\btojson\s*\(\s*secrets\b", re.IGNORECASE)
UNDECLARED = "default"
"""The scope under which a token's undeclared permissions stand."""
CACHE_WRITES = ("write", "write-only")


def token_of(
    row: Row, workflow: Workflow, job: Job, *, default: str, cap: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Give the permissions of a job's token; a fork's are read-only whatever is declared."""
    declared = job.permissions if job.permissions is not None else workflow.permissions
    token = dict(declared) if declared is not None else dict(cap) if cap is not None else {UNDECLARED: default}
    if cap is not None:
        token = {scope: _lower(level, _level(cap, scope)) for scope, level in token.items() if _level(cap, scope)}
    if row.read_only:
        token = dict.fromkeys(token, "read")
    return token


def _level(token: Mapping[str, str], scope: str) -> str:
    return token.get(scope) or token.get("all") or token.get(UNDECLARED) or ("read" if scope == "all" and token else "")


def _lower(left: str, right: str) -> str:
    return "write" if left == right == "write" else "read"


def writes(token: Mapping[str, str]) -> list[str]:
    """List the scopes that a token may write."""
    return [scope for scope, level in token.items() if level == "write"]


def names_secrets(workflow: Workflow, job: Job) -> list[str]:
    """List the secrets that a job's texts name, without the token; `*` for all of them."""
    texts: Iterable[Text] = (*job.texts, *workflow.env.values())
    found: list[str] = []
    for text in texts:
        for match in SECRET.finditer(text.text):
            name = match.group(1) or "*"
            if name.upper() != "GITHUB_TOKEN":
                found.append(name)
    return list(dict.fromkeys(["*", *found] if job.inherits_secrets else found))


def cache_writable(row: Row, workflow: Workflow, job: Job) -> bool:
    """Tell whether a job may save caches: low-trust events may only when `cache-mode` says so."""
    mode = job.cache_mode or workflow.cache_mode
    if mode:
        return mode in CACHE_WRITES
    return row.cache_writes
