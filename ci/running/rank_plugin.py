"""The pytest side of a rank: it collects, and runs the tests it is told by id. It decides nothing."""

from __future__ import annotations

import copy
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import CallInfo

from ci.errors import ReportError
from ci.running import group
from ci.running.channel import Channel, Message
from ci.running.events import EventLog, Kind
from ci.running.spec import RankSpec

MOST_OUTPUT = 100_000
VOICELESS = {
    "lf": False, "failedfirst": False, "newfirst": False, "stepwise": False, "stepwise_skip": False, "maxfail": 0,
    "xmlpath": None, "usepdb": False, "trace": False, "durations": None, "reruns": 0, "numprocesses": None,
    "dist": "no", "pastebin": None, "lockgate_audit": False,
}  # fmt: skip
"""Options that make a session decide for itself or write a report of its own."""
RERUNNERS = ("rerunfailures", "pytest_rerunfailures", "flaky.pytest", "flaky")


class RankPlugin:
    """Runs tests on command; keeps wider fixtures alive until the next test tells that they are not needed."""

    def __init__(self, spec: RankSpec, channel: Channel) -> None:
        """Speak for one rank."""
        self.spec = spec
        self.channel = channel
        self.files = frozenset(spec.files)
        self.items: dict[str, pytest.Item] = {}
        self.reports: list[pytest.TestReport] = []
        self.errors: list[str] = []
        self.last: pytest.Item | None = None
        self.log = EventLog(Path(spec.log).parent / f"events-{spec.set}-r{spec.rank}.jsonl", clock=time.time)

    # Before the tests --------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Take away every option by which a session decides skips, reruns, order or end by itself."""
        for name, value in VOICELESS.items():
            if hasattr(config.option, name):
                setattr(config.option, name, value)
        for name in RERUNNERS:
            if config.pluginmanager.has_plugin(name):
                config.pluginmanager.unregister(name=name)
        # What plugins take as the sign of a worker: no cache, no report files from here.
        config.workerinput = {  # type: ignore[attr-defined]
            "workerid": f"gw{self.spec.rank}", "workercount": self.spec.world, "testrunuid": self.spec.set,
            "mainargv": sys.argv,
        }  # fmt: skip

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Silence the terminal reporter: what the log holds is what tests print."""
        writer = session.config.get_terminal_writer()
        writer._file = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123, SLF001

    @pytest.hookimpl(tryfirst=True)
    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leave out the files of which no test will run: every rank would import them for nothing."""
        if not self.files or collection_path.name == "__init__.py" or str(collection_path) in self.files:
            return None
        return True if collection_path.is_file() else None

    @pytest.hookimpl
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep why a file cannot be collected: its tests will be missing."""
        if report.failed:
            self.errors.append(f"{report.nodeid}: {report.longreprtext}")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Send the ids of what was collected."""
        self.items = {item.nodeid: item for item in session.items}
        self.channel.send({"say": "collected", "ids": list(self.items), "errors": self.errors})

    # The tests ---------------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Do what the controller says until it says end, or is gone."""
        while (message := self.channel.receive()) is not None:
            if message["do"] == "begin":
                self.channel.send({"say": "begun", "error": group.begin(self.spec)})
            elif message["do"] == "run":
                self.channel.send(self.run(session, message))
            elif message["do"] == "end":
                late = self.tear_down(session, None)
                self.channel.send({"say": "ended", "late": late, "error": group.end()})
                break
        else:
            os._exit(0)  # the controller is gone: nobody waits for teardowns, and they might hang
        # Without a reporter no plugin writes its summary: nobody reads it here, and some import much for it.
        session.config.pluginmanager.unregister(name="terminalreporter")
        return True

    def run(self, session: pytest.Session, message: Message) -> Message:
        """Run one test and give the answer."""
        item = self.items[message["test"]]
        os.environ["MASTER_PORT"] = os.environ["MASTER_PORT"] if self.spec.backend else str(message["port"])
        late = self.tear_down(session, item)
        begin = mark_output()
        self.write(Kind.START, test=item.nodeid)
        self.reports = []
        started = time.time()
        trouble = ""
        try:
            # A copy as the next item: a sibling, so that exactly this test is torn down now.
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=copy.copy(item))
        except (pytest.exit.Exception, KeyboardInterrupt) as error:
            trouble = f"asked to end the whole session: {type(error).__name__}: {error}"
        self.last = item
        sys.stdout.flush()
        sys.stderr.flush()
        serialize = item.config.hook.pytest_report_to_serializable
        reports = [serialize(config=item.config, report=report) for report in self.reports]
        sequence = group.read_sequence()
        self.write(
            Kind.RANK, test=item.nodeid, duration=time.time() - started, sequence=sequence,
            phases=[report.outcome for report in self.reports],
        )  # fmt: skip
        return {
            "say": "answer", "test": item.nodeid, "attempt": message["attempt"], "reports": reports, "late": late,
            "trouble": trouble, "sequence": sequence, "health": group.read_health(),
            "output": read_output(begin, Path(self.spec.log)),
        }  # fmt: skip

    def write(self, kind: Kind, **values: Any) -> None:
        """Log what this rank does; the controller's log is the one that counts, so a failure is only told."""
        try:
            self.log.write(kind, rank=self.spec.rank, device=self.spec.device, **values)
        except ReportError as error:
            sys.stderr.write(f"{error.message}\n")

    def tear_down(self, session: pytest.Session, following: pytest.Item | None) -> list[Message]:
        """Tear down the fixtures that the next test does not need; gives the errors, as reports of the last test."""
        if self.last is None:
            return []
        last = self.last
        state = session._setupstate  # noqa: SLF001 - the one place where pytest keeps what is set up
        call = CallInfo.from_call(lambda: state.teardown_exact(following), when="teardown")
        if call.excinfo is None:
            return []
        report = last.ihook.pytest_runtest_makereport(item=last, call=call)
        data: Message = last.config.hook.pytest_report_to_serializable(config=last.config, report=report)
        return [data]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a report for the answer."""
        self.reports.append(report)


def mark_output() -> int:
    """Give the place in the log where the next output goes."""
    sys.stdout.flush()
    sys.stderr.flush()
    return os.fstat(1).st_size


def read_output(begin: int, log: Path) -> str:
    """Read what was printed since a place in the log; the middle of very much is left out."""
    with log.open("rb") as stream:
        stream.seek(begin)
        text = stream.read().decode("utf-8", errors="replace")
    if len(text) <= MOST_OUTPUT:
        return text
    return f"{text[: MOST_OUTPUT // 2]}\n... left out ...\n{text[-MOST_OUTPUT // 2 :]}"
