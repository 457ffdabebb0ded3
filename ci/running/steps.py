"""The steps of one run, in the order in which they happen; whatever ends it, the report is written."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import sysconfig
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import ci
from ci import process
from ci.context import Context
from ci.devices.model import record_device
from ci.devices.verify import Verification
from ci.errors import CiError, GitError, InfrastructureError, ProcessError
from ci.impact.plan import Decision, Plan
from ci.impact.plan_file import describe_head, read_plan
from ci.report.build import build_run
from ci.report.markdown import render_markdown
from ci.report.model import CheckResult, DeviceRecord, RunReport
from ci.report.write import build_report, write_report
from ci.running.durations import name_kind, read_durations, record_report
from ci.running.events import EventLog, Kind, read_events
from ci.running.job import Job
from ci.running.judge import Ended, Expectation, judge
from ci.running.machine import find_machine, guard_machine
from ci.running.measure import combine_coverage, coverage_environment
from ci.running.options import PytestArguments
from ci.running.selection import read_selection
from ci.running.summary import outputs_of, render_summary
from ci.running.supervisor import Supervisor, Terminated, watched
from ci.running.view import open_view
from ci.stages.model import Check, Settings, Stage

INTERRUPTED = 130
PIPE_CLOSED = 141
"""What a shell reports for a program that wrote to a closed pipe (128 + SIGPIPE)."""
READER_GONE = (BrokenPipeError, SystemExit)
"""A write to a closed pipe; rich's console answers one with SystemExit."""
YES = ("1", "true", "yes")
NAMED = ("pytest", "torch", "numpy", "coverage")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of one stage."""

    context: Context
    settings: Settings
    stage: Stage
    options: argparse.Namespace
    arguments: PytestArguments
    folder: Path
    log: EventLog
    run_id: str

    def run(self) -> int:
        """Do the steps; gives the exit code, or raises what made a verdict impossible."""
        try:
            ended, planned = self._do_steps()
        except CiError as error:
            self._close(error.exit_code, [error.message.splitlines()[0].rstrip(":")])
            raise
        except KeyboardInterrupt:
            self._close(INTERRUPTED, ["interrupted"])
            raise
        except Terminated as end:
            code = 128 + end.number
            self._close(code, [f"ended by {end}"])
            return code
        except READER_GONE:
            silence_output()
            self._close(PIPE_CLOSED, ["the reader of the output went away"])
            return PIPE_CLOSED
        events, damaged = read_events(self.folder)
        report = build_run(events, damaged=damaged)
        reasons = judge(report, read_selection(events), self._expect(planned), ended=ended)
        code = InfrastructureError.exit_code if report.infrastructure else int(bool(reasons))
        self._close(code, reasons)
        return code

    def _do_steps(self) -> tuple[Ended, int | None]:
        plan = self._read_plan()
        nothing = plan is not None and plan.decision is Decision.NONE
        machine = None if nothing else self._find_machine()
        self._open(machine)
        with watched(self.run_id, folder=self.folder, cwd=self.context.root, environ=self._environ()) as environ:
            self._run_checks(environ)
            ended = Ended() if nothing else self._run_tests(environ, machine, planned=plan is not None)
        return ended, None if plan is None else plan.selected

    # Steps -----------------------------------------------------------------------------------

    def _read_plan(self) -> Plan | None:
        """Give the plan if it leaves tests out; one that runs everything, or cannot be used, says why."""
        if not self.options.plan:
            return None
        try:
            head = describe_head(self.context.root, self.context.environ)
        except GitError as error:
            self._note(f"plan: everything runs, since the commit is unknown: {error.message}")
            return None
        plan = read_plan(self.context.path(self.options.plan), head=head, stage=self.stage.name)
        for note in (f"plan: {plan.explanation}", *plan.warnings):
            self._note(note)
        return None if plan.decision is Decision.ALL else plan

    def _find_machine(self) -> Verification | None:
        """Verify the machine; raises `InfrastructureError` naming everything that is missing."""
        if not self.stage.devices and not self.options.simulate:
            return None
        if not self.options.simulate:
            self.context.out.step("verify devices")
        environ, root = self.context.environ, self.context.root
        found = find_machine(self.stage, simulate=self.options.simulate, environ=environ, root=root)
        for problem in found.problems:
            self.log.write(Kind.PROBLEM, problem=asdict(problem))
        for note in found.notes:
            self._note(note)
        if not found.is_fit:
            self._open(None)
            raise found.error()
        return found

    def _open(self, machine: Verification | None) -> None:
        """Write the first line of the log: what runs, on what."""
        devices = list_devices(machine)
        self.log.write(
            Kind.SESSION, stage=self.stage.name, commit=self._read_commit(), simulated=bool(self.options.simulate),
            devices=[asdict(device) for device in devices], shard=self.options.shard, worker="supervisor",
            pid=os.getpid(), environment=describe_environment(),
        )  # fmt: skip

    def _run_checks(self, environ: Mapping[str, str]) -> None:
        """Run every check of the stage, also after one has failed."""
        if self.options.no_checks:
            return
        for check in self.settings.checks:
            if self.stage.name in check.stages:
                result = self._run_check(check, environ)
                self.log.write(Kind.CHECK, result=asdict(result))
                if not result.passed:
                    self.context.out.warn(f"check {check.name} failed:\n{result.output.rstrip()}")

    def _run_check(self, check: Check, environ: Mapping[str, str]) -> CheckResult:
        begin = time.monotonic()
        try:
            done = process.run(
                check.command, cwd=self.context.root, environ=environ, limit=check.timeout, capture=True, check=False,
                announce=self.context.out.step,
            )  # fmt: skip
            passed, output = done.returncode == 0, f"{done.stdout}{done.stderr}"
            if not passed:
                output += f"\n{check.command[0]} ended with {process.describe_exit(done.returncode)}"
        except ProcessError as error:
            passed, output = False, str(error)
        return CheckResult(
            name=check.name, command=check.command, passed=passed, duration=time.monotonic() - begin, output=output
        )

    def _run_tests(self, environ: Mapping[str, str], machine: Verification | None, *, planned: bool) -> Ended:
        """Run pytest until every test has an answer; gives why the run is red beside the tests."""
        options, devices = self.options, list_devices(machine)
        kind = name_kind(RunReport(stage=self.stage.name, simulated=bool(options.simulate), devices=devices))
        job = Job(
            run_id=self.run_id, folder=str(self.folder), stage=self.stage, devices=devices,
            simulated=bool(options.simulate), process_group=options.process_group,
            preload=tuple(filter(None, options.preload.split(","))), reruns=options.reruns,
            plan=str(self.context.path(options.plan)) if planned else "", shard=options.shard,
            durations=str(self._durations), kind=kind, nodes=options.nodes, listen=options.listen,
        )  # fmt: skip
        words = ["-p", "ci.running.session", f"--rootdir={self.context.root}", *self.arguments.words]
        if options.record:
            words = ["-p", "ci.manifest.plugin", *words]
        if importlib.util.find_spec("xdist") is not None:
            words.append("-n0")  # what a repository's own addopts may ask for cannot be had under supervision
        measured = self.folder / "coverage"
        if options.coverage:
            environ = {**environ, **coverage_environment(self.context.root, measured)}
        self.context.out.step(f"pytest, stage {self.stage.name}")
        guard = guard_machine(machine, environ=environ, log=self.log) if machine else nullcontext()
        durations, _ = read_durations(self._durations)
        console = self.context.out.stderr
        with guard, open_view(console, self.folder, estimates=durations.kinds.get(kind, {}), tell=False) as view:
            ended = Supervisor(
                job=job, arguments=tuple(words), root=self.context.root, environ=environ, log=self.log,
                deadline=time.time() + self.stage.timeout, say=view.line, stops_early=self.arguments.stops_early,
                through_view=console.is_terminal and self.context.out.stdout.is_terminal,
            ).run()  # fmt: skip
        if options.coverage and combine_coverage(measured) is None:
            self._note("no coverage was measured")
        return ended

    def _close(self, code: int, reasons: Sequence[str]) -> None:
        """Write the answer into the log, make the report from the log, and show the summary."""
        self.log.write(Kind.END, worker="supervisor", code=code, reasons=list(reasons))
        warning = record_report(self._durations, build_report(self.folder))
        if warning:
            self._note(warning)
        report = build_report(self.folder)
        write_report(self.folder, report)
        lines = render_summary(report)
        out = self.context.out
        try:
            for line in [*lines, f"  report: {self._short(self.folder)}"]:
                out.line(line)
        except READER_GONE:  # the verdict stands, whoever reads it
            silence_output()
        out.summary(render_markdown(report))
        out.set_outputs(outputs_of(report))

    # Surroundings ----------------------------------------------------------------------------

    @property
    def _durations(self) -> Path:
        return self.context.root / ".lockgate" / "durations.json"

    def _expect(self, planned: int | None) -> Expectation:
        environ = self.context.environ
        own = environ.get("LOCKGATE_RUNNER") == self.stage.name or environ.get("CI", "").lower() in YES
        return Expectation(
            stage=self.stage, narrowed=self.arguments.narrowed, planned=planned, shard=self.options.shard,
            enforce_skips=own and not self.options.simulate, collect_only=self.arguments.collects_only,
        )  # fmt: skip

    def _environ(self) -> dict[str, str]:
        """Give the environment of everything that this run starts."""
        environ = {**self.context.environ, "LOCKGATE_STAGE": self.stage.name}
        if self.options.simulate:
            environ["LOCKGATE_SIMULATED"] = str(self.options.simulate)
        if self.options.record:
            environ["LOCKGATE_RECORD_DIR"] = str(self.context.path(self.options.record))
            environ["LOCKGATE_RECORD_STAGE"] = self.stage.name
        home = Path(ci.__file__).resolve().parents[1]
        if home != Path(sysconfig.get_path("purelib")).resolve():  # run from a source tree: pytest must find us too
            rest = environ.get("PYTHONPATH", "")
            environ["PYTHONPATH"] = f"{home}{os.pathsep}{rest}" if rest else str(home)
        return environ

    def _read_commit(self) -> str:
        try:
            done = process.run(
                ["git", "rev-parse", "HEAD"], cwd=self.context.root, environ=self.context.environ, limit=10,
                capture=True, check=False,
            )  # fmt: skip
        except ProcessError as error:  # a tree without git is run all the same
            self._note(f"the commit is unknown: {error.message}")
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""

    def _note(self, text: str) -> None:
        self.log.write(Kind.NOTE, message=text)

    def _short(self, path: Path) -> str:
        return os.path.relpath(path, self.context.cwd)


def list_devices(machine: Verification | None) -> tuple[DeviceRecord, ...]:
    """Give the devices that a run may use as its report names them."""
    if machine is None:
        return ()
    return tuple(record_device(device, driver=machine.inventory.driver) for device in machine.devices)


def silence_output() -> None:
    """Send both streams nowhere: their reader has gone, and Python would complain again when it flushes at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)
    os.close(nowhere)


def describe_environment() -> dict[str, str]:
    """Name the interpreter, the system and the packages that results depend on; imports none of them."""
    found = {"python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}"}
    for name in NAMED:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
