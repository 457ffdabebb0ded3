"""The live view of a run: it follows the event logs, so it can neither slow a run down nor break it.

On a terminal: one lane per device, progress and time left, redrawn in place, with
other lines printed above it. Elsewhere: a plain line per test that did not pass
and one of progress every few seconds.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ci.report.model import Outcome
from ci.running.events import Event, Kind, Tail
from ci.running.progress import Progress, Running, format_counts, format_seconds

REFRESH = 0.2
"""Seconds between two looks at the logs."""

PLAIN_EVERY = 10.0
"""Seconds between two lines of progress where nothing can be redrawn."""

QUIET = (Outcome.PASSED, Outcome.XFAILED)
MOST_LANES = 16


def render_view(progress: Progress, *, now: float, started: float) -> RenderableType:
    """Lay out the lanes and the line of progress."""
    lanes = Table.grid(padding=(0, 1), expand=True)
    lanes.add_column(no_wrap=True, style="bold")
    lanes.add_column(no_wrap=True, justify="right", min_width=7)
    lanes.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    rows = progress.lanes()
    for name, running in rows[:MOST_LANES]:
        lanes.add_row(name, *_lane(running, now))
    if len(rows) > MOST_LANES:
        lanes.add_row("...", "", f"and {len(rows) - MOST_LANES} more")
    done = len(progress.outcomes)
    bar = Table.grid(padding=(0, 1))
    bar.add_row(
        Text(f"{done}/{progress.total}", style="bold"),
        ProgressBar(total=max(progress.total, 1), completed=done, width=24),
        describe_time(progress, now=now, started=started),
    )
    return Group(lanes, bar, describe_counts(progress))


def _lane(running: Running | None, now: float) -> tuple[Text, Text]:
    if running is None:
        return Text(""), Text("idle", style="dim")
    again = f" (attempt {running.attempt})" if running.attempt > 1 else ""
    return Text(format_seconds(max(now - running.since, 0.0)), style="cyan"), Text(running.test + again)


def describe_counts(progress: Progress) -> Text:
    """Say the counts, red as soon as one of them is bad."""
    counts = progress.counts()
    bad = any(outcome.is_red or outcome is Outcome.INFRASTRUCTURE for outcome in counts)
    return Text(format_counts(counts), style="red" if bad else "green")


def describe_time(progress: Progress, *, now: float, started: float) -> Text:
    """Say the time since the start and about how much is left, and that a run is simulated."""
    text = Text(format_seconds(max(now - started, 0.0)))
    left = progress.time_left(now)
    if left is not None and (progress.waiting or progress.running):
        text.append(f", about {format_seconds(left)} left", style="dim")
    if progress.simulated:
        text.append("  [simulated]", style="yellow")
    return text


def describe_event(event: Event) -> str:
    """Say an event that a person must not miss in one line; "" for the others."""
    if event.rank is not None:
        return ""
    data = event.data
    if event.event is Kind.FINISH and event.outcome is not None and event.outcome not in QUIET:
        result = data.get("result")
        reason = str(result.get("reason", "")) if isinstance(result, Mapping) else ""
        first = reason.splitlines()[0] if reason else ""
        return f"{event.outcome.value.upper()} {event.test}" + (f": {first}" if first else "")
    if event.event is Kind.RETRY:
        return f"RETRY {event.test} (attempt {data.get('attempt', '?')}): {data.get('reason', '')}"
    if event.event is Kind.RESTART:
        return f"RESTART of set {data.get('set', '?')}: {data.get('reason', '')}"
    if event.event is Kind.NOTE and data.get("now"):
        return str(data.get("message", ""))
    if event.event is Kind.LIMIT:
        return f"LIMIT {data.get('limit', '?')} of {data.get('seconds', '?')} s struck {event.test}".rstrip()
    return ""


@dataclass
class View:
    """Follows the logs of a run from a thread; `line` prints beside it."""

    console: Console
    progress: Progress
    tail: Tail
    clock: Callable[[], float]
    started: float
    live: Live | None = None
    tell: bool = True
    _done: threading.Event = field(default_factory=threading.Event)
    _last: float = 0.0
    _broken: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def line(self, text: str) -> None:
        """Print a line above the lanes, with no markup read into it."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def update(self) -> None:
        """Take in what is new in the logs and show it; called by the thread, and once more at the end."""
        with self._lock:
            for event in self.tail.read_new():
                self.progress.apply(event)
                words = describe_event(event) if self.tell or event.data.get("now") else ""
                if words:
                    self.line(words)
            now = self.clock()
            if self.live is not None:
                self.live.update(render_view(self.progress, now=now, started=self.started), refresh=True)
            elif self.progress.total and now - self._last >= PLAIN_EVERY:
                self._last = now
                done, total = len(self.progress.outcomes), self.progress.total
                when = describe_time(self.progress, now=now, started=self.started)
                self.line(f"{done}/{total}  {describe_counts(self.progress)}  {when}")

    def follow(self) -> None:
        """Update until `finish`."""
        while not self._done.wait(REFRESH):
            self.try_update()

    def try_update(self) -> None:
        """Update; a view that fails says so and shows nothing more, and the run goes on."""
        if self._broken:
            return
        try:
            self.update()
        except Exception as error:  # noqa: BLE001 - a thread's border: the run must not lose its view unseen
            self._broken = True
            self.line(f"the live view has ended: {type(error).__name__}: {error}")

    def finish(self) -> None:
        """End the thread's loop."""
        self._done.set()


@contextlib.contextmanager
def open_view(
    console: Console,
    folder: Path,
    *,
    estimates: Mapping[str, float],
    fallback: float = 1.0,
    tell: bool = True,
    clock: Callable[[], float] = time.time,
) -> Iterator[View]:
    """Show the run whose event logs are in `folder` until the block ends.

    `tell` prints a line for every test that did not pass, every restart and every
    limit; leave it out where pytest's own lines are shown. A note with `now` is
    always told: it says why nothing moves. What happened before
    the view was opened is counted and not told.
    """
    started = clock()
    view = View(
        console=console,
        progress=Progress(estimates=estimates, fallback=fallback),
        tail=Tail(folder),
        clock=clock,
        started=started,
        tell=tell,
        _last=started,
    )
    with contextlib.ExitStack() as stack:
        if console.is_terminal:
            view.live = stack.enter_context(
                Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False)
            )
        thread = threading.Thread(target=view.follow, name="lockgate-view", daemon=True)
        thread.start()
        try:
            yield view
        finally:
            view.finish()
            thread.join(timeout=5)
            view.try_update()
