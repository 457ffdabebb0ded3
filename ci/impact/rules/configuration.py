"""Files that steer everything: the policy, pytest, the environment, workflows; compared by meaning."""

from __future__ import annotations

import re

from ci.impact.changes import LINK, SUBMODULE, Change, folders_of
from ci.impact.facts import OWN_SELECTOR, Effect, View
from ci.impact.meaning import (
    PYTEST_SECTIONS,
    ini_difference,
    python_differs,
    requirements_difference,
    toml_difference,
    yaml_differs,
)
from ci.impact.patterns import matches
from ci.impact.reasons import Reason

PYTEST_INI = ("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml")
SHARED_INI = ("tox.ini", "setup.cfg")
ENVIRONMENT = (
    "*.dockerfile", "*.lock", ".devcontainer/**", ".dockerignore", ".env", ".gitattributes", ".gitmodules",
    ".python-version", ".tool-versions", "Containerfile*", "Dockerfile*", "Pipfile", "compose.y*ml", "conda-lock.y*ml",
    "constraints*.txt", "docker-compose*.y*ml", "environment*.y*ml", "package-lock.json", "pdm.toml", "pixi.toml",
    "poetry.toml", "pylock*.toml", "requirements*.in", "requirements*.txt", "uv.toml",
)  # fmt: skip
ENVIRONMENT_FOLDERS = ("requirements/**",)
WORKFLOWS = (".github/workflows/*.yml", ".github/workflows/*.yaml")
ACTIONS = (".github/actions/**",)


def judge(change: Change, view: View) -> list[Effect] | None:
    """Judge a path that steers more than its readers; None for every other path."""
    reason = _reason_of_kind(change)
    if reason is not None:
        return [Effect(path=change.path, reason=reason, detail=str(change))]
    path, name = change.path, change.path.rpartition("/")[2]
    if name == "pyproject.toml" and _steers(path, view):
        return _pyproject(change, view)
    if name in (*PYTEST_INI, *SHARED_INI) and _steers(path, view):
        return _ini(change, view)
    if matches(path, WORKFLOWS) or matches(path, ACTIONS):
        return _workflow(change, view)
    if matches(path, _selector(view)):
        return _unless_same(change, view, Reason.SELECTOR_CHANGED)
    if path == "setup.py":
        return _unless_same(change, view, Reason.ENVIRONMENT)
    if _is_environment(path, view):
        return _environment(change, view)
    return None


def _reason_of_kind(change: Change) -> Reason | None:
    """Name what is no plain file of the planned folder."""
    if change.path.startswith("../"):
        return Reason.OUTSIDE
    if SUBMODULE in change.modes:
        return Reason.SUBMODULE
    return Reason.LINK if LINK in change.modes else None


def _steers(path: str, view: View) -> bool:
    """Whether a configuration file stands at the root or above a test; others are test data."""
    folder = path.rpartition("/")[0]
    return not folder or bool(view.below(folder))


def _is_environment(path: str, view: View) -> bool:
    if not (matches(path, ENVIRONMENT) or matches(path, ENVIRONMENT_FOLDERS)):
        return False
    if "/" not in path or matches(path, ENVIRONMENT_FOLDERS):
        return True
    is_data = path in view.manifest.opened or bool(matches(path, view.policy.stage.data))
    return not is_data and not view.policy.is_documentation(path)


def _selector(view: View) -> tuple[str, ...]:
    own = OWN_SELECTOR if "ci/impact/blocks.py" in view.span.before else ()
    return (*view.policy.selector, *own)


def _sides(change: Change, view: View) -> tuple[bytes | None, bytes | None] | None:
    """Give both contents, or None where git lacks one of them: then the file differs."""
    before, after = view.span.source(change.before), view.span.source(change.after)
    lacks = (change.before is not None and before is None) or (change.after is not None and after is None)
    return None if lacks else (before, after)


def _same(change: Change, view: View, detail: str) -> list[Effect]:
    """Nothing steers differently, but whoever read the file's text runs."""
    readers = view.manifest.opened.get(change.path, 0)
    found = [Effect(path=change.path, reason=Reason.SAME_MEANING, detail=detail)]
    if readers:
        found.append(Effect(path=change.path, reason=Reason.DATA_READ, detail=str(change), tests=readers))
    return found


def _unless_same(change: Change, view: View, reason: Reason) -> list[Effect]:
    sides = _sides(change, view)
    if change.path.endswith(".py") and sides is not None and not python_differs(*sides):
        return _same(change, view, f"{change}, comments or layout alone")
    return [Effect(path=change.path, reason=reason, detail=str(change))]


def _pyproject(change: Change, view: View) -> list[Effect]:
    sides = _sides(change, view)
    if sides is None:
        return [Effect(path=change.path, reason=Reason.ENVIRONMENT, detail=f"{change}, and git lacks one side")]
    keys = toml_difference(*sides)
    found = []
    for key in keys:
        reason = _reason_of_key(key, view.policy.stage.name)
        if reason is not None:
            found.append(Effect(path=change.path, reason=reason, detail=f"{change.path}: {key}"))
    if found:
        return found
    what = f"only {', '.join(keys)}" if keys else "only settings of other tools, comments or layout"
    return _same(change, view, f"{change}, {what}")


def _reason_of_key(key: str, stage: str) -> Reason | None:
    if key.startswith("tool.pytest"):
        return Reason.PYTEST_CONFIG
    if key.startswith("tool.lockgate.stages."):
        return Reason.POLICY_CHANGED if key.split(".")[3] == stage else None
    if key.startswith(("tool.lockgate.checks", "tool.lockgate.trust", "tool.lockgate.package")):
        return None
    if key.startswith("tool.lockgate"):
        return Reason.POLICY_CHANGED
    return Reason.ENVIRONMENT


def _ini(change: Change, view: View) -> list[Effect]:
    path, name = change.path, change.path.rpartition("/")[2]
    sides = _sides(change, view)
    if sides is None:
        return [Effect(path=path, reason=Reason.PYTEST_CONFIG, detail=f"{change}, and git lacks one side")]
    is_toml = name.endswith(".toml")
    names = toml_difference(*sides) if is_toml else ini_difference(*sides)
    if not names:
        return _same(change, view, f"{change}, only sections of other tools, comments or layout")
    for section in names:
        if name in PYTEST_INI or section in PYTEST_SECTIONS:
            return [Effect(path=path, reason=Reason.PYTEST_CONFIG, detail=f"{path}: {section}")]
    return [Effect(path=path, reason=Reason.ENVIRONMENT, detail=f"{path}: {', '.join(names)}")]


def _environment(change: Change, view: View) -> list[Effect]:
    sides = _sides(change, view)
    is_list = change.path.endswith((".txt", ".in"))
    if is_list and sides is not None and not requirements_difference(*sides):
        return _same(change, view, f"{change}, comments or blank lines alone")
    return [Effect(path=change.path, reason=Reason.ENVIRONMENT, detail=str(change))]


def _workflow(change: Change, view: View) -> list[Effect]:
    sides = _sides(change, view)
    is_yaml = change.path.endswith((".yml", ".yaml"))
    if is_yaml and sides is not None and not yaml_differs(*sides):
        return _same(change, view, f"{change}, comments or layout alone")
    stage = view.policy.stage.name
    if change.path in relevant_workflows(view, stage):
        return [Effect(path=change.path, reason=Reason.WORKFLOW_CHANGED, detail=f"{change}; it can run {stage}")]
    found = [Effect(path=change.path, reason=Reason.OTHER_WORKFLOW, detail=f"{change}; it does not run {stage}")]
    readers = view.manifest.opened.get(change.path, 0)
    if readers:
        found.append(Effect(path=change.path, reason=Reason.DATA_READ, detail=str(change), tests=readers))
    return found


def relevant_workflows(view: View, stage: str) -> frozenset[str]:
    """Find the workflow and action files that can run a stage, on either side.

    These are the files that name the stage, what they use in the repository,
    and who uses them; all of them, where none names it.
    """
    texts: dict[str, bytes] = {}
    for tree in (view.span.before, view.span.after):
        for path, entry in tree.items():
            if path.startswith(".github/") and (matches(path, WORKFLOWS) or matches(path, ACTIONS)):
                content = view.span.source(entry)
                # Unknown content may name anything.
                texts[path] = texts.get(path, b"") + b"\n" + (stage.encode() if content is None else content)
    word = re.compile(rb"(?<![\w-])" + re.escape(stage.encode()) + rb"(?![\w-])")
    found = {path for path, text in texts.items() if word.search(text)}
    if not found:
        return frozenset(texts)
    while True:
        used = {path for path in texts if any(_uses(texts[user], path) for user in found)}
        users = {path for path, text in texts.items() if any(_uses(text, one) for one in found)}
        if used | users <= found:
            return frozenset(found)
        found |= used | users


def _uses(text: bytes, path: str) -> bool:
    """Whether a workflow names another file of the repository, or the folder of an action."""
    names = [path] if "/workflows/" in path else [folder for folder in folders_of(path) if folder.count("/") > 1]
    return any(b"./" + name.encode("utf-8", "surrogateescape") in text for name in names)
