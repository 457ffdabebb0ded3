"""Runs the pytest session of a stage in a watched process tree, until every test has an answer.

start a session -> follow its log -> a limit strikes or it ends -> a crash or a hang costs one
test, and a new session runs the rest -> nothing of the run is left
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ci import process
from ci.errors import ReportError
from ci.report.model import Outcome, TestResult
from ci.report.write import write_whole
from ci.running import watchdog
from ci.running.events import Event, EventLog, Kind, Tail, to_json
from ci.running.job import JOB_VARIABLE, Job
from ci.running.judge import Ended, describe_code
from ci.running.tree import find_descendants, find_marked, kill_all, reap, run_mark, sweep

POLL = 0.05
STACK_WAIT = 0.5
SWEEP_LIMIT = 5.0
ASK_FIRST = 1.0
"""Seconds between SIGTERM (coverage saves its data then) and SIGKILL for the whole run."""
CONTROLLER_MARGIN = 30.0
"""Seconds that a controller gets past a test's limits before it counts as hung itself."""


class Terminated(BaseException):
    """The tool was asked to end (SIGTERM, SIGHUP)."""

    def __init__(self, number: int) -> None:
        """Keep the signal's number for the exit code."""
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextmanager
def terminable() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into `Terminated`, so that the run is ended and reported."""

    def strike(number: int, _: object) -> None:
        raise Terminated(number)

    before = {number: signal.signal(number, strike) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def watched(run_id: str, *, folder: Path, cwd: Path, environ: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Hold a process tree: gives the environment for its members, and ends every one of them.

    While it is held this process adopts orphans, and a watchdog stands by that
    does the same work if this process is killed.
    """
    mark = run_mark(run_id)
    strangers = find_descendants(os.getpid())
    dog = process.start(
        [sys.executable, "-m", watchdog.__name__, mark, str(folder)],
        cwd=cwd, environ=environ, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        outlives_parent=True,
    )  # fmt: skip
    process.adopt_orphans()
    try:
        yield {**environ, mark: "1"}
    finally:
        end_all(mark, keep={dog.pid, *strangers})
        process.adopt_orphans(enable=False)
        assert dog.stdin is not None
        dog.stdin.write(watchdog.DONE.decode())
        dog.stdin.close()
        dog.wait()


def end_all(mark: str, *, keep: Collection[int]) -> None:
    """End every process of the run: ask, wait shortly, kill, until none is left.

    `keep` are the processes that are not the run's own.
    """
    end = time.monotonic() + ASK_FIRST
    asked: set[int] = set()
    while time.monotonic() < end:
        members = (find_marked(mark) | find_descendants(os.getpid())) - {os.getpid(), *keep}
        if not members:
            return
        kill_all(members - asked, signal.SIGTERM)
        asked |= members
        time.sleep(POLL)
        reap(members)
    sweep(mark, limit=SWEEP_LIMIT, keep=keep, of=os.getpid())


@dataclass(kw_only=True)
class Supervisor:
    """One run's pytest sessions: what has an answer, what runs now, what struck."""

    job: Job
    arguments: tuple[str, ...]
    root: Path
    environ: Mapping[str, str]
    log: EventLog
    deadline: float
    say: Callable[[str], None]
    stops_early: bool = False
    through_view: bool = False
    done: set[str] = field(default_factory=set)
    running: dict[str, Event] = field(default_factory=dict)
    red: bool = False
    unshown: list[str] = field(default_factory=list)
    ended: bool = False
    reasons: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """The report folder."""
        return Path(self.job.folder)

    def run(self) -> Ended:
        """Run sessions until one ends by itself; gives how they ended."""
        tail = Tail(self.folder)
        while True:
            before = len(self.done)
            code = self._run_session(tail)
            if self.ended or self.reasons:
                if code == ReportError.exit_code:
                    raise ReportError(
                        "the event log could not be written", hint="is the disk full? --report DIR moves it"
                    )
                return self._end(code)
            self._blame(code)
            self._show_unshown()
            if self.stops_early and self.red:
                return self._end()
            if len(self.done) == before:
                how = f"pytest ended with {process.describe_exit(code)} outside of any test"
                self.reasons.append(describe_code(code) if code > 1 else how)
                return self._end()
            self.job = replace(self.job, done=tuple(sorted(self.done)), session=self.job.session + 1)
            rest = "the tests that are left run in a new session"
            self.say(f"the session ended with {process.describe_exit(code)}; {rest}")
            self.log.write(Kind.RESTART, set="main", reason=f"{process.describe_exit(code)}; {rest}")

    def _end(self, code: int | None = None) -> Ended:
        return Ended(reasons=tuple(self.reasons), code=code if self.ended else None)

    def _run_session(self, tail: Tail) -> int:
        path = self.folder / "job.json"
        write_whole(path, self.job.dump())
        self.ended = False
        self.unshown.clear()
        words = [*self.arguments, "--color=yes"] if self.through_view else self.arguments
        child = process.start(
            [sys.executable, "-m", "pytest", *words],
            cwd=self.root, environ={**self.environ, JOB_VARIABLE: str(path)},
            stdout=subprocess.PIPE if self.through_view else None,
        )  # fmt: skip
        reader = threading.Thread(target=self._pass_on, args=(child.stdout,), daemon=True) if child.stdout else None
        try:
            if reader is not None:
                reader.start()
            return self._follow(child, tail)
        except KeyboardInterrupt:
            child.send_signal(signal.SIGINT)  # pytest then shows what it has
            try:
                child.wait(timeout=process.KILL_GRACE)
            except subprocess.TimeoutExpired:
                process.end_group(child)
            raise
        finally:
            if reader is not None:
                reader.join(timeout=process.KILL_GRACE)

    def _pass_on(self, lines: Iterable[str]) -> None:
        """Print pytest's lines above the live view, which has the terminal."""
        for line in lines:
            self.say(line.rstrip("\n"))

    def _follow(self, child: subprocess.Popen[str], tail: Tail) -> int:
        while True:
            try:
                code: int | None = child.wait(timeout=POLL)
            except subprocess.TimeoutExpired:
                code = None
            for event in tail.read_new():
                self._take(event)
            if code is not None:
                return code
            if time.time() > self.deadline:
                self._strike("stage", self.job.stage.timeout, "")
                self.reasons.append(f"the stage ran past its limit of {self.job.stage.timeout:g} s")
                process.end_group(child)
                return child.returncode
            late = self._find_late()
            if late is not None:
                return self._end_hung(child, late)

    def _take(self, event: Event) -> None:
        if event.event is Kind.START and event.rank is None:
            self.running[event.test] = event
        elif event.event is Kind.FINISH:
            self.running.pop(event.test, None)
            self.done.add(event.test)
            if event.outcome is not None and event.outcome.is_red:
                self.red = True
                self._keep(event.test, event.outcome, event.data["result"])
        elif event.event is Kind.END and event.data.get("session") == self.job.session:
            self.ended = True

    def _find_late(self) -> Event | None:
        now = time.time()
        for event in self.running.values():
            limit = self.job.stage.test_timeout
            if event.data.get("width"):  # a set's tests are limited by the controller itself
                limit += self.job.stage.grace + CONTROLLER_MARGIN
            if now > event.t + limit:
                return event
        return None

    def _end_hung(self, child: subprocess.Popen[str], event: Event) -> int:
        limit = self.job.stage.test_timeout
        self._strike("test", limit, event.test)
        child.send_signal(signal.SIGUSR1)
        time.sleep(STACK_WAIT)
        stacks = read_tail(self.folder / "stacks-main.txt")
        process.end_group(child, grace=ASK_FIRST)
        self._finish(event, Outcome.HUNG, f"ran past the test limit of {limit:g} s", output=stacks)
        return child.returncode

    def _strike(self, limit: str, seconds: float, test: str) -> None:
        self.log.write(Kind.LIMIT, test=test, limit=limit, seconds=seconds)

    def _blame(self, code: int) -> None:
        """Give the test that ran when the session died its outcome: the death is its answer."""
        how = process.describe_exit(code) if code < 0 else f"exited with code {code} in the middle of a test"
        for event in list(self.running.values()):
            self._finish(event, Outcome.CRASHED, how, output=read_tail(self.folder / "stacks-main.txt"))

    def _finish(self, event: Event, outcome: Outcome, reason: str, *, output: str) -> None:
        duration = time.time() - event.t
        result = TestResult(
            id=event.test, outcome=outcome, duration=duration, started=event.t, reason=reason, output=output
        )
        self.log.write(Kind.FINISH, test=event.test, outcome=outcome, duration=duration, result=to_json(result))
        self.running.pop(event.test, None)
        self.done.add(event.test)
        self.red = True
        self._keep(event.test, outcome, to_json(result))

    def _keep(self, test: str, outcome: Outcome, result: Mapping[str, Any]) -> None:
        self.unshown.append(f"{outcome}: {test}: {result.get('reason', '')}\n{result.get('output', '')}".rstrip())

    def _show_unshown(self) -> None:
        """Show what pytest would have shown at the end of a session that died."""
        self.say("")
        for text in self.unshown:
            self.say(text)
        self.unshown.clear()


def read_tail(path: Path, most: int = 100_000) -> str:
    """Read the last characters of a file; a missing one is empty."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")[-most:]
    except FileNotFoundError:
        return ""
