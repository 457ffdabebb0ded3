"""Labels of `runs-on` -> hosted, self-hosted or unknown."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass, field

from ci.trust.document import Items, Node, Scalar, Table, node_text
from ci.trust.evaluate import Scope
from ci.trust.policy import Policy
from ci.trust.template import evaluate_text
from ci.trust.trust import Kind
from ci.trust.values import Unknown, Value, options_of, text_of

HOSTED = re.compile(
    r"ubuntu-(latest|slim|\d\d\.\d\d)(-arm|-arm64)?"
    r"|windows-(latest|\d{4}|11|11-arm)(-vs\d{4})?(-arm)?"
    r"|macos-(latest|\d{2})(\.\d+)?(-large|-xlarge|-intel|-arm64)?",
    re.IGNORECASE | re.ASCII,
)
"""The labels of standard machines of the service; every other label names a machine of somebody's own."""


@dataclass(frozen=True, kw_only=True)
class Runner:
    """Where a job runs: its kind, and labels (`group:NAME` for a group) as evaluated.

    An unknown runner keeps the expression as its label; `ephemeral` holds
    when the policy says so of every label.
    """

    kind: Kind
    labels: tuple[str, ...] = ()
    ephemeral: bool = False


NOWHERE = Runner(kind=Kind.NONE)


@dataclass(kw_only=True)
class _Found:
    """Labels while they are collected: certain ones, ones that may be, expressions that stay open."""

    certain: list[str] = field(default_factory=list)
    possible: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)


def resolve_runner(node: Node | None, scope: Scope, policy: Policy) -> Runner:
    """Evaluate `runs-on` and classify it; raises what evaluation raises."""
    found = _Found()
    if isinstance(node, Table):
        group = node.get("group")
        if group is not None:
            _add(evaluate_text(node_text(group), scope), node_text(group), found, prefix="group:")
        _add_node(node.get("labels"), scope, found)
    else:
        _add_node(node, scope, found)
    return _classify(found, policy)


def _add_node(node: Node | None, scope: Scope, found: _Found) -> None:
    for item in node.items if isinstance(node, Items) else (node,):
        if isinstance(item, Scalar):
            _add(evaluate_text(node_text(item), scope), node_text(item), found)


def _add(value: Value, source: str, found: _Found, *, prefix: str = "", sure: bool = True) -> None:
    listed = options_of(value)
    if listed is None:
        found.open.append(prefix + source)
        return
    sure = sure and len(listed) == 1
    for option in listed:
        if isinstance(option, list):
            for item in option:
                _add(item, source, found, prefix=prefix, sure=sure)
        elif isinstance(option, dict):
            _add(option.get("group", ""), source, found, prefix="group:", sure=sure)
            _add(option.get("labels", ""), source, found, sure=sure)
        elif isinstance(option, Unknown):
            found.open.append(prefix + source)
        elif text_of(option):
            (found.certain if sure else found.possible).append(prefix + text_of(option))


def _classify(found: _Found, policy: Policy) -> Runner:
    mapped = [policy.unknown_runners.get(source) for source in found.open]
    sure = {label_kind(label, policy) for label in found.certain}
    unsure = {label_kind(label, policy) for label in found.possible} | {kind or Kind.UNKNOWN for kind in mapped}
    labels = tuple(dict.fromkeys([*found.certain, *found.possible, *found.open]))
    own = [label for label in labels if label_kind(label, policy) is Kind.SELF_HOSTED]
    ephemeral = bool(own) and all(policy.is_ephemeral(label) for label in own)
    if not labels:
        return NOWHERE
    if Kind.SELF_HOSTED in sure:
        kind = Kind.SELF_HOSTED
    elif len(sure | unsure) == 1:
        kind = (sure | unsure).pop()
    else:
        kind = Kind.UNKNOWN
    return Runner(kind=kind, labels=labels, ephemeral=ephemeral)


def label_kind(label: str, policy: Policy) -> Kind:
    """Classify one label; case is ignored."""
    name = label.lower()
    if label in policy.runners or name in {known.lower() for known in policy.runners}:
        return Kind.SELF_HOSTED
    if any(fnmatch.fnmatchcase(name, pattern.lower()) for pattern in policy.hosted_labels):
        return Kind.HOSTED
    return Kind.HOSTED if HOSTED.fullmatch(name) else Kind.SELF_HOSTED
