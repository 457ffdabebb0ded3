"""The workflow trust audit: which events reach which runner, with whose code and what power.

`read` files -> `workflow` parses them (`document`: YAML with lines) -> Folder; a broken file is a finding
`mentions` of the folder -> `events`: rows (`pull_rows`, `other_rows`, `payloads`)
`simulate` rows x workflows -> cells (`triggers`, `conditions`, `matrix`, `jobs`, `runners`, `code`, `power`)
`rules` cells -> findings; `audit` runs these steps and applies the `policy`
`table`, `render`, `explain` show the result; `command` is the edge
The expression language stands apart: `tokens` -> `expression` -> `syntax`; `evaluate` with unknown `values`.
"""
