"""The only place that talks to people and to GitHub.

A terminal gets colour and tables (rich); a pipe gets plain lines; a workflow
job gets annotations, outputs (`GITHUB_OUTPUT`) and a step summary
(`GITHUB_STEP_SUMMARY`) as well. Diagnostics go to stderr, so that `--format
json` on stdout stays clean.
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.markup import escape

from ci.errors import CiError, ReportError


def format_github_value(name: str, value: str, *, delimiter: str) -> str:
    """Render one `GITHUB_OUTPUT` entry; several lines use the heredoc form."""
    if "\n" not in value and "\r" not in value:
        return f"{name}={value}\n"
    return f"{name}<<{delimiter}\n{value}\n{delimiter}\n"


def escape_annotation(text: str, *, is_property: bool = False) -> str:
    """Escape text for a workflow command, so that no content can start a new one."""
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if is_property else text


@dataclass(frozen=True, kw_only=True)
class Output:
    """Where a command's words go; holds no state but its two consoles."""

    stdout: Console
    stderr: Console
    github_output: Path | None = None
    github_summary: Path | None = None
    github_actions: bool = False

    @classmethod
    def for_process(cls) -> Output:
        """Write to this process's own streams, as its environment says."""
        environ = os.environ
        return cls(
            # Without emoji: rich would turn `:end:` in a test id into a picture, even where markup is off.
            stdout=Console(soft_wrap=not sys.stdout.isatty(), emoji=False),
            stderr=Console(stderr=True, soft_wrap=not sys.stderr.isatty(), emoji=False),
            github_output=_path(environ, "GITHUB_OUTPUT"),
            github_summary=_path(environ, "GITHUB_STEP_SUMMARY"),
            github_actions=environ.get("GITHUB_ACTIONS") == "true",
        )

    def show(self, renderable: RenderableType) -> None:
        """Print a rich renderable (a table, a rule); text is taken as rich markup."""
        self.stdout.print(renderable)

    def line(self, text: str = "") -> None:
        """Print one plain line, with no markup read into it."""
        self.stdout.print(text, markup=False, highlight=False)

    def json(self, value: Any) -> None:
        """Print one JSON document, never wrapped or coloured."""
        self.stdout.file.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
        self.stdout.file.flush()

    def step(self, text: str) -> None:
        """Say on stderr what happens now."""
        self.stderr.print(f"[bold cyan]>[/] {escape(text)}", highlight=False)

    def warn(self, text: str, *, path: str = "", line: int = 0) -> None:
        """Warn on stderr, and as an annotation in a workflow job."""
        self.stderr.print(f"[yellow]warning:[/] {escape(text)}", highlight=False)
        self._annotate("warning", text, path=path, line=line)

    def error(self, error: CiError) -> None:
        """Show an error and its hint on stderr, and as an annotation in a workflow job."""
        self.stderr.print(f"[bold red]error:[/] {escape(error.message)}", highlight=False)
        if error.hint:
            self.stderr.print(f"[bold]hint:[/] {escape(error.hint)}", highlight=False)
        self._annotate("error", str(error))

    def set_outputs(self, values: Mapping[str, str]) -> None:
        """Append job outputs to `GITHUB_OUTPUT`, if there is one."""
        if self.github_output is not None:
            # A random delimiter: content of a value can never close its own heredoc.
            entries = (
                format_github_value(name, value, delimiter=f"lockgate-{uuid.uuid4().hex}")
                for name, value in values.items()
            )
            _append(self.github_output, "".join(entries))

    def summary(self, markdown: str) -> None:
        """Append Markdown to the step summary, if there is one."""
        if self.github_summary is not None:
            _append(self.github_summary, markdown.rstrip() + "\n\n")

    def _annotate(self, level: str, text: str, *, path: str = "", line: int = 0) -> None:
        if not self.github_actions:
            return
        place = f" file={escape_annotation(path, is_property=True)}" if path else ""
        place += f",line={line}" if path and line else ""
        self.stderr.file.write(f"::{level}{place}::{escape_annotation(text)}\n")
        self.stderr.file.flush()


def _path(environ: Mapping[str, str], name: str) -> Path | None:
    return Path(environ[name]) if environ.get(name) else None


def _append(path: Path, text: str) -> None:
    try:
        with path.open("a", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise ReportError(f"cannot append to {path}: {error.strerror}") from error
