"""Stages are rows of a table: `[tool.lockgate.stages.<name>]` over the package's defaults.

pyproject text -> `config.parse_settings` -> Settings(stages={name: Stage}, checks, trust)
tests' marks -> `markers.audit_tiers` -> problems, one per test with no tier or two
"""
