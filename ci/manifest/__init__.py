"""Evidence: what every test of a stage depended on when it last ran.

pytest run with `-p ci.manifest.plugin` -> `recorder`, `imports`, `files`, `children` -> records in a folder
records + git tree -> `credit` -> `build` -> Manifest -> `checks` -> findings
Manifest -> `store` (one SQLite file, temp + rename) -> `publish` (content-addressed, pointer last)
`read_manifest(path, expectations)` -> Manifest | Refusal, for the plan

Unsure means: the test is opaque, by name and reason, and always runs.
"""
