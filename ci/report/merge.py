"""The reports of the shards of one stage -> one report. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ci.errors import ReportError
from ci.report.model import Outcome, RunReport, TestResult
from ci.running.shard import Shard

SPLIT = "split"
"""Key of a report's `environment`: the mark of what its split was computed from."""


def merge_reports(reports: Sequence[RunReport]) -> RunReport:
    """Join shards into the report that one runner would have given.

    Raises `ReportError` for reports that do not belong together (stage, commit,
    simulated beside real, the same shard twice). A missing shard, shards that were
    split from other estimates, and a test that two shards ran, make the whole red:
    each may hide a test that nobody ran.
    """
    if not reports:
        raise ReportError("there is no report to merge", hint="name the report.json files or their folders")
    _refuse_strangers(reports)
    ordered = sorted(reports, key=lambda report: (_index(report), report.started))
    reasons = [*_doubts(ordered), *_prefixed(ordered, "reasons")]
    codes = [report.exit_code for report in ordered]
    complete = all(report.is_complete for report in ordered)
    if not complete:
        reasons.append("a shard never gave its answer")
    return RunReport(
        stage=ordered[0].stage,
        commit=ordered[0].commit,
        simulated=ordered[0].simulated,
        started=min(report.started for report in ordered),
        finished=max(report.finished for report in ordered) if complete else 0.0,
        exit_code=_worst(codes, doubtful=bool(_doubts(ordered))) if complete else None,
        reasons=tuple(dict.fromkeys(reasons)),
        notes=tuple(dict.fromkeys(_prefixed(ordered, "notes"))),
        devices=tuple({one.uuid: one for report in ordered for one in report.devices}.values()),
        results=tuple(_join_results(ordered)),
        infrastructure=tuple(dict.fromkeys(one for report in ordered for one in report.infrastructure)),
        checks=tuple(
            replace(one, name=f"{one.name} ({report.shard})" if report.shard else one.name)
            for report in ordered
            for one in report.checks
        ),
        marks=tuple(sorted((one for report in ordered for one in report.marks), key=lambda mark: mark.time)),
        environment={key: value for report in ordered for key, value in report.environment.items() if key != SPLIT},
    )


def _refuse_strangers(reports: Sequence[RunReport]) -> None:
    problems = []
    for what, values in (
        ("stages", {report.stage for report in reports}),
        ("commits", {report.commit for report in reports if report.commit}),
        ("kinds of devices", {"simulated" if report.simulated else "real" for report in reports}),
        ("splits", {report.shard.partition("/")[2] for report in reports}),
    ):
        if len(values) > 1:
            problems.append(f"{what}: {', '.join(sorted(value or 'not split' for value in values))}")
    shards = Counter(report.shard for report in reports)
    twice = [shard or "the whole stage" for shard, count in shards.items() if count > 1]
    if twice:
        problems.append(f"given more than once: {', '.join(twice)}")
    if problems:
        hint = "merge only the shards of one run of one stage"
        raise ReportError(
            "these reports do not belong together:\n" + "\n".join(f"  - {one}" for one in problems), hint=hint
        )


def _doubts(reports: Sequence[RunReport]) -> list[str]:
    doubts = []
    shard = reports[0].shard
    if shard:
        count = Shard.parse(shard).count
        have = {_index(report) for report in reports}
        missing = [f"{index}/{count}" for index in range(1, count + 1) if index not in have]
        if missing:
            doubts.append(f"missing shard(s): {', '.join(missing)}; their tests were not run, as far as is known")
    if len({report.environment.get(SPLIT, "") for report in reports}) > 1:
        doubts.append("the shards were split from different estimates, so a test may have been run by none")
    counts = Counter(result.id for report in reports for result in report.results if not _is_left(result))
    twice = [test for test, count in counts.items() if count > 1]
    if twice:
        more = f" and {len(twice) - 3} more" if len(twice) > 3 else ""
        doubts.append(f"run by more than one shard: {', '.join(twice[:3])}{more}")
    return doubts


def _is_left(result: TestResult) -> bool:
    return result.outcome is Outcome.NOT_RUN and not result.started


def _join_results(reports: Sequence[RunReport]) -> list[TestResult]:
    """Keep one result per test: the one that says most against it."""
    joined: dict[str, TestResult] = {}
    for report in reports:
        for result in report.results:
            before = joined.get(result.id)
            if before is None or _gravity(result) > _gravity(before):
                joined[result.id] = result
    return list(joined.values())


GRAVITY = (
    Outcome.NOT_RUN,
    Outcome.SKIPPED,
    Outcome.XFAILED,
    Outcome.PASSED,
    Outcome.INFRASTRUCTURE,
    Outcome.ERROR,
    Outcome.FAILED,
    Outcome.HUNG,
    Outcome.CRASHED,
)


def _gravity(result: TestResult) -> int:
    return GRAVITY.index(result.outcome)


def _worst(codes: Sequence[int | None], *, doubtful: bool) -> int:
    """Join exit codes: a machine that was not fit (any code above 1) before red before green."""
    known = [code for code in codes if code is not None]
    worst = max(known, key=lambda code: (code > 1, code != 0, -code))
    return 1 if worst == 0 and doubtful else worst


def _index(report: RunReport) -> int:
    return Shard.parse(report.shard).index if report.shard else 0


def _prefixed(reports: Sequence[RunReport], name: str) -> list[str]:
    return [
        f"shard {report.shard}: {text}" if report.shard else text
        for report in reports
        for text in getattr(report, name)
    ]
