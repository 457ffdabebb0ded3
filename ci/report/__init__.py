"""What a run leaves behind, and every shape in which people and machines read it.

events (`ci.running.events`) -> `build` -> RunReport (`model`) -> `document` <-> report.json
RunReport -> `junit` (XML), `terminal` (rich), `markdown` (step summary), `timeline` (one HTML file)
several RunReports (shards) -> `merge` -> one RunReport
`write` is the edge: files appear whole or not at all, and a full disk is a `ReportError`.
"""
