"""RunReport -> a timeline: one HTML file that needs no network. Pure."""

from __future__ import annotations

from ci.report.model import RunReport


def render_timeline(report: RunReport) -> str:
    """Render the report as one HTML page."""
    return f"<!doctype html><title>{report.stage}</title>\n"
