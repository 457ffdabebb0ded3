"""The edge before a decision: git, the manifest and the settings become Facts.

Where something is missing, the answer is a plan that runs everything and says
what to do about it; only a mistake on the command line is an error.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ci.context import Context
from ci.errors import ConfigError, GitError, UsageError
from ci.impact.changes import Change, Entry, Tree, compare_trees, through_links
from ci.impact.facts import Facts, Policy, Span
from ci.impact.git import Repository, open_repository
from ci.impact.meaning import python_files
from ci.impact.mentions import wants_texts
from ci.impact.names import DYNAMIC, added_functions, imported_words, looks_up_dynamically
from ci.impact.patterns import matches
from ci.impact.plan import Plan, run_everything
from ci.impact.plan_file import describe_head
from ci.impact.reasons import Reason
from ci.impact.rules.configuration import PYTEST_INI, SHARED_INI
from ci.impact.rules.python import new_module_words
from ci.manifest.model import Expectations, Finding, Manifest, Refusal
from ci.manifest.read import read_manifest
from ci.stages.model import Settings, Stage
from ci.stages.table import default_settings, parse_settings, read_settings

TEXTS = (
    "*.cfg", "*.dockerfile", "*.in", "*.ini", "*.lock", "*.py", "*.pyw", "*.toml", "*.txt", "*.yaml", "*.yml",
)  # fmt: skip
"""Files whose content a rule may read; of the others only the id counts."""

PARSED_MENTIONS = 300
"""So many files are parsed to tell a mention of a module from a chance word; of more, each word counts."""

FETCH_HINT = "fetch more history (`actions/checkout` with `fetch-depth: 0`, or `git fetch --unshallow`)"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the command line asks: revisions as they were given; `head` None is the work tree."""

    stage: str
    manifest: Path | None
    base: str | None = None
    head: str | None = None
    policy_ref: str | None = None
    force: str = ""
    marker: str | None = None
    simulated: bool = False


@dataclass(frozen=True, kw_only=True)
class Sides:
    """The commits and trees of a request; `base_tree` is None where this clone lacks the base."""

    repository: Repository
    head: str
    head_tree: Tree
    head_treeish: str
    base: str = ""
    merge_base: str = ""
    base_tree: Tree | None = None
    problem: str = ""


def gather(request: Request, context: Context, *, folder: Path) -> Facts | Plan:
    """Collect what a decision needs; `folder` holds the objects of a work tree's snapshot."""
    repository = open_repository(context.root, context.environ)
    sides = read_sides(request, context, repository, folder=folder)
    if request.force:
        stage = find_stage(read_worktree_settings(context), request)
        return place(run_everything(stage.name, Reason.FORCED, request.force), sides)
    settings = read_policy(request, sides)
    if settings is not None:
        stage = find_stage(settings, request, at_head=read_worktree_settings(context))
        max_age = settings.manifest_max_age_hours
    else:
        at_head = read_worktree_settings(context)
        stage, max_age = find_stage(at_head, request), at_head.manifest_max_age_hours
    found = read_evidence(request, context, sides, stage=stage, max_age=max_age)
    if isinstance(found, Plan):
        return place(found, sides)
    if settings is None:
        recorded = found.files.get("pyproject.toml")
        now = sides.head_tree.get("pyproject.toml")
        if (recorded.blob if recorded else None) != (now.blob if now else None):
            return place(run_everything(stage.name, Reason.BASELINE_UNAVAILABLE, sides.problem), sides)
    elif stage.name not in settings.stages and request.marker is None and has_rows(settings):
        detail = f"the base has no stage {stage.name}"
        return place(run_everything(stage.name, Reason.POLICY_CHANGED, detail), sides)
    return build_facts(sides, found, stage=stage, now=context.clock())


def place(plan: Plan, sides: Sides) -> Plan:
    """Write the commits into a plan that was made before they mattered."""
    return replace(plan, base=sides.base, head=sides.head, merge_base=sides.merge_base)


def read_sides(request: Request, context: Context, repository: Repository, *, folder: Path) -> Sides:
    """Resolve head and base; an unknown head is the caller's mistake, an unknown base is not."""
    if request.head is None:
        head = describe_head(context.root, context.environ)
        repository, treeish = repository.snapshot(folder)
    else:
        found = repository.commit(request.head)
        if found is None:
            raise GitError(
                f"--head {request.head} is no commit of this clone",
                hint=f"check the name, or {FETCH_HINT}; without --head the work tree is planned",
            )
        head = treeish = found
    sides = Sides(repository=repository, head=head, head_tree=repository.tree(treeish), head_treeish=treeish)
    revision, base = find_base(request, context, repository)
    if base is None:
        shallow = "the clone is shallow" if repository.is_shallow() else "it is not in this clone"
        problem = f"base {revision} cannot be found: {shallow}; {FETCH_HINT}"
        return replace(sides, problem=problem)
    commit = head.partition("+")[0]
    merge_base = repository.merge_base(base, commit) if commit else None
    problem = "" if merge_base else f"{revision} and the head have no common commit in this clone; {FETCH_HINT}"
    tree = repository.tree(merge_base or base)
    return replace(sides, base=base, merge_base=merge_base or "", base_tree=tree, problem=problem)


def find_base(request: Request, context: Context, repository: Repository) -> tuple[str, str | None]:
    """Give the base's name and commit; without one asked for, the default branch's."""
    if request.base is not None:
        return request.base, repository.commit(request.base)
    branch = read_worktree_settings(context).default_branch
    for name in (f"origin/{branch}", branch):
        found = repository.commit(name)
        if found is not None:
            return name, found
    return "HEAD", repository.commit("HEAD")


def read_worktree_settings(context: Context) -> Settings:
    """Read the settings as they lie there; a broken file must not break the plan, the base's policy holds."""
    try:
        return read_settings(context.root)
    except ConfigError as error:
        context.out.warn(f"the settings at head are broken, the defaults stand in: {error.message}")
        return default_settings()


def read_policy(request: Request, sides: Sides) -> Settings | None:
    """Read the settings of the policy's ref, by default the base; None where this clone lacks it."""
    repository = sides.repository
    commit = repository.commit(request.policy_ref) if request.policy_ref else sides.base
    if not commit:
        if request.policy_ref:
            raise GitError(f"--policy-ref {request.policy_ref} is no commit of this clone", hint=FETCH_HINT)
        return None
    content = repository.file(commit, "pyproject.toml")
    if content is None:
        return default_settings()
    source = f"pyproject.toml at {commit[:12]}"
    try:
        return parse_settings(content.decode("utf-8"), source=source)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source} is not UTF-8: {error}") from error


def has_rows(settings: Settings) -> bool:
    """Whether a repository writes rows of its own."""
    return dict(settings.stages) != dict(default_settings().stages)


def find_stage(settings: Settings, request: Request, *, at_head: Settings | None = None) -> Stage:
    """Find the stage's row; for a first look, without rows, any name will do."""
    if request.marker is not None:
        start = settings.stages.get(request.stage, Stage(name=request.stage))
        return replace(start, select=request.marker)
    if request.stage in settings.stages:
        return settings.stages[request.stage]
    if at_head is not None and request.stage in at_head.stages:
        return at_head.stages[request.stage]
    if has_rows(settings):
        settings.stage(request.stage)
    documentation = settings.stages["nightly"].documentation if "nightly" in settings.stages else ()
    return Stage(name=request.stage, documentation=documentation)


def read_evidence(request: Request, context: Context, sides: Sides, *, stage: Stage, max_age: float) -> Manifest | Plan:
    """Read the manifest, or give the plan that says why it is not used."""
    if request.manifest is None:
        return run_everything(stage.name, Reason.NO_MANIFEST, "no --manifest was given")
    if not request.manifest.exists():
        return run_everything(stage.name, Reason.NO_MANIFEST, f"{request.manifest} does not exist")
    expectations = Expectations(
        now=context.clock(),
        stage=stage.name,
        ranks=stage.ranks,
        simulated=False if stage.devices and not request.simulated else None,
        max_age_hours=max_age,
        is_age_decisive=sides.base_tree is None,
    )
    found = read_manifest(request.manifest, expectations)
    if isinstance(found, Refusal):
        return run_everything(
            stage.name,
            Reason.MANIFEST_REFUSED,
            str(found.findings[0]),
            warnings=tuple(str(finding) for finding in found.findings[1:]),
        )
    source = found.header.source
    if sides.repository.commit(source) is None and not sides.repository.is_shallow():
        finding = Finding(
            check="source-known",
            found=f"source commit {source or '(none)'}, which this clone does not have",
            expected="a commit of this repository",
            hint="record a manifest of this repository, or fetch the commit",
        )
        return run_everything(stage.name, Reason.MANIFEST_REFUSED, str(finding))
    return found


def build_facts(sides: Sides, manifest: Manifest, *, stage: Stage, now: float) -> Facts:
    """Compare the trees and read the contents that the rules look at."""
    recorded = {path: Entry(mode=file.mode, blob=file.blob) for path, file in manifest.files.items() if file.is_tracked}
    base = sides.base_tree if sides.base_tree is not None else recorded
    inside = {path: entry for path, entry in base.items() if not path.startswith("../")}
    repository = sides.repository
    renames = repository.renames(sides.merge_base or sides.base, sides.head_treeish) if sides.base else {}
    own_changes = compare_trees(base, sides.head_tree, renames=renames)
    drift_changes = compare_trees(recorded, inside)
    links = {**repository.links(base), **repository.links(sides.head_tree)}
    own = Span(changes=through_links(own_changes, links), before=base, after=sides.head_tree)
    drift = Span(changes=through_links(drift_changes, links), before=recorded, after=inside)
    sources = read_sources(repository, (own, drift))
    treeish = sides.merge_base or sides.base or sides.head_treeish
    policy = Policy(
        stage=stage,
        python_files=read_python_files(repository, sides.head_tree),
    )
    changes = (*own.changes, *drift.changes)
    modules = {word for change in changes if is_new_module(change) for word in new_module_words(change.path)}
    functions = {name for change in changes for name in gained(change, sources)}
    mentions = {
        word: frozenset(path for path in paths if path.endswith(".py") or path in manifest.opened)
        for word, paths in read_mentions(repository, treeish, modules=modules, functions=functions).items()
    }
    dynamic = read_dynamic(repository, treeish) if any(not mentions[name] for name in functions) else frozenset()
    if any(is_new_module(change) for change in changes):
        policy = replace(policy, installed=policy.installed | installed_names())
    texts: dict[str, bytes] = {}
    if stage.mentioned_names and wants_texts(own.changes, sources):
        tree = repository.tree(treeish)
        texts = repository.contents((path for path in tree if path.endswith(".py")), treeish)
    warnings = [*manifest.warnings, *([sides.problem] if sides.problem else [])]
    return Facts(
        manifest=manifest,
        policy=policy,
        own=replace(own, sources=sources, mentions=mentions, dynamic=dynamic, texts=texts),
        drift=replace(drift, sources=sources, mentions=mentions, dynamic=dynamic),
        base=sides.base,
        head=sides.head,
        merge_base=sides.merge_base,
        age_hours=max(0.0, (now - manifest.header.created) / 3600),
        warnings=tuple(warnings),
    )


def is_new_module(change: Change) -> bool:
    """Whether a change adds a Python file that others may name."""
    return change.is_added and change.path.endswith((".py", ".pyw"))


def gained(change: Change, sources: Mapping[str, bytes]) -> frozenset[str]:
    """Name the functions that are all that a module gained."""
    if change.before is None or change.after is None or not change.path.endswith(".py"):
        return frozenset()
    before, after = sources.get(change.before.blob), sources.get(change.after.blob)
    return added_functions(before, after) if before is not None and after is not None else frozenset()


def read_sources(repository: Repository, spans: Iterable[Span]) -> dict[str, bytes]:
    """Read the contents of changed text files, and of all workflows where one of them changed."""
    wanted: set[str] = set()
    for span in spans:
        for change in span.changes:
            name = change.path.rpartition("/")[2]
            if matches(change.path, TEXTS) or "." not in name.lstrip("."):
                wanted.update(side.blob for side in (change.before, change.after) if side is not None)
        if any(change.path.startswith(".github/") for change in span.changes):
            trees = (span.before, span.after)
            wanted.update(entry.blob for tree in trees for path, entry in tree.items() if path.startswith(".github/"))
    return repository.blobs(wanted)


def read_python_files(repository: Repository, tree: Tree) -> tuple[str, ...]:
    """Read which file names pytest collects."""
    names = [name for name in (*PYTEST_INI, "pyproject.toml", *SHARED_INI) if name in tree]
    contents = repository.blobs(tree[name].blob for name in names)
    return python_files({name: contents.get(tree[name].blob, b"") for name in names})


def read_mentions(
    repository: Repository, treeish: str, *, modules: set[str], functions: set[str]
) -> dict[str, frozenset[str]]:
    """Find who mentions each word: an import or a string for a module, any text for a function."""
    words = modules | functions
    found: dict[str, set[str]] = {word: set() for word in words}
    contents = repository.contents(repository.grep(words, treeish), treeish)
    is_parsed = len(contents) <= PARSED_MENTIONS
    for path, content in contents.items():
        tokens = frozenset(re.findall(r"\w+", content.decode("utf-8", "replace")))
        imported = imported_words(content) if modules & tokens and path.endswith(".py") and is_parsed else tokens
        for word in words & tokens:
            if word in functions or word in imported:
                found[word].add(path)
    return {word: frozenset(paths) for word, paths in found.items()}


def read_dynamic(repository: Repository, treeish: str) -> frozenset[str]:
    """Find the Python files that look names up dynamically."""
    paths = repository.grep((*DYNAMIC, "getattr"), treeish)
    contents = repository.contents((path for path in paths if path.endswith(".py")), treeish)
    return frozenset(path for path, content in contents.items() if looks_up_dynamically(content))


def installed_names() -> frozenset[str]:
    """Name the top-level modules installed beside this tool."""
    return frozenset(importlib.metadata.packages_distributions())


def require_stage(stage: str) -> None:
    """Refuse a stage name that could not be a row's key."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", stage):
        raise UsageError(f"{stage!r} is no name of a stage, expected letters, digits, `_` and `-`")
