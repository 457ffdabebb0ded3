"""RunReport -> a timeline: one HTML file that needs no network. Pure.

One lane per device (lanes are added for tests on the CPU that overlap), a bar per
test on each device that it held, marks for restarts, retries and limits. Bars are
buttons: arrows move, `n` and `p` find what is bad; a table holds the same for
those who do not look at bars.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from html import escape

from ci.report.junit import split_id
from ci.report.model import Mark, Outcome, RunReport, TestResult
from ci.report.page import SCRIPT, STYLE
from ci.report.terminal import describe_verdict

OUTPUT_LIMIT = 20_000
"""Characters of one test's output on the page; the report itself holds all of it."""

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
"""What the page may do: nothing but show itself, so that no test's output can fetch or send anything."""

KEYS = (
    "keys: <kbd>Tab</kbd> to the lanes, arrows <kbd>Home</kbd> <kbd>End</kbd> to move, <kbd>n</kbd> <kbd>p</kbd>"
    " to the next or last bad test, <kbd>+</kbd> <kbd>-</kbd> <kbd>0</kbd> to zoom"
)

TICKS = 10
STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200)


@dataclass(frozen=True, kw_only=True)
class Lane:
    """One row of the page: a device, or one of several CPU workers; `tests` are numbers of results."""

    name: str
    detail: str
    device: str
    tests: tuple[int, ...]
    busy: float


def layout_lanes(report: RunReport) -> tuple[Lane, ...]:
    """Put every test that was started on the lanes of its devices; overlapping CPU tests get lanes of their own."""
    started = [number for number, result in enumerate(report.results) if was_started(result)]
    lanes = []
    known = {device.uuid for device in report.devices}
    for device in report.devices:
        own = [number for number in started if device.uuid in report.results[number].devices]
        kind = "simulated" if device.simulated else f"GPU {device.index}"
        name = f"simulated {device.index}" if device.simulated else kind
        detail = device.uuid if device.simulated else f"{device.name} {device.uuid}"
        lanes.append(_lane(report, own, name=name, detail=detail, device=device.uuid))
    loose = [number for number in started if not known & set(report.results[number].devices)]
    rows = pack_rows([report.results[number] for number in loose])
    for row, places in enumerate(rows):
        name = "cpu" if len(rows) == 1 else f"cpu {row}"
        lanes.append(_lane(report, [loose[place] for place in places], name=name, detail="", device=""))
    return tuple(lanes)


def was_started(result: TestResult) -> bool:
    """Whether a test was ever out on the machine; one that was refused devices was not."""
    return result.started > 0 and (result.outcome is not Outcome.INFRASTRUCTURE or result.duration > 0)


def pack_rows(results: Sequence[TestResult]) -> list[list[int]]:
    """Put tests into as few rows as their overlaps allow; gives places in `results`."""
    rows: list[list[int]] = []
    ends: list[float] = []
    for place in sorted(range(len(results)), key=lambda one: results[one].started):
        result = results[place]
        # Clocks are read before and after a test: a hair of overlap between neighbours is no overlap.
        free = next((row for row, end in enumerate(ends) if end <= result.started + 1e-3), None)
        if free is None:
            rows.append([])
            ends.append(0.0)
            free = len(rows) - 1
        rows[free].append(place)
        ends[free] = result.started + result.duration
    return rows


def _lane(report: RunReport, tests: list[int], *, name: str, detail: str, device: str) -> Lane:
    tests.sort(key=lambda number: report.results[number].started)
    busy = sum(report.results[number].duration for number in tests)
    return Lane(name=name, detail=detail, device=device, tests=tuple(tests), busy=busy)


def render_timeline(report: RunReport) -> str:
    """Render the report as one HTML page."""
    lanes = layout_lanes(report)
    begin, span = find_span(report)
    title = f"Lockgate: {report.stage}" + (f" (shard {report.shard})" if report.shard else "")
    data = json.dumps([_data(report, result) for result in report.results], ensure_ascii=False)
    # Inside a script element only "<" can end it or start a comment.
    data = data.replace("<", "\\u003c")
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>",
        *_render_head(report, title),
        *_render_tools(report),
        *_render_lanes(report, lanes, begin=begin, span=span),
        f'<p class="facts">{KEYS}</p><div id="detail" aria-live="polite">Choose a bar to see the test.</div>',
        *_render_table(report),
        f'</main><script type="application/json" id="data">{data}</script><script>{SCRIPT}</script></body></html>',
    ]
    return "\n".join(parts) + "\n"


def find_span(report: RunReport) -> tuple[float, float]:
    """Give the first moment of the lanes (seconds since the epoch) and their length in seconds."""
    started = [result for result in report.results if was_started(result)]
    times = [result.started for result in started] + [mark.time for mark in report.marks]
    ends = [result.started + result.duration for result in started] + [mark.time for mark in report.marks]
    if not times:
        return report.started, 1.0
    begin = min(times)
    return begin, max(max(ends) - begin, 1e-3)


def _render_head(report: RunReport, title: str) -> list[str]:
    if not report.is_complete:
        verdict = '<span class="pill open">never finished</span>'
    else:
        verdict = f'<span class="pill {"green" if report.is_green else "red"}">{describe_verdict(report)}</span>'
    simulated = '<span class="pill sim">simulated devices</span>' if report.simulated else ""
    when = datetime.fromtimestamp(report.started, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    facts = [f"started <b>{when}</b>"]
    if report.finished:
        facts.append(f"took <b>{report.finished - report.started:.1f} s</b>")
    if report.commit:
        facts.append(f"commit <b>{escape(report.commit[:12])}</b>")
    facts.append(f"<b>{len(report.results)}</b> tests, <b>{report.executed}</b> executed")
    boxes = [
        f'<li class="infrastructure"><b>{escape(one.check)}</b>: {escape(one.message)}'
        f" <small>{escape(one.hint)}</small></li>"
        for one in report.infrastructure
    ]
    boxes += [f'<li class="red">{escape(reason)}</li>' for reason in report.reasons]
    boxes += [
        f'<li class="red">check <b>{escape(one.name)}</b> failed after {one.duration:.1f} s'
        f"<pre>{escape(_shorten(one.output))}</pre></li>"
        for one in report.checks
        if not one.passed
    ]
    boxes += [f"<li>{escape(note)}</li>" for note in report.notes]
    listed = ['<ul class="boxes">', *boxes, "</ul>"] if boxes else []
    return [
        f"<h1>{escape(title)}</h1>{verdict}{simulated}",
        f'<p class="facts">{" &middot; ".join(facts)}</p>',
        *listed,
    ]


def _render_tools(report: RunReport) -> list[str]:
    always = (Outcome.PASSED.value, Outcome.SKIPPED.value, Outcome.NOT_RUN.value)
    chips = [
        f'<button data-outcome="{name}" aria-pressed="true"><span class="dot {name}"></span>{count} {name}</button>'
        for name, count in report.totals.items()
        if count or name in always
    ]
    zoom = [
        f'<button data-zoom="{name}" aria-label="{label}">{text}</button>'
        for name, label, text in (("out", "zoom out", "&minus;"), ("in", "zoom in", "+"), ("fit", "show all", "all"))
    ]
    search = '<input id="filter" type="search" placeholder="part of a test id" aria-label="show tests whose id holds">'
    return ['<div class="bar-tools">', *chips, '<span class="grow"></span>', search, *zoom, "</div>"]


def _render_lanes(report: RunReport, lanes: Sequence[Lane], *, begin: float, span: float) -> list[str]:
    if not lanes:
        return ['<p class="facts">No test was started.</p><div class="track" hidden></div>']
    names = [
        f'<div title="{escape(lane.detail)}"><span>{escape(lane.name)}</span>'
        f"<small>{min(lane.busy / span, 1):.0%} busy {escape(lane.detail)}</small></div>"
        for lane in lanes
    ]
    ticks = [f'<span style="left:{at / span:.4%}">{_format_tick(at)}</span>' for at in list_ticks(span)]
    rows = []
    for lane in lanes:
        bars = [_render_bar(report, number, lane, begin=begin, span=span) for number in lane.tests]
        marks = [
            _render_mark(mark, begin=begin, span=span)
            for mark in report.marks
            if lane.device in mark.devices or (not mark.devices and lane is lanes[0])
        ]
        rows.append(f'<div class="lane" role="group" aria-label="{escape(lane.name)}">{"".join(bars + marks)}</div>')
    return [
        '<div class="frame"><div class="names">',
        *names,
        '</div><div class="scroll"><div class="track"><div class="axis" aria-hidden="true">',
        *ticks,
        "</div>",
        *rows,
        "</div></div></div>",
    ]


def _render_bar(report: RunReport, number: int, lane: Lane, *, begin: float, span: float) -> str:
    result = report.results[number]
    left = (result.started - begin) / span
    width = min(result.duration / span, 1 - left)
    bad = "" if not report.is_bad(result) else " bad"
    label = f"{result.id}, {summarise(report, result)}, on {lane.name}"
    text = split_id(result.id)[1] or result.id
    flag = "" if not report.is_bad(result) else f"{result.outcome.value.upper()} "
    return (
        f'<button class="t {result.outcome.value}{bad}" data-t="{number}" tabindex="-1" aria-label="{escape(label)}"'
        f' style="left:{left:.4%};width:{max(width, 0):.4%}">{escape(flag + text)}</button>'
    )


def _render_mark(mark: Mark, *, begin: float, span: float) -> str:
    text = f"{mark.kind} at {mark.time - begin:.2f} s: {mark.text}"
    place = min(max((mark.time - begin) / span, 0), 1)
    words = escape(text)
    return f'<span class="mark" role="img" aria-label="{words}" title="{words}" style="left:{place:.4%}"></span>'


def _render_table(report: RunReport) -> list[str]:
    order = sorted(
        range(len(report.results)),
        key=lambda one: (not report.is_bad(report.results[one]), -report.results[one].duration),
    )
    rows = []
    for number in order:
        result = report.results[number]
        rows.append(
            f'<tr data-t="{number}"><td><span class="dot {result.outcome.value}"></span>{result.outcome.value}</td>'
            f'<td class="n">{result.duration:.3f}</td><td>{escape(name_devices(report, result))}</td>'
            f'<td><a href="#detail" data-t="{number}"><code>{escape(result.id)}</code></a>'
            f"{'<br>' + escape(result.reason.splitlines()[0]) if result.reason.strip() else ''}</td></tr>"
        )
    head = "<tr><th>outcome</th><th>seconds</th><th>devices</th><th>test</th></tr>"
    marks = [
        f"<tr><td>{escape(mark.kind)}</td><td class='n'>{mark.time - report.started:.3f}</td><td></td>"
        f"<td>{escape(mark.text)}</td></tr>"
        for mark in report.marks
    ]
    listed = ["<h2>Restarts, retries, limits</h2><table>", head.replace("outcome", "mark"), *marks, "</table>"]
    return [
        "<h2>Tests, what is bad first, then the longest</h2><table>",
        head,
        *rows,
        "</table>",
        *(listed if marks else []),
    ]


def _data(report: RunReport, result: TestResult) -> dict[str, object]:
    return {
        "id": result.id,
        "outcome": result.outcome.value,
        "summary": summarise(report, result),
        "reason": result.reason,
        "ranks": [
            [str(one.rank), one.outcome.value, f"{one.duration:.3f}", one.device, one.reason] for one in result.ranks
        ],
        "output": _shorten(result.output),
    }


def summarise(report: RunReport, result: TestResult) -> str:
    """Say outcome, seconds, devices and attempts of one test in a line."""
    words = [result.outcome.value, f"{result.duration:.3f} s"]
    devices = name_devices(report, result)
    words += [devices] if devices else []
    words += [f"{result.attempts} attempts"] if result.attempts > 1 else []
    words += [f"skip class {result.skip_class or 'none'}, {'declared' if result.declared else 'not declared'}"] * (
        result.outcome is Outcome.SKIPPED
    )
    return ", ".join(words)


def name_devices(report: RunReport, result: TestResult) -> str:
    """Name a test's devices by their numbers; one that the report does not know by its UUID."""
    known = {one.uuid: f"{'simulated' if one.simulated else 'GPU'} {one.index}" for one in report.devices}
    return ", ".join(known.get(uuid, uuid) for uuid in result.devices)


def list_ticks(span: float) -> list[float]:
    """Give the seconds at which the axis is labelled: at most `TICKS`, at round distances."""
    step = next((one for one in STEPS if span / one <= TICKS), span / TICKS)
    return [min(step * number, span) for number in range(int(span / step) + 1)]


def _format_tick(at: float) -> str:
    if at >= 60:
        return f"{int(at // 60)}:{int(at % 60):02d} min"
    return f"{at:g} s"


def _shorten(text: str) -> str:
    if len(text) <= OUTPUT_LIMIT:
        return text
    half = OUTPUT_LIMIT // 2
    middle = f"... {len(text) - OUTPUT_LIMIT} characters are left out here, report.json has them ..."
    return f"{text[:half]}\n{middle}\n{text[-half:]}"
