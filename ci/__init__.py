"""Lockgate carries a change through locked gates, one stage at a time.

pyproject rows -> Stage; git -> Changes; last nightly -> Manifest      (parse)
Stage + Changes + Manifest -> Plan                                     (decide)
Plan + Devices -> processes, ranks -> events -> Outcome -> report      (run, judge)
workflow files -> events x jobs -> Findings                            (audit)

Start at `ci.cli`: one table row per command, one place that catches errors.
"""

__version__ = "0.1.0"
