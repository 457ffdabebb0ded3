"""The reference of reasons, generated for `docs/impact.md`."""

from __future__ import annotations

from ci.impact.reasons import Reason, Scope

TITLES = {
    Scope.EVERYTHING: "Everything runs",
    Scope.TESTS: "Some tests run",
    Scope.NOTHING: "Nothing runs",
}


def render_reasons() -> str:
    """Render one Markdown table per scope, in the order of the rules."""
    parts = []
    for scope, title in TITLES.items():
        rows = [f"| `{reason}` | {reason.meaning} |" for reason in Reason if reason.scope is scope]
        parts.append("\n".join([f"#### {title}", "", "| reason | meaning |", "|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"
