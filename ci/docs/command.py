"""`lockgate docs`: write the generated parts of the documentation, or check that they are fresh."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ci.context import Context
from ci.docs import render
from ci.docs.blocks import replace_blocks
from ci.errors import ConfigError
from ci.impact.reference import render_reasons
from ci.stages.table import read_markers, read_settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if a page is out of date")


def run(options: argparse.Namespace, context: Context) -> int:
    """Render every page that holds generated blocks; 1 means that `--check` found a stale one."""
    renderers = build_renderers(context.root)
    stale = []
    for page in find_pages(context.root):
        text = page.read_text(encoding="utf-8")
        name = page.relative_to(context.root).as_posix()
        fresh = replace_blocks(text, renderers, source=name)
        if fresh != text:
            stale.append(name)
            if not options.check:
                page.write_text(fresh, encoding="utf-8")
    if options.check and stale:
        context.out.line(f"out of date: {', '.join(stale)}")
        context.out.line("run `lockgate docs` (or `invoke docs`) and commit what it writes")
        return 1
    context.out.line(f"written: {', '.join(stale)}" if stale else "the generated documentation is up to date")
    return 0


def find_pages(root: Path) -> list[Path]:
    """Find the Markdown pages that may hold generated blocks."""
    return sorted([*root.glob("*.md"), *root.glob("docs/**/*.md")])


def build_renderers(root: Path) -> Mapping[str, Callable[[], str]]:
    """Give the table of blocks; a source file is read only when a page asks for its block."""
    return {
        "stages": lambda: render.render_stages(read_settings(root)),
        "stage-keys": render.render_stage_keys,
        "checks": lambda: render.render_checks(read_settings(root)),
        "commands": render.render_commands,
        "exit-codes": render.render_exit_codes,
        "markers": lambda: render.render_markers(read_markers(root)),
        "guards": render.render_guards,
        "variables": render.render_variables,
        "sessions": lambda: render.render_functions(
            _read(root / "noxfile.py"), decorator="nox.session", prefix="nox -s"
        ),
        "tasks": lambda: render.render_functions(_read(root / "tasks.py"), decorator="task", prefix="invoke"),
        "jobs": lambda: render.render_jobs(_read_workflows(root)),
        "reasons": render_reasons,
    }


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"a generated block needs {path.name}: {error.strerror}") from error


def _read_workflows(root: Path) -> dict[str, Mapping[str, Any]]:
    from ruamel.yaml import YAML

    # YAML 1.2: `on` stays the string that it is, not a boolean.
    reader = YAML(typ="safe", pure=True)
    paths = sorted((root / ".github" / "workflows").glob("*.y*ml"))
    return {path.relative_to(root).as_posix(): reader.load(path.read_text(encoding="utf-8")) or {} for path in paths}
