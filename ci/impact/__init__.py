"""Which tests a change needs, and why.

git trees and diff (edge: `git`) -> `changes` -> Changes
source before and after -> `blocks` -> which blocks differ
Manifest + Changes + Policy -> `rules`, in order -> `decide` -> Plan
Plan -> `render` -> table, JSON, Markdown, job outputs; `plan_file` reads it back

Unsure means: run the test, with a reason and a detail that a person can act on.
"""
