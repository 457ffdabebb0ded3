"""The rows of the table, in its order: about forty events and what files ask for beyond them."""

from __future__ import annotations

from ci.trust.other_rows import (
    chosen_payload,
    comment_rows,
    default_branch_rows,
    dispatched_row,
    issue_row,
    other_row,
    push_rows,
    release_row,
    run_rows,
)
from ci.trust.payloads import Repo
from ci.trust.pull_rows import fork_rows, internal_rows, review_row, target_rows
from ci.trust.rows import OTHER_LABEL, Mentions, Row


def build_rows(repo: Repo, mentions: Mentions) -> tuple[Row, ...]:
    """List every row for a repository, in the order of the table."""
    labels = (*mentions.labels, *((OTHER_LABEL,) if mentions.listens_to_labeled else ()))
    rows = [
        *fork_rows(repo, mentions, labels),
        *internal_rows(repo, labels),
        *push_rows(repo),
        *default_branch_rows(repo),
        *run_rows(repo),
        *comment_rows(repo, issues=mentions.listens_to_comments),
        *(issue_row(repo, kind) for kind in ("opened", *mentions.issue_types)),
        *target_rows(repo, mentions, labels),
        review_row(repo),
        release_row(repo),
        dispatched_row(
            repo,
            "repository-dispatch",
            "repository dispatch",
            "repository_dispatch",
            {"client_payload": chosen_payload()},
        ),
        *(other_row(repo, name) for name in mentions.events),
    ]
    return tuple(rows)
