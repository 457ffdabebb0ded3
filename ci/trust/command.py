"""`lockgate audit`: which events reach which runner, with whose code."""

from __future__ import annotations

import argparse
import datetime as dt
import io
import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from ci.context import Context
from ci.errors import ConfigError, ReportError, UsageError
from ci.stages.table import read_settings
from ci.trust.audit import Result, opened_to, run_audit
from ci.trust.explain import find_cells, render_explanation
from ci.trust.payloads import Repo
from ci.trust.policy import Policy, is_repository, parse_policy
from ci.trust.read import Place, find_place, read_folder, read_remote, read_revision
from ci.trust.render import render_json, render_markdown, render_sarif
from ci.trust.table import render_table
from ci.trust.trust import Severity

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - the same parser under its older name
    import tomli as tomllib

FORMATS = ("table", "json", "markdown", "sarif")
PLACEHOLDER = "owner/name"
WIDTH = 100
"""Columns of a table written to a file or a pipe."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument(
        "folder", nargs="?", metavar="DIR", help="a repository or a folder of workflow files (default: this repository)"
    )
    parser.add_argument(
        "--repo", metavar="OWNER/NAME", help="the real repository (default: the policy's, else the git remote)"
    )
    parser.add_argument(
        "--default-branch", metavar="NAME", help="its default branch (default: from [tool.lockgate], else main)"
    )
    parser.add_argument(
        "--policy", metavar="FILE", help="a TOML policy (default: [tool.lockgate.trust] of DIR's pyproject.toml)"
    )
    parser.add_argument("--format", choices=FORMATS, default="table", help="default: table")
    parser.add_argument("--out", metavar="FILE", help="write there instead of to the terminal")
    parser.add_argument("--diff", metavar="BASE", help="also say what is newly open since this git revision")
    parser.add_argument(
        "--explain", nargs=2, metavar=("JOB", "EVENT"), help="show how one cell came about, and what decided"
    )


def run(options: argparse.Namespace, context: Context) -> int:
    """Audit, print, and tell whether anything fails: 0 no, 1 yes."""
    place = find_place(context.path(options.folder) if options.folder else context.root)
    policy, branch = _policy(options, context, place)
    repo = Repo(full_name=_repository(options, context, place, policy), default_branch=branch)
    today = dt.datetime.fromtimestamp(context.clock(), tz=dt.timezone.utc).date()
    result = run_audit(read_folder(place), repo, policy, today=today)
    opened = None
    if options.diff:
        before = run_audit(read_revision(place, options.diff, environ=context.environ), repo, policy, today=today)
        opened = opened_to(before, result)
    if options.explain:
        for cell in find_cells(result, *options.explain):
            for line in render_explanation(cell):
                context.out.line(line)
            context.out.line()
        return 0
    _write(result, options, context, opened)
    return 1 if result.fails else 0


def _policy(options: argparse.Namespace, context: Context, place: Place) -> tuple[Policy, str]:
    settings = read_settings(place.root)
    branch = settings.default_branch if options.default_branch is None else str(options.default_branch)
    if not branch.strip():
        raise UsageError("--default-branch is empty, expected a branch's name")
    if not options.policy:
        return parse_policy(settings.trust, source=settings.source), branch
    path = context.path(options.policy)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", hint="--policy takes a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    return parse_policy(_trust_table(document), source=str(path)), branch


def _trust_table(document: dict[str, Any]) -> dict[str, Any]:
    """Take the policy from a file of its own, or from a file written like `pyproject.toml`."""
    inner = document.get("tool", {})
    inner = inner.get("lockgate", {}) if isinstance(inner, dict) else {}
    found = inner.get("trust") if isinstance(inner, dict) else None
    return found if isinstance(found, dict) else document


def _repository(options: argparse.Namespace, context: Context, place: Place, policy: Policy) -> str:
    if options.repo:
        if not is_repository(options.repo):
            raise UsageError(f"--repo is {options.repo!r}, expected owner/name")
        return str(options.repo)
    if policy.repository:
        return policy.repository
    found = read_remote(place.root, environ=context.environ)
    if found:
        context.out.step(f"repository {found}, from the git remote origin")
        return found
    context.out.warn(
        f"neither --repo nor a git remote names the repository: {PLACEHOLDER} stands in, "
        "and jobs behind a check of github.repository seem skipped"
    )
    return PLACEHOLDER


def _write(result: Result, options: argparse.Namespace, context: Context, opened: Sequence[str] | None) -> None:
    text = _text(result, options, opened)
    if options.out:
        path = context.path(options.out)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ReportError(f"cannot write {path}: {error.strerror}") from error
    elif options.format == "table" and context.out.stdout.is_terminal:
        context.out.show(render_table(result, opened=opened, base=options.diff or ""))
    else:
        stream = context.out.stdout.file
        encoding = getattr(stream, "encoding", None) or "utf-8"
        stream.write(text.encode(encoding, "replace").decode(encoding))
        stream.flush()
    context.out.summary(render_markdown(result, opened=opened, base=options.diff or ""))
    if context.out.github_actions:
        for finding in result.findings:
            if finding.severity is Severity.FAIL:
                context.out.warn(f"{finding.rule}: {finding.message}", path=finding.workflow, line=finding.line)


def _text(result: Result, options: argparse.Namespace, opened: Sequence[str] | None) -> str:
    base = options.diff or ""
    if options.format == "json":
        return json.dumps(render_json(result, opened=opened, base=base), indent=2) + "\n"
    if options.format == "sarif":
        return json.dumps(render_sarif(result), indent=2) + "\n"
    if options.format == "markdown":
        return render_markdown(result, opened=opened, base=base)
    console = Console(file=io.StringIO(), width=WIDTH, force_terminal=False)
    console.print(render_table(result, opened=opened, base=base))
    return str(console.file.getvalue())  # type: ignore[attr-defined]
