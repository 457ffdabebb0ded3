"""A plan as JSON: written by `lockgate plan`, believed by `lockgate run` only if it is whole and of this commit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ci.impact.git import open_repository, temporary_folder
from ci.impact.patterns import matches
from ci.impact.plan import SCHEMA, Cause, Decision, Identity, Plan, Selected, Shard, run_everything
from ci.impact.reasons import Reason
from ci.report.write import write_whole

STEERING = ("*.cfg", "*.ini", "*.py", "*.toml")
"""Files that steer tests even where nobody added them to git."""

LARGEST = 1e15
"""No count and no time is larger."""

HINT = "plan again for this commit"


def render_document(plan: Plan) -> dict[str, Any]:
    """Give a plan as a JSON document; `digest` covers all of it."""
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "stage": plan.stage,
        "decision": str(plan.decision),
        "explanation": plan.explanation,
        "tests": [{"id": item.id, "reason": str(item.reason), "detail": item.detail} for item in plan.tests],
        "skipped": list(plan.skipped),
        "reasons": dict(plan.reasons),
        "changes": [
            {"path": cause.path, "reason": str(cause.reason), "detail": cause.detail, "tests": cause.tests}
            for cause in plan.causes
        ],
        "base": plan.base,
        "head": plan.head,
        "merge_base": plan.merge_base,
        "manifest": None
        if plan.manifest is None
        else {
            "source": plan.manifest.source,
            "age_hours": round(plan.manifest.age_hours, 2),
            "content_hash": plan.manifest.content_hash,
        },
        "policy_hash": plan.policy_hash,
        "warnings": list(plan.warnings),
        "shards": [
            {"index": shard.index, "tests": list(shard.tests), "seconds": round(shard.seconds, 3)}
            for shard in plan.shards
        ],
        "counts": {"known": plan.known, "selected": plan.selected, "skipped": len(plan.skipped)},
        "seconds": {"selected": round(plan.seconds, 3), "total": round(plan.total_seconds, 3)},
    }
    document["digest"] = digest_of(document)
    return document


def digest_of(document: Mapping[str, Any]) -> str:
    """Digest everything in a document but the digest itself."""
    rest = {key: value for key, value in document.items() if key != "digest"}
    text = json.dumps(rest, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def render_plan(plan: Plan) -> str:
    """Give a plan as JSON text."""
    return json.dumps(render_document(plan), indent=1, ensure_ascii=True) + "\n"


def write_plan(plan: Plan, path: Path) -> None:
    """Write a plan, whole or not at all; raises `ReportError`."""
    write_whole(path, render_plan(plan))


def read_plan(path: Path, *, head: str = "", stage: str = "") -> Plan:
    """Read a plan for a commit and a stage; never raises for a bad one.

    `head` is what `describe_head` gives for the tree that is to be tested, ""
    compares nothing. A plan that is absent, damaged, or made for anything else
    is answered by one that runs everything, reason `plan-unusable`.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        plan = parse_plan(document)
    except FileNotFoundError:
        return run_everything(stage, Reason.PLAN_UNUSABLE, f"{path} does not exist; {HINT}")
    except OSError as error:
        return run_everything(stage, Reason.PLAN_UNUSABLE, f"{path} cannot be read: {error.strerror}; {HINT}")
    except (ValueError, RecursionError) as error:
        return run_everything(stage, Reason.PLAN_UNUSABLE, f"{path} is damaged: {error}; {HINT}")
    if stage and plan.stage != stage:
        return run_everything(stage, Reason.PLAN_UNUSABLE, f"{path} is for stage {plan.stage}, not {stage}; {HINT}")
    if head and plan.head != head:
        found = f"{path} is for {plan.head or 'no commit'}, this is {head}"
        return run_everything(stage, Reason.PLAN_UNUSABLE, f"{found}; {HINT}")
    return plan


def parse_plan(document: object) -> Plan:
    """Parse a JSON document; raises ValueError naming the first thing that is wrong."""
    table = _table(document, "the plan")
    if table.get("schema") != SCHEMA:
        raise ValueError(f"schema is {table.get('schema')!r}, expected {SCHEMA}")
    if "digest" in table and table["digest"] != digest_of(table):
        raise ValueError("its digest does not fit its content")
    decision = _text(table, "decision")
    if decision not in (str(word) for word in Decision):
        raise ValueError(f"decision is {decision!r}, expected one of all, subset, none")
    tests = tuple(_selected(item) for item in _list(table, "tests"))
    if decision == Decision.NONE and tests:
        raise ValueError(f"decision is none, yet {len(tests)} tests are selected")
    if decision == Decision.SUBSET and not tests:
        raise ValueError("decision is subset, yet no test is selected")
    manifest = table.get("manifest")
    reasons = _table(table.get("reasons", {}), "reasons")
    counts = _table(table.get("counts", {}), "counts")
    seconds = _table(table.get("seconds", {}), "seconds")
    return Plan(
        stage=_text(table, "stage"),
        decision=Decision(decision),
        explanation=str(table.get("explanation", "")),
        tests=tests,
        skipped=_strings(table, "skipped"),
        is_explicit="skipped" in table,
        reasons={key: int(_number(reasons, key)) for key in reasons},
        causes=tuple(_cause(item) for item in _list(table, "changes")),
        base=str(table.get("base") or ""),
        head=str(table.get("head") or ""),
        merge_base=str(table.get("merge_base") or ""),
        manifest=None if manifest is None else _identity(_table(manifest, "manifest")),
        policy_hash=str(table.get("policy_hash", "")),
        warnings=_strings(table, "warnings"),
        shards=tuple(_shard(item) for item in _list(table, "shards")),
        known=int(_number(counts, "known")),
        selected=int(_number(counts, "selected")) if "selected" in counts else len(tests),
        seconds=_number(seconds, "selected"),
        total_seconds=_number(seconds, "total"),
    )


def describe_head(root: Path, environ: Mapping[str, str]) -> str:
    """Name the tree that is checked out: the commit's id, with the tree's id after a `+` where it differs.

    Files that git does not track count if they are Python or settings: the
    leftovers of a job do not make a plan unusable. Raises `GitError` outside a
    repository.
    """
    with temporary_folder() as folder:
        repository = open_repository(root, environ)
        commit = repository.commit("HEAD") or ""
        reader, tree = repository.snapshot(Path(folder), untracked=lambda path: bool(matches(path, STEERING)))
        committed = (reader.ask("rev-parse", "--verify", "--quiet", f"{commit}^{{tree}}") or b"").decode().strip()
        return commit if tree == committed else f"{commit}+{tree}"


def _selected(value: object) -> Selected:
    item = _table(value, "an entry of tests")
    return Selected(id=_text(item, "id"), reason=_reason(item), detail=str(item.get("detail", "")))


def _cause(value: object) -> Cause:
    item = _table(value, "an entry of changes")
    return Cause(
        path=_text(item, "path"),
        reason=_reason(item),
        detail=str(item.get("detail", "")),
        tests=None if item.get("tests") is None else int(_number(item, "tests")),
    )


def _shard(value: object) -> Shard:
    item = _table(value, "an entry of shards")
    return Shard(index=int(_number(item, "index")), tests=_strings(item, "tests"), seconds=_number(item, "seconds"))


def _identity(table: Mapping[str, Any]) -> Identity:
    return Identity(
        source=_text(table, "source"),
        age_hours=_number(table, "age_hours"),
        content_hash=str(table.get("content_hash", "")),
    )


def _number(table: Mapping[str, Any], key: str) -> float:
    value = table.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < LARGEST:
        raise ValueError(f"{key} is {value!r}, expected a number")
    return float(value)


def _reason(table: Mapping[str, Any]) -> Reason:
    word = _text(table, "reason")
    try:
        return Reason(word)
    except ValueError:
        raise ValueError(f"reason {word!r} is none that this version knows") from None


def _table(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is a {type(value).__name__}, expected an object")  # noqa: TRY004 - one kind for a bad plan
    return value


def _list(table: Mapping[str, Any], key: str) -> list[Any]:
    value = table.get(key, [])
    if not isinstance(value, list):
        raise ValueError(f"{key} is a {type(value).__name__}, expected a list")  # noqa: TRY004
    return value


def _strings(table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    items = _list(table, key)
    if not all(isinstance(item, str) for item in items):
        raise ValueError(f"{key} holds something that is no string")
    return tuple(items)


def _text(table: Mapping[str, Any], key: str) -> str:
    value = table.get(key)
    if not isinstance(value, str):
        raise ValueError(f"{key} is {value!r}, expected a string")  # noqa: TRY004
    return value
