"""Tables of the code -> Markdown. Pure: settings and source texts in, Markdown out."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields

from ci import errors
from ci.cli import COMMANDS
from ci.docs.blocks import code, render_table
from ci.docs.variables import VARIABLES
from ci.stages import guards
from ci.stages.model import Settings, Stage

GUARDS: tuple[Callable[..., object], ...] = (
    guards.require_cuda,
    guards.require_gpus,
    guards.require_clickhouse,
    guards.require_model_cache,
    guards.require_nvcc,
)


def render_stages(settings: Settings) -> str:
    """Render what every stage selects, needs and allows."""
    rows = [
        (
            code(stage.name),
            code(stage.select) or "every test",
            str(stage.devices) if stage.devices else "none",
            str(stage.ranks) if stage.ranks else "none",
            f"{stage.timeout:g} / {stage.test_timeout:g} s",
            ", ".join(code(item) for item in stage.allow_skips) or "none",
        )
        for stage in settings.stages.values()
    ]
    return render_table(("stage", "selects", "devices", "ranks", "limits (stage / test)", "allowed skips"), rows)


def render_stage_keys() -> str:
    """Render the keys of a row with their defaults."""
    rows = [
        (code(item.name), code(_default(item.default)), item.metadata["meaning"])
        for item in fields(Stage)
        if item.default is not MISSING
    ]
    return render_table(("key", "default", "meaning"), rows)


def render_checks(settings: Settings) -> str:
    """Render the programs that must succeed before a stage's tests."""
    rows = [
        (check.name, code(" ".join(check.command)), ", ".join(map(code, check.stages))) for check in settings.checks
    ]
    return render_table(("check", "command", "stages"), rows)


def render_commands() -> str:
    """Render the commands of the tool."""
    return render_table(("command", "what it does"), [(code(f"lockgate {row.name}"), row.summary) for row in COMMANDS])


def render_exit_codes() -> str:
    """Render the exit codes; 0 and 1 are verdicts, the others errors."""
    rows = [("0", "green"), ("1", "red: tests failed, or findings that fail")]
    tree = sorted(_children(errors.CiError), key=lambda kind: kind.exit_code)
    rows += [(str(kind.exit_code), _first_sentence(kind.__doc__)) for kind in tree]
    rows += [("70", "a fault of the tool itself"), ("130", "interrupted")]
    return render_table(("code", "meaning"), rows)


def render_markers(markers: Sequence[str]) -> str:
    """Render pytest's `markers` setting: `name(args): kind: meaning`."""
    rows = []
    for line in markers:
        name, _, rest = line.partition(": ")
        kind, _, meaning = rest.partition(": ")
        rows.append((code(name), kind, meaning))
    return render_table(("marker", "kind", "meaning"), rows)


def render_guards() -> str:
    """Render the guards a test can put on itself."""
    rows = [
        (
            code(guard.__name__ + str(inspect.signature(guard, eval_str=True)).partition(" ->")[0]),
            _first_sentence(guard.__doc__),
        )
        for guard in GUARDS
    ]
    return render_table(("guard", "what it requires"), rows)


def render_variables() -> str:
    """Render the environment variables."""
    return render_table(
        ("variable", "read by", "meaning"), [(code(row.name), row.reader, row.meaning) for row in VARIABLES]
    )


def render_functions(source: str, *, decorator: str, prefix: str) -> str:
    """Render the decorated functions of a source text (nox sessions, invoke tasks) with their docstrings."""
    rows = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and any(_dotted(item) == decorator for item in node.decorator_list):
            name = node.name if prefix.startswith("nox") else node.name.replace("_", "-")
            rows.append((code(f"{prefix} {name}"), _first_sentence(ast.get_docstring(node))))
    return render_table(("command", "what it does"), rows)


def render_jobs(workflows: Mapping[str, Mapping[str, object]]) -> str:
    """Render which workflow job calls which session: workflow path -> parsed document."""
    rows = []
    for path, document in sorted(workflows.items()):
        jobs = document.get("jobs", {})
        events = document.get("on", {})
        names = [events] if isinstance(events, str) else list(events) if isinstance(events, (Mapping, list)) else []
        for name, job in jobs.items() if isinstance(jobs, Mapping) else ():
            rows.append((path.rpartition("/")[2], code(str(name)), _sessions(job), ", ".join(map(str, names))))
    return render_table(("workflow", "job", "calls", "on"), rows)


def _sessions(job: object) -> str:
    found = []
    steps = job.get("steps", []) if isinstance(job, Mapping) else []
    for step in steps if isinstance(steps, list) else []:
        inputs = step.get("with", {}) if isinstance(step, Mapping) else {}
        words = str(step.get("run", "")) if isinstance(step, Mapping) else ""
        if isinstance(inputs, Mapping) and "session" in inputs:
            arguments = str(inputs.get("arguments", ""))
            found.append(f"nox -s {inputs['session']}" + (f" -- {arguments}" if arguments else ""))
        elif words.startswith("nox "):
            found.append(words)
    return ", ".join(map(code, found)) or "no session"


def _children(kind: type[errors.CiError]) -> list[type[errors.CiError]]:
    direct = kind.__subclasses__()
    return [*direct, *(grand for child in direct for grand in _children(child))]


def _default(value: object) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _dotted(node: ast.expr) -> str:
    target = node.func if isinstance(node, ast.Call) else node
    return ast.unparse(target)


def _first_sentence(docstring: str | None) -> str:
    paragraph = (docstring or "").strip().partition("\n\n")[0]
    return " ".join(paragraph.split())
