"""The pytest side of a run: selects what the job says and logs what happens.

Loaded by the supervisor with `-p ci.running.session`; the controller of process
sets (`ci.running.controller`) joins it when the stage has ranks or devices.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import pytest

from ci import pytest_plugin
from ci.errors import ReportError
from ci.impact.plan_file import read_plan
from ci.report.model import Outcome, TestResult
from ci.running.crew import read_demand
from ci.running.durations import read_durations
from ci.running.events import MAIN, Event, EventLog, Kind, to_json
from ci.running.inventory import find_required, find_unseen
from ci.running.job import Job, read_job
from ci.running.measure import save_on_a_timer
from ci.running.outcome import Phase, decide_outcome, find_skip_class, is_declared
from ci.running.shard import Shard, fingerprint_split, select_shard

MOST_OUTPUT = 200_000
"""Characters of output kept of one test; the middle is left out beyond."""


def pytest_configure(config: pytest.Config) -> None:
    """Join the run that the environment names."""
    job = read_job()
    folder = Path(job.folder)
    log = ExitingLog(folder / f"events-{MAIN}.jsonl", clock=time.time)
    save_on_a_timer()
    plugin = SessionPlugin(config, job=job, log=log)
    config.pluginmanager.register(plugin, "lockgate-session")
    config.pluginmanager.register(make_controller(plugin), "lockgate-controller")
    if not config.pluginmanager.is_registered(pytest_plugin):  # run from a source tree that is not installed
        config.pluginmanager.register(pytest_plugin, "lockgate-guards")


class ExitingLog(EventLog):
    """A log that ends the session in order when it cannot be written: a run without a record has no verdict."""

    def write(self, *arguments: Any, **keywords: Any) -> Event:
        """Append one event; raises pytest's exit with our code for a report that cannot be written."""
        try:
            return super().write(*arguments, **keywords)
        except ReportError as error:
            pytest.exit(str(error), returncode=error.exit_code)


def make_controller(plugin: SessionPlugin) -> object:
    """Make the controller of process sets; a stage that has ranks or devices warms their server at once."""
    from ci.running.controller import Controller

    return Controller(plugin)


def read_phase(report: pytest.TestReport) -> Phase:
    """Take from one of pytest's reports what the outcome depends on."""
    xfail = hasattr(report, "wasxfail")
    text = ""
    reason = ""
    if report.skipped:
        longrepr = report.longrepr
        reason = str(longrepr[2] if isinstance(longrepr, tuple) else longrepr).removeprefix("Skipped: ")
        reason = str(getattr(report, "wasxfail", "")) if xfail else reason
    elif report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        whole = report.longreprtext
        lines = (crash.message if crash is not None else whole).strip().splitlines()
        reason = (lines[0] if crash is not None else lines[-1]) if lines else "failed"
        text = "\n".join([whole, *(f"--- {name} ---\n{content}" for name, content in report.sections)])
    return Phase(
        when=report.when, outcome=report.outcome, duration=report.duration, xfail=xfail, reason=reason, text=text
    )


def shorten(text: str, most: int = MOST_OUTPUT) -> str:
    """Keep the first and the last part of a very long text, and say what was left out."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"


class SessionPlugin:
    """Selection and event log of one pytest session."""

    def __init__(self, config: pytest.Config, *, job: Job, log: EventLog) -> None:
        """Join a run; the stacks of this process go to a file on SIGUSR1."""
        self.config = config
        self.job = job
        self.log = log
        self.phases: dict[str, list[Phase]] = {}
        self.started: dict[str, float] = {}
        self.attempts: dict[str, int] = {}
        self.about: dict[str, dict[str, Any]] = {}
        self.answers: dict[str, TestResult] = {}
        self.marks: dict[str, int] = {}
        self.shown: set[str] = set()
        self.hidden: list[tuple[str, str]] = []
        self.deselected = 0
        self._stacks: IO[str] = (Path(job.folder) / "stacks-main.txt").open("w", encoding="utf-8")
        faulthandler.register(signal.SIGUSR1, file=self._stacks, all_threads=True, chain=False)

    # Collection ------------------------------------------------------------------------------

    @pytest.hookimpl
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Record files that cannot be collected, and those that skip themselves."""
        if report.failed:
            lines = report.longreprtext.strip().splitlines()
            self.finish(
                TestResult(
                    id=report.nodeid or "collection", outcome=Outcome.ERROR, output=shorten(report.longreprtext),
                    reason=f"cannot be collected: {lines[-1].removeprefix('E').strip() if lines else 'no message'}",
                )
            )  # fmt: skip
        elif report.skipped:
            longrepr = report.longrepr
            reason = str(longrepr[2] if isinstance(longrepr, tuple) else longrepr).removeprefix("Skipped: ")
            self.hidden.append((report.nodeid, reason))

    @pytest.hookimpl(tryfirst=True, wrapper=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Iterator[None]:
        """Count the marks of everything that was collected, before anything is deselected."""
        for item in items:
            self.shown.add(item.nodeid.split("::", 1)[0])
            for name in {mark.name for mark in item.iter_markers()}:
                self.marks[name] = self.marks.get(name, 0) + 1
        return (yield)

    @pytest.hookimpl
    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Count what the person or the stage left out."""
        self.deselected += len(items)

    @pytest.hookimpl
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Log the tests that will run, and the files that could hold more."""
        # With --collect-only the session ends here; what it lists are the tests of the stage.
        ids = [item.nodeid for item in session.items]
        unseen = self._find_unseen()
        for path, reason in self.hidden:
            if path in unseen and not self.job.session:
                self.finish(self._skip(path, reason))
        registered = {line.split("(")[0].split(":")[0].strip() for line in self.config.getini("markers")}
        self.log.write(
            Kind.COLLECTED, tests=ids, deselected=self.deselected, unseen=unseen, session=self.job.session,
            unregistered=sorted(find_required(self.job.stage.select) - registered),
        )  # fmt: skip

    def _find_unseen(self) -> list[str]:
        patterns = self.config.getini("python_files")
        roots = [
            self.config.rootpath / path for path in self.job.stage.paths or self.config.getini("testpaths") or ["."]
        ]
        sources: dict[str, str] = {}
        for root in roots:
            files = [root] if root.is_file() else [path for pattern in patterns for path in root.rglob(pattern)]
            for path in files:
                name = path.relative_to(self.config.rootpath).as_posix()
                if not any(part.startswith(".") for part in name.split("/")[:-1]):
                    sources[name] = path.read_text(encoding="utf-8", errors="replace")
        return find_unseen(self.job.stage.select, sources, shown=self.shown)

    # Tests -----------------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Log that a test starts."""
        self.phases[nodeid] = []
        self.started[nodeid] = time.time()
        self.attempts[nodeid] = 1
        self.log.write(Kind.START, test=nodeid, **self.about.pop(nodeid, {"width": 0, "attempt": 1}))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a phase; a rerun (pytest-rerunfailures) starts the test over."""
        phase = read_phase(report)
        if str(report.outcome) == "rerun":
            self.phases[report.nodeid] = []
            self.attempts[report.nodeid] = self.attempts.get(report.nodeid, 1) + 1
            self.log.write(
                Kind.RETRY, test=report.nodeid, outcome=Outcome.FAILED, attempt=self.attempts[report.nodeid] - 1,
                reason=phase.reason,
            )  # fmt: skip
        else:
            self.phases.setdefault(report.nodeid, []).append(phase)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Log how the test ended: as the controller of sets says, or as its phases add up."""
        phases = self.phases.pop(nodeid, [])
        if nodeid in self.answers:
            self.finish(self.answers.pop(nodeid))
            return
        outcome, reason = decide_outcome(phases)
        skip_class = find_skip_class(reason) if outcome is Outcome.SKIPPED else ""
        self.finish(
            TestResult(
                id=nodeid, outcome=outcome, duration=sum(phase.duration for phase in phases), reason=reason,
                started=self.started.get(nodeid, 0.0), skip_class=skip_class,
                declared=bool(skip_class) and is_declared(skip_class, reason, self.job.stage.allow_skips),
                output=shorten("\n".join(phase.text for phase in phases if phase.text)),
                attempts=self.attempts.get(nodeid, 1),
            )
        )  # fmt: skip

    def finish(self, result: TestResult) -> None:
        """Log a result."""
        self.log.write(
            Kind.FINISH, test=result.id, outcome=result.outcome, duration=result.duration, result=to_json(result)
        )

    def _skip(self, path: str, reason: str) -> TestResult:
        skip_class = find_skip_class(reason)
        return TestResult(
            id=path, outcome=Outcome.SKIPPED, reason=reason, skip_class=skip_class,
            declared=is_declared(skip_class, reason, self.job.stage.allow_skips),
        )  # fmt: skip

    # End -------------------------------------------------------------------------------------

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Close the log."""
        faulthandler.unregister(signal.SIGUSR1)
        self._stacks.close()
        self.log.close()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Log that the session ended by itself: a process that ends without this line has crashed."""
        self.log.write(Kind.END, worker=MAIN, code=int(exitstatus), session=self.job.session, pid=os.getpid())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep what the plan selected, of the shard, and not answered yet."""
    plugin = _plugin_of(config)
    job = plugin.job
    keep = list(items)
    if job.plan:
        plan = read_plan(Path(job.plan))
        keep = [item for item in keep if plan.selects(item.nodeid)]
    if job.shard:
        chosen = set(choose_shard(plugin, keep))
        keep = [item for item in keep if item.nodeid in chosen]
    done = set(job.done)
    keep = [item for item in keep if item.nodeid not in done]
    if len(keep) != len(items):
        kept = {id(item) for item in keep}
        config.hook.pytest_deselected(items=[item for item in items if id(item) not in kept])
        items[:] = keep


def choose_shard(plugin: SessionPlugin, items: Sequence[pytest.Item]) -> tuple[str, ...]:
    """Give the node ids of this run's shard, split by the recorded durations; the log says from what it was split."""
    job = plugin.job
    shard = Shard.parse(job.shard)
    durations, _ = read_durations(Path(job.durations))
    tests = [item.nodeid for item in items]
    estimates = durations.estimates(tests, kind=job.kind)
    widths = {item.nodeid: read_demand(item, job.stage).width or 1 for item in items}
    plugin.log.write(Kind.SESSION, environment={"split": fingerprint_split(tests, estimates, shard.count)})
    return select_shard(tests, widths=widths, estimates=estimates, shard=shard)


def _plugin_of(config: pytest.Config) -> SessionPlugin:
    plugin = config.pluginmanager.get_plugin("lockgate-session")
    assert isinstance(plugin, SessionPlugin)
    return plugin
