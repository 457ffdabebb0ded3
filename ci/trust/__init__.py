"""The workflow trust audit: which events reach which runner, with whose code and what power.

files -> `read` -> Folder (workflows, local actions; a broken file is a finding)
Folder + policy -> `audit`: `mentions` -> `events` rows -> `simulate` cells -> `rules` findings
findings + cells -> `table`, `render` (JSON, Markdown, SARIF), `explain`
The expression language stands apart: `expression` parses, `evaluate` knows true, false and unknown.
"""
