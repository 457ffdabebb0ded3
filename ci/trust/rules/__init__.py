"""The rules: one file, one test, one data folder and one heading of `docs/security.md` each.

An `Audit` (cells of all events, concurrency groups, policy) goes in, findings
come out. The list below is the registry; nothing else registers anything.
"""

from __future__ import annotations

from ci.trust.rules import (
    artifact_from_lower_trust,
    as_edited,
    cache_from_lower_trust,
    dependabot_on_self_hosted,
    exit_code_five,
    expression_injection,
    host_path_from_lower_trust,
    invalid_workflow,
    labelled_push_untested,
    mirror_write_token,
    outsider_on_self_hosted,
    persisted_credentials,
    publisher_cancelled,
    required_check_missing,
    required_check_skipped,
    schedule_without_guard,
    shared_concurrency,
    untrusted_on_self_hosted,
    untrusted_with_power,
)
from ci.trust.rules.base import Rule

RULES: tuple[Rule, ...] = (
    untrusted_on_self_hosted.RULE,
    outsider_on_self_hosted.RULE,
    untrusted_with_power.RULE,
    cache_from_lower_trust.RULE,
    artifact_from_lower_trust.RULE,
    host_path_from_lower_trust.RULE,
    shared_concurrency.RULE,
    invalid_workflow.RULE,
    required_check_skipped.RULE,
    required_check_missing.RULE,
    dependabot_on_self_hosted.RULE,
    expression_injection.RULE,
    as_edited.RULE,
    mirror_write_token.RULE,
    labelled_push_untested.RULE,
    schedule_without_guard.RULE,
    persisted_credentials.RULE,
    exit_code_five.RULE,
    publisher_cancelled.RULE,
)
