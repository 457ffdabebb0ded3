"""The steps of one run, in the order in which they happen; whatever ends it, the report is written."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import sysconfig
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import ci
from ci import process
from ci.context import Context
from ci.devices.requirement import require_devices
from ci.devices.verify import verify_devices, verify_simulated
from ci.errors import CiError, InfrastructureError, ProcessError, UsageError
from ci.report.build import build_run
from ci.report.model import CheckResult, DeviceRecord, RunReport
from ci.report.write import build_report, write_report
from ci.running.durations import name_kind, record_report
from ci.running.events import EventLog, Kind, read_events
from ci.running.job import Job
from ci.running.judge import Expectation, judge
from ci.running.options import PytestArguments
from ci.running.selection import read_selection
from ci.running.summary import outputs_of, render_markdown, render_summary
from ci.running.supervisor import Supervisor, Terminated, watched
from ci.stages.model import Check, Settings, Stage

INTERRUPTED = 130
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
            reasons, planned = self._do_steps()
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
        events, damaged = read_events(self.folder)
        report = build_run(events, damaged=damaged)
        reasons = judge(report, read_selection(events), self._expect(planned), ended=reasons)
        code = InfrastructureError.exit_code if report.infrastructure else int(bool(reasons))
        self._close(code, reasons)
        return code

    def _do_steps(self) -> tuple[list[str], int | None]:
        only = self._read_plan()
        nothing = only is not None and not only
        devices: tuple[DeviceRecord, ...] = () if nothing else self._find_devices()
        self._open(devices)
        with watched(self.run_id, folder=self.folder, cwd=self.context.root, environ=self._environ()) as environ:
            self._run_checks(environ)
            reasons = [] if nothing else self._run_tests(environ, devices, only)
        return reasons, None if only is None else len(only)

    # Steps -----------------------------------------------------------------------------------

    def _read_plan(self) -> tuple[str, ...] | None:
        """Give the node ids that the plan selects; None runs everything."""
        if not self.options.plan:
            return None
        raise UsageError("--plan is not there yet")

    def _find_devices(self) -> tuple[DeviceRecord, ...]:
        """Verify the machine; raises `InfrastructureError` naming everything that is missing."""
        if not self.stage.devices and not self.options.simulate:
            return ()
        requirement = require_devices(self.stage)
        root = self.context.root
        if self.options.simulate:
            found = verify_simulated(requirement, count=self.options.simulate, root=root)
        else:
            self.context.out.step("verify devices")
            found = verify_devices(requirement, environ=self.context.environ, root=root)
        for problem in found.problems:
            self.log.write(Kind.PROBLEM, problem=asdict(problem))
        for note in found.notes:
            self._note(note)
        if not found.is_fit:
            self._open(())
            raise found.error()
        usable = {device.uuid for device in found.devices}
        return tuple(record for record in found.inventory.records() if record.uuid in usable)

    def _open(self, devices: Sequence[DeviceRecord]) -> None:
        """Write the first line of the log: what runs, on what."""
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

    def _run_tests(
        self, environ: Mapping[str, str], devices: tuple[DeviceRecord, ...], only: tuple[str, ...] | None
    ) -> list[str]:
        """Run pytest until every test has an answer; gives why the run is red beside the tests."""
        job = Job(
            run_id=self.run_id, folder=str(self.folder), stage=self.stage, devices=devices,
            simulated=bool(self.options.simulate), process_group=self.options.process_group,
            preload=tuple(filter(None, self.options.preload.split(","))), reruns=self.options.reruns,
            only=only, shard=self.options.shard,
            durations=str(self._durations),
            kind=name_kind(RunReport(stage=self.stage.name, simulated=bool(self.options.simulate), devices=devices)),
        )  # fmt: skip
        words = ["-p", "ci.running.session", f"--rootdir={self.context.root}", *self.arguments.words]
        if self.options.record:
            words = ["-p", "ci.manifest.plugin", *words]
        self.context.out.step(f"pytest, stage {self.stage.name}")
        return Supervisor(
            job=job, arguments=tuple(words), root=self.context.root, environ=environ, log=self.log,
            deadline=time.time() + self.stage.timeout, stops_early=self.arguments.stops_early,
            say=self.context.out.line,
        ).run()  # fmt: skip

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
        for line in lines:
            out.line(line)
        out.line(f"  report: {self._short(self.folder)}")
        out.summary(render_markdown(lines))
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


def describe_environment() -> dict[str, str]:
    """Name the interpreter, the system and the packages that results depend on; imports none of them."""
    found = {"python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}"}
    for name in NAMED:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
