"""Document nodes -> `Workflow` and `Action`; what the service would refuse becomes a problem.

Keys that are not known are left to syntax checkers: an unknown key hides no
job from the audit, whereas calling a file invalid says that nothing runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping

from ci.trust.document import DocumentError, Items, Node, Scalar, Table, node_text, parse_document
from ci.trust.expression import JOB_FUNCTIONS, PURE_FUNCTIONS
from ci.trust.model import Action, Concurrency, Job, Matrix, Problem, Step, Text, Trigger, Workflow
from ci.trust.template import (
    ANY_CONTEXT,
    GROUP_CONTEXTS,
    JOB_CONTEXTS,
    RUNNER_CONTEXTS,
    STEP_CONTEXTS,
    STEP_FUNCTIONS,
    Condition,
    parse_condition,
    split,
)
from ci.trust.tokens import ExpressionError

PERMISSION_LEVELS = ("read", "write", "none")


def parse_workflow(text: str, *, path: str) -> Workflow:
    """Parse a workflow file; a broken one has problems and no jobs that run."""
    try:
        root = parse_document(text)
    except DocumentError as error:
        return Workflow(path=path, name=path, problems=(Problem(line=error.line, message=str(error)),))
    return _WorkflowParser(path).workflow(root)


def parse_action(text: str, *, path: str) -> Action:
    """Parse the `action.yml` of a local action."""
    try:
        root = parse_document(text)
    except DocumentError as error:
        return Action(path=path, problems=(Problem(line=error.line, message=str(error)),))
    parser = _WorkflowParser(path)
    runs = root.get("runs") if isinstance(root, Table) else None
    steps = parser.steps(runs.get("steps")) if isinstance(runs, Table) else ()
    defaults: dict[str, Text] = {}
    inputs = root.get("inputs") if isinstance(root, Table) else None
    for name, node in inputs.entries.items() if isinstance(inputs, Table) else ():
        if isinstance(node, Table) and node.get("default") is not None:
            defaults[name] = Text(text=node_text(node.get("default")), line=node.line)
    return Action(path=path, steps=steps, defaults=defaults, problems=tuple(parser.problems))


class _WorkflowParser:
    """Walks over one file's nodes; guards the list of its problems."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.problems: list[Problem] = []

    def problem(self, line: int, message: str) -> None:
        self.problems.append(Problem(line=line, message=message))

    def workflow(self, root: Node) -> Workflow:
        if not isinstance(root, Table):
            self.problem(root.line, "the file holds no mapping, expected the keys `on` and `jobs`")
            return Workflow(path=self.path, name=self.path, problems=tuple(self.problems))
        triggers = self.triggers(root)
        jobs = self.jobs(root)
        if root.get("env") is not None:
            self.check_texts(root.get("env"), ANY_CONTEXT)
        return Workflow(
            path=self.path,
            name=node_text(root.get("name")) or self.path,
            triggers=triggers,
            permissions=self.permissions(root.get("permissions")),
            cache_mode=_cache_mode(root.get("cache-mode")),
            concurrency=self.concurrency(root.get("concurrency"), GROUP_CONTEXTS),
            env=self.texts(root.get("env")),
            jobs=jobs,
            problems=tuple(self.problems),
        )

    def triggers(self, root: Table) -> dict[str, Trigger]:
        node = root.get("on")
        if node is None or (isinstance(node, Scalar) and node.value is None):
            self.problem(root.line, "`on` is missing, expected the events that start the workflow")
            return {}
        line = root.key_lines["on"]
        if isinstance(node, Scalar):
            return {node.text: Trigger(name=node.text, line=node.line)}
        if isinstance(node, Items):
            return {node_text(item): Trigger(name=node_text(item), line=item.line) for item in node.items}
        found = {name: self.trigger(name, item, node.key_lines[name]) for name, item in node.entries.items()}
        if not found:
            self.problem(line, "`on` names no event")
        return found

    def trigger(self, name: str, node: Node, line: int) -> Trigger:
        if not isinstance(node, Table):
            return Trigger(name=name, line=line)
        for one in ("branches", "tags", "paths"):
            if node.get(one) is not None and node.get(f"{one}-ignore") is not None:
                self.problem(line, f"{name} has both {one} and {one}-ignore, expected one of them")
        inputs = node.get("inputs")
        return Trigger(
            name=name,
            line=line,
            types=_words(node.get("types")),
            branches=_words(node.get("branches")),
            branches_ignore=_words(node.get("branches-ignore")),
            tags=_words(node.get("tags")),
            tags_ignore=_words(node.get("tags-ignore")),
            has_paths=node.get("paths") is not None or node.get("paths-ignore") is not None,
            workflows=_words(node.get("workflows")) or (),
            inputs=inputs.entries if isinstance(inputs, Table) else {},
        )

    def jobs(self, root: Table) -> dict[str, Job]:
        node = root.get("jobs")
        if not isinstance(node, Table) or not node.entries:
            self.problem(root.key_lines.get("jobs", root.line), "`jobs` is missing or empty, expected at least one job")
            return {}
        found: dict[str, Job] = {}
        for name, item in node.entries.items():
            if isinstance(item, Table):
                found[name] = self.job(name, item, node.key_lines[name])
            else:
                self.problem(node.key_lines[name], f"job {name!r} is no mapping")
        self.check_needs(found)
        return found

    def check_needs(self, jobs: Mapping[str, Job]) -> None:
        for job in jobs.values():
            for needed in job.needs:
                if needed not in jobs:
                    self.problem(job.line, f"job {job.id!r} needs {needed!r}, which does not exist")
        ready: set[str] = set()
        while True:
            more = {
                name
                for name, job in jobs.items()
                if name not in ready and all(one in ready or one not in jobs for one in job.needs)
            }
            if not more:
                break
            ready |= more
        for name in jobs:
            if name not in ready:
                self.problem(jobs[name].line, f"job {name!r} waits for itself through `needs`")

    def job(self, name: str, node: Table, line: int) -> Job:
        uses, runs_on, steps = node.get("uses"), node.get("runs-on"), node.get("steps")
        if uses is None and runs_on is None:
            self.problem(line, f"job {name!r} has neither `runs-on` nor `uses`")
        if uses is None and steps is not None and not isinstance(steps, Items):
            self.problem(steps.line, f"the steps of job {name!r} are no list")
        self.check_texts(runs_on, RUNNER_CONTEXTS, functions=PURE_FUNCTIONS)
        strategy = node.get("strategy")
        matrix = strategy.get("matrix") if isinstance(strategy, Table) else None
        self.check_texts(strategy, RUNNER_CONTEXTS)
        inputs, secrets = node.get("with"), node.get("secrets")
        self.check_texts(inputs, ANY_CONTEXT)
        environment = node.get("environment")
        where = environment.get("name") if isinstance(environment, Table) else environment
        self.check_texts(where, ANY_CONTEXT)
        return Job(
            id=name,
            line=line,
            name=Text(text=node_text(node.get("name")), line=line) if node.get("name") is not None else None,
            condition=self.condition(node, JOB_CONTEXTS, JOB_FUNCTIONS) or Condition(text="", line=line),
            needs=_words(node.get("needs")) or (),
            runs_on=runs_on,
            runs_on_line=node.key_lines.get("runs-on", line),
            environment=Text(text=node_text(where), line=where.line)
            if isinstance(where, Scalar) and where.text
            else None,
            concurrency=self.concurrency(node.get("concurrency"), RUNNER_CONTEXTS),
            permissions=self.permissions(node.get("permissions")),
            cache_mode=_cache_mode(node.get("cache-mode")),
            env=self.texts(node.get("env")),
            outputs=self.texts(node.get("outputs")),
            matrix=Matrix(line=matrix.line, node=matrix) if matrix is not None else None,
            steps=self.steps(steps),
            uses=Text(text=node_text(uses), line=uses.line) if uses is not None else None,
            inputs=inputs.entries if isinstance(inputs, Table) else {},
            secrets=self.texts(secrets),
            inherits_secrets=node_text(secrets) == "inherit",
            volumes=_volumes(node),
            texts=tuple(_all_texts(node)),
        )

    def condition(self, node: Table, contexts: Collection[str], functions: Collection[str]) -> Condition | None:
        found = node.get("if")
        if found is None:
            return None
        if not isinstance(found, Scalar):
            self.problem(found.line, "`if` is no scalar")
            return None
        line = node.key_lines["if"]
        try:
            return parse_condition(node_text(found), line=line, contexts=contexts, functions=functions)
        except ExpressionError as error:
            self.problem(line, f"`if`: {error}")
            return None

    def steps(self, node: Node | None) -> tuple[Step, ...]:
        if not isinstance(node, Items):
            return ()
        found = []
        for item in node.items:
            if not isinstance(item, Table):
                self.problem(item.line, "a step is no mapping")
                continue
            uses, run = item.get("uses"), item.get("run")
            if uses is None and run is None:
                self.problem(item.line, "a step has neither `uses` nor `run`")
            for key in ("run", "with", "env"):
                self.check_texts(item.get(key), ANY_CONTEXT)
            found.append(
                Step(
                    line=item.line,
                    name=node_text(item.get("name")),
                    id=node_text(item.get("id")),
                    condition=self.condition(item, STEP_CONTEXTS, STEP_FUNCTIONS),
                    uses=Text(text=node_text(uses), line=uses.line) if uses is not None else None,
                    run=Text(text=node_text(run), line=_body_line(run)) if run is not None else None,
                    inputs=self.texts(item.get("with")),
                    env=self.texts(item.get("env")),
                )
            )
        return tuple(found)

    def texts(self, node: Node | None) -> dict[str, Text]:
        if not isinstance(node, Table):
            return {}
        return {key: Text(text=node_text(item), line=item.line) for key, item in node.entries.items()}

    def check_texts(
        self, node: Node | None, contexts: frozenset[str], functions: frozenset[str] = STEP_FUNCTIONS
    ) -> None:
        for text in _all_texts(node):
            try:
                split(text.text, contexts, functions)
            except ExpressionError as error:
                self.problem(text.line, str(error))

    def concurrency(self, node: Node | None, contexts: frozenset[str]) -> Concurrency | None:
        if node is None:
            return None
        self.check_texts(node, contexts)
        if isinstance(node, Table):
            group, cancel = node_text(node.get("group")), node_text(node.get("cancel-in-progress"))
            return Concurrency(group=group, cancel=cancel or "false", line=node.line)
        return Concurrency(group=node_text(node), cancel="false", line=node.line)

    def permissions(self, node: Node | None) -> dict[str, str] | None:
        if node is None or (isinstance(node, Scalar) and node.value is None):
            return None
        if isinstance(node, Scalar):
            level = {"read-all": "read", "write-all": "write"}.get(node.text)
            if level is None:
                self.problem(node.line, f"permissions is {node.text!r}, expected read-all, write-all or a mapping")
                return None
            return {"all": level}
        if not isinstance(node, Table):
            self.problem(node.line, "permissions is a list, expected read-all, write-all or a mapping")
            return None
        found = {}
        for scope, item in node.entries.items():
            if node_text(item) not in PERMISSION_LEVELS:
                self.problem(
                    item.line, f"permission {scope} is {node_text(item)!r}, expected {', '.join(PERMISSION_LEVELS)}"
                )
            elif node_text(item) != "none":
                found[scope] = node_text(item)
        return found


def _body_line(node: Node) -> int:
    return node.line + 1 if isinstance(node, Scalar) and node.block else node.line


def _cache_mode(node: Node | None) -> str:
    return node_text(node).lower()


def _words(node: Node | None) -> tuple[str, ...] | None:
    if node is None or (isinstance(node, Scalar) and node.value is None):
        return None
    if isinstance(node, Items):
        return tuple(node_text(item) for item in node.items)
    return (node_text(node),)


def _volumes(node: Table) -> tuple[Text, ...]:
    """Collect what the job's containers mount: `volumes` entries, and `options` as they stand."""
    services = node.get("services")
    containers = [node.get("container"), *(services.entries.values() if isinstance(services, Table) else ())]
    found: list[Text] = []
    for container in containers:
        if not isinstance(container, Table):
            continue
        volumes = container.get("volumes")
        if isinstance(volumes, Items):
            found += [Text(text=node_text(item), line=item.line) for item in volumes.items]
        options = node_text(container.get("options")).split()
        line = container.key_lines.get("options", container.line)
        for flag, value in itertools.pairwise(options):
            if flag in ("-v", "--volume"):
                found.append(Text(text=value, line=line))
        found += [Text(text=one.split("=", 1)[1], line=line) for one in options if one.startswith(("--volume=", "-v="))]
    return tuple(found)


def _all_texts(node: Node | None) -> list[Text]:
    """Collect every scalar that holds an expression, or could name a secret."""
    found: list[Text] = []
    stack = [node] if node is not None else []
    seen: set[int] = set()
    while stack:
        item = stack.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, Scalar):
            if "${{" in item.text:
                found.append(Text(text=item.text, line=_body_line(item)))
        elif isinstance(item, Items):
            stack.extend(reversed(item.items))
        else:
            stack.extend(reversed(item.entries.values()))
    return found
