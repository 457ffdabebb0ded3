"""The pytest side of recording: loaded with `-p ci.manifest.plugin`, active where `LOCKGATE_RECORD_DIR` is set.

One context per whole test protocol, one per wider fixture, per module that
executes, per collector. One fork per test, so that nothing which an earlier
test computed and kept can hide code from a later one; where forking is
impossible (ranks, CUDA, threads) tests share the process, and the manifest
credits conservatively.

Limits: a test whose inputs are drawn at random (hypothesis without a fixed
seed) owns what it ran when it was recorded; environment variables, the network
and the clock are no dependencies.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook
from _pytest.fixtures import FixtureDef

from ci.manifest import forked, session
from ci.manifest.trace import canary, child, children, files, imports
from ci.manifest.trace.recorder import RecorderError, make_recorder
from ci.manifest.trace.state import CONTEXT_VARIABLE, State

FOLDER = "LOCKGATE_RECORD_DIR"
STAGE = "LOCKGATE_RECORD_STAGE"
ISOLATION = "LOCKGATE_RECORD_ISOLATION"
"""`auto` (a fork per test where possible), `fork` (a test that cannot be forked is opaque) or `shared`."""

ORDER = "LOCKGATE_RECORD_ORDER"
"""`reverse`: the second run of a shared-process recording into the same folder."""

BRANCH = "LOCKGATE_RECORD_BRANCH"
"""`1`: the data for the ordinary coverage report hold branches (the C tracer then costs twice as much)."""

CORE = "LOCKGATE_RECORD_CORE"
ROOT = "LOCKGATE_RECORD_ROOT"

JIT_CACHES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "NUMBA_CACHE_DIR")

KEY = pytest.StashKey["Recorded"]()


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Begin before the first conftest is imported."""
    folder = os.environ.get(FOLDER)
    if not folder or os.environ.get(CONTEXT_VARIABLE):
        # A pytest that a test starts belongs to that test: its child recorder has it already.
        return
    child.hand_over()
    if early_config.pluginmanager.has_plugin("xdist") and getattr(
        early_config.known_args_namespace, "numprocesses", None
    ):
        raise pytest.UsageError("a recording cannot use pytest-xdist; run it without -n")
    if getattr(early_config.known_args_namespace, "cov_source", None):
        raise pytest.UsageError("a recording measures coverage itself; run it without --cov")
    root = find_root(early_config)
    early = session.early_modules(root)
    try:
        recorder = make_recorder(
            roots=(root + os.sep, canary.__file__),
            wanted=os.environ.get(CORE, ""),
            branch=os.environ.get(BRANCH) == "1",
        )
        os.makedirs(folder, exist_ok=True)
        recorder.start()
    except (RecorderError, OSError) as error:
        raise pytest.UsageError(f"cannot record: {error}") from error
    state = State(root=root, folder=os.path.realpath(folder), recorder=recorder)
    recorded = Recorded(state, early_config, early)
    recorded.begin()
    early_config.stash[KEY] = recorded
    early_config.pluginmanager.register(recorded, "lockgate-recorded")


def find_root(config: pytest.Config) -> str:
    """Find the repository: named by the environment, else the nearest `.git` or `pyproject.toml` from here up."""
    if os.environ.get(ROOT):
        return os.path.realpath(os.environ[ROOT])
    here = os.path.realpath(config.invocation_params.dir)
    folder = here
    while folder != os.path.dirname(folder):
        if os.path.exists(os.path.join(folder, ".git")) or os.path.isfile(os.path.join(folder, "pyproject.toml")):
            return folder
        folder = os.path.dirname(folder)
    return here


class Recorded:
    """The hooks of one recorded session."""

    def __init__(self, state: State, config: pytest.Config, early: list[str]) -> None:
        """Hold the state; nothing runs yet."""
        self.state = state
        self.config = config
        self.early = early
        self.started = time.time()
        rank, ranks = session.rank_of(os.environ)
        self.rank, self.ranks = rank, ranks
        self.wanted = os.environ.get(ISOLATION, "auto")
        offset = os.path.relpath(config.rootpath, state.root)
        self.prefix = "" if offset == "." else offset.replace(os.sep, "/") + "/"
        self.reports: dict[str, list[pytest.TestReport]] = {}
        self.opaque: dict[str, set[str]] = {}
        self.isolation: dict[str, str] = {}
        self.fixtures: dict[str, set[str]] = {}
        self.test = ""
        self.collected: list[str] = []
        self.collect_errors = 0
        self.number = 0
        self.caches = os.path.join(state.folder, f"jit-{os.getpid()}")
        self.places: dict[Path, str] = {}
        self.driven: AbstractContextManager[None] | None = None

    def begin(self) -> None:
        """Put all wrappers in place and prove the recorder once."""
        state = self.state
        state.journal.write(
            "start",
            {
                "role": "session",
                "uid": state.journal.uid,
                "parent": "",
                "pid": os.getpid(),
                "label": "",
                "core": state.recorder.core,
                "root": state.root,
                "stage": os.environ.get(STAGE, ""),
                "time": self.started,
                "rank": self.rank,
                "ranks": self.ranks,
                "python": sys.version.split()[0],
                "early": self.early,
                "order": os.environ.get(ORDER, "forward"),
                "simulated": bool(os.environ.get("LOCKGATE_SIMULATED")),
                "commit": session.read_commit(self.state.root),
            },
        )
        imports.install(state, rewriter=AssertionRewritingHook)
        files.install(state)
        children.install(state, is_session=True)
        state.listen()
        self._wrap_fixtures()
        state.active = True
        self._canary("start")

    def _canary(self, when: str) -> None:
        # Loaded afresh, so that finding its code is proved as well.
        spec = importlib.util.spec_from_file_location("lockgate_canary", canary.__file__)
        if spec is None or spec.loader is None:
            return
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for test in (module.first, module.second):
            with self.state.context(f"canary:{when}:{test.__name__}"):
                test()

    def _wrap_fixtures(self) -> None:
        """Give wider fixtures contexts of their own, also when they end, and note who uses them."""
        recorded = self
        execute, finish = FixtureDef.execute, FixtureDef.finish

        def wrapped_execute(self: Any, request: Any) -> Any:
            if _is_wide(self) and recorded.test:
                recorded.fixtures.setdefault(recorded.test, set()).add(_fixture_label(self))
            return execute(self, request)

        def wrapped_finish(self: Any, request: Any) -> None:
            if not _is_wide(self):
                return finish(self, request)
            with recorded.state.context(_fixture_label(self)):
                return finish(self, request)

        FixtureDef.execute = wrapped_execute  # type: ignore[method-assign]
        FixtureDef.finish = wrapped_finish  # type: ignore[method-assign]

    def id(self, node: str) -> str:
        """Make pytest's node id relative to the repository."""
        return f"{self.prefix}{node}" if node else self.prefix.rstrip("/")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
        """Count collection for the collector."""
        with self.state.context(f"collect:{self.id(collector.nodeid)}"):
            return (yield)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Count collection errors: their tests are not known."""
        self.collect_errors += report.failed

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Turn the order round for the second run of a shared-process recording."""
        if os.environ.get(ORDER) == "reverse":
            items.reverse()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Write the inventory down, and prepare what all forks share."""
        self.collected = [self.id(item.nodeid) for item in session.items]
        self.state.journal.write("collected", self.collected)
        factory = getattr(self.config, "_tmp_path_factory", None)
        if factory is not None:
            factory.getbasetemp()
        if self.wanted != "shared" and not self.ranks > 1:
            # What was imported is old then: children's collections leave it alone, and its memory stays shared.
            gc.collect()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: FixtureDef[Any]) -> Iterator[Any]:
        """Count a wider fixture's setup for the fixture."""
        if not _is_wide(fixturedef):
            return (yield)
        with self.state.context(_fixture_label(fixturedef)):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        """Count the whole protocol for the test."""
        self.test = self.id(item.nodeid)
        self._relocate_caches()
        with self.state.context(f"test:{self.test}"):
            try:
                result = yield
                if self.isolation.get(self.test, "shared") != "fork":
                    self._notice_problem()
            finally:
                self._write(item)
                self.test = ""
        return result

    @pytest.hookimpl(specname="pytest_runtest_protocol", tryfirst=True)
    def pytest_isolate(self, item: pytest.Item) -> bool | None:
        """Run the test in a fork, if that is possible here; else leave it to pytest."""
        obstacle = "shared" if self.wanted == "shared" or self.ranks > 1 else forked.obstacle()
        if obstacle and self.wanted == "fork":
            self.opaque.setdefault(self.test, set()).add(f"not-isolated: {obstacle}")
        self.isolation[self.test] = obstacle or "fork"
        if obstacle:
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in forked.run(self.state, item):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        """Take the context where a runner drives the phases itself (ranks)."""
        if not self.test:
            self.test = self.id(item.nodeid)
            self.isolation[self.test] = "shared"
            self.driven = self.state.context(f"test:{self.test}")
            self.driven.__enter__()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Iterator[None]:
        """Give it back."""
        try:
            return (yield)
        finally:
            if self.driven is not None:
                self._notice_problem()
                self.driven.__exit__(None, None, None)
                self.driven = None
                self.test = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the reports of the current test."""
        self.reports.setdefault(self.id(report.nodeid), []).append(report)

    def _relocate_caches(self) -> None:
        """Give each test cold caches of compiled code: a warm one hides what an earlier test compiled."""
        self.number += 1
        for name in JIT_CACHES:
            os.environ[name] = os.path.join(self.caches, str(self.number), name.lower())

    def _notice_problem(self) -> None:
        problem = self.state.recorder.problem()
        if problem:
            self.state.current.opaque.add(problem)

    def _write(self, item: pytest.Item) -> None:
        name = self.id(item.nodeid)
        reports = self.reports.pop(name, [])
        outcome, reason = judge(reports)
        path = self._place(item.path)
        self.state.journal.write(
            "test",
            {
                "id": name,
                "path": path,
                "outcome": outcome,
                "reason": reason,
                "duration": round(sum(report.duration for report in reports), 6),
                "opaque": sorted(self.opaque.pop(name, ())),
                "isolation": self.isolation.pop(name, "shared"),
                "fixtures": sorted(self.fixtures.pop(name, ())),
            },
        )

    def _place(self, path: Path) -> str:
        if path not in self.places:
            self.places[path] = os.path.relpath(os.path.realpath(path), self.state.root).replace(os.sep, "/")
        return self.places[path]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Prove the recorder again and close the journal."""
        self._close(session, int(exitstatus))

    def _close(self, current: pytest.Session, exitstatus: int) -> None:
        if not self.state.active:
            return
        self._canary("end")
        self.state.active = False
        inside = self.state.inside
        paths = sorted({os.path.realpath(path or ".") for path in sys.path})
        extra = {
            "time": time.time(),
            "exit": exitstatus,
            "collect_errors": self.collect_errors,
            "interrupted": bool(current.shouldstop or current.shouldfail),
            "environment": session.read_environment(self.state.root),
            "pytest_config": session.read_config(self.config),
            "narrowed": session.narrowing(self.config),
            "elsewhere": session.installed_elsewhere(self.state.root),
            "paths": [path for path in paths if path == self.state.root or path.startswith(inside)],
        }
        for name, reports in list(self.reports.items()):
            outcome, reason = judge(reports)
            self.state.journal.write(
                "test",
                {
                    "id": name,
                    "path": name.partition("::")[0],
                    "outcome": outcome,
                    "reason": reason,
                    "duration": round(sum(report.duration for report in reports), 6),
                    "opaque": [],
                    "isolation": "shared",
                    "fixtures": sorted(self.fixtures.get(name, ())),
                },
            )
        shutil.rmtree(self.caches, ignore_errors=True)
        self.state.finish("session", extra)


def judge(reports: list[pytest.TestReport]) -> tuple[str, str]:
    """Give the outcome of a test from the reports of its phases, and the reason of a skip."""
    if not reports:
        return "not-run", ""
    if any(str(report.outcome) == "rerun" for report in reports):
        return "failed", "it was run again"
    for report in reports:
        if report.failed:
            return ("failed" if report.when == "call" else "error"), ""
    for report in reports:
        if report.skipped:
            reason = session.describe(report.longrepr)
            return ("xfailed", getattr(report, "wasxfail", "")) if hasattr(report, "wasxfail") else ("skipped", reason)
    return "passed", ""


def _is_wide(definition: Any) -> bool:
    return getattr(definition, "scope", "function") != "function"


def _fixture_label(definition: Any) -> str:
    return f"fixture:{definition.baseid}::{definition.argname}"
