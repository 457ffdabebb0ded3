"""What a workflow folder holds, as typed values; nothing here reads or decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ci.trust.document import Node
from ci.trust.template import Condition


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Why the service refuses a file: nothing in it runs."""

    line: int
    message: str


@dataclass(frozen=True, kw_only=True)
class Text:
    """A string as written, possibly with `${{ }}`, and its line."""

    text: str
    line: int


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """One entry of `on:`; None means that a filter is not written."""

    name: str
    line: int
    types: tuple[str, ...] | None = None
    branches: tuple[str, ...] | None = None
    branches_ignore: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None
    tags_ignore: tuple[str, ...] | None = None
    has_paths: bool = False
    workflows: tuple[str, ...] = ()
    inputs: Mapping[str, Node] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Concurrency:
    """A concurrency group and whether it cancels what runs in it."""

    group: str
    cancel: str
    line: int


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step; `inputs` are the texts under `with:`."""

    line: int
    name: str = ""
    id: str = ""
    condition: Condition | None = None
    uses: Text | None = None
    run: Text | None = None
    inputs: Mapping[str, Text] = field(default_factory=dict)
    env: Mapping[str, Text] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """`strategy.matrix` as written."""

    line: int
    node: Node


@dataclass(frozen=True, kw_only=True)
class Job:
    """One job; `permissions` None means undeclared."""

    id: str
    line: int
    name: Text | None = None
    condition: Condition
    needs: tuple[str, ...] = ()
    runs_on: Node | None = None
    runs_on_line: int = 0
    environment: Text | None = None
    concurrency: Concurrency | None = None
    permissions: Mapping[str, str] | None = None
    cache_mode: str = ""
    env: Mapping[str, Text] = field(default_factory=dict)
    outputs: Mapping[str, Text] = field(default_factory=dict)
    matrix: Matrix | None = None
    steps: tuple[Step, ...] = ()
    uses: Text | None = None
    inputs: Mapping[str, Node] = field(default_factory=dict)
    secrets: Mapping[str, Text] = field(default_factory=dict)
    inherits_secrets: bool = False
    volumes: tuple[Text, ...] = ()
    texts: tuple[Text, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Workflow:
    """One file. With `problems` the service runs nothing of it."""

    path: str
    name: str
    triggers: Mapping[str, Trigger] = field(default_factory=dict)
    permissions: Mapping[str, str] | None = None
    cache_mode: str = ""
    concurrency: Concurrency | None = None
    env: Mapping[str, Text] = field(default_factory=dict)
    jobs: Mapping[str, Job] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    @property
    def only_called(self) -> bool:
        """Tell whether no event starts it, only another workflow."""
        return set(self.triggers) == {"workflow_call"}


@dataclass(frozen=True, kw_only=True)
class Action:
    """A local composite action; `steps` is empty for other kinds."""

    path: str
    steps: tuple[Step, ...] = ()
    defaults: Mapping[str, Text] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Folder:
    """Everything that was read: workflows by path, local actions by path, what could not be read."""

    workflows: Mapping[str, Workflow]
    actions: Mapping[str, Action] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
