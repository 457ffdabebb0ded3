"""Selections: text -> the sites and module globs it names.

    selection = item ("," item)*
    item      = site name | short name | alias | preset | "group:" group | "modules:" glob

Items are united; `-` and `_` are the same; a site named twice counts once.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from monitoring.errors import SelectionError
from monitoring.hooks.sites import BY_NAME, SITES, Group, Site

MODULES = "modules:"
GROUP = "group:"

ALIASES: dict[str, tuple[str, ...]] = {
    "hidden_states": ("resid_pre", "final_ln"),
    "attentions": ("pattern",),
    "logits": ("final_logits",),
    "token_ids": ("token_ids",),
}
"""Names that Hugging Face users know, keyed with `_` for `-`."""

PRESETS: dict[str, str] = {
    "full": ",".join(site.name for site in SITES),
    "hf_only": "resid_pre,final_ln,pattern,logits",
}
"""Preset name (with `_` for `-`) -> selection text. `register_preset` is the only way in."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What to watch: sites in the order of the hook table, and globs over qualified module names."""

    sites: tuple[Site, ...]
    modules: tuple[str, ...] = ()
    text: str = ""


def register_preset(name: str, selection: str) -> None:
    """Name a selection for this process.

    Raises `SelectionError` when the name is taken (by a preset, a site, an
    alias), cannot be written in a selection, or when the selection is not valid.
    """
    key = _key(name)
    if not key or not key.replace("_", "").isalnum():
        raise SelectionError(f"preset name {name!r} is not made of letters, digits, '-' and '_'")
    if key in _words():
        raise SelectionError(f"the name {name!r} is taken", hint=f"taken names: {', '.join(sorted(_words()))}")
    parse_selection(selection)
    PRESETS[key] = selection


def parse_selection(text: str | Iterable[str]) -> Selection:
    """Read a selection; raises `SelectionError` (a `ValueError`) that lists the choices."""
    items = [item.strip() for part in ([text] if isinstance(text, str) else text) for item in str(part).split(",")]
    items = [item for item in items if item]
    if not items:
        raise SelectionError("the selection is empty, expected a comma-separated list", hint=_choices())
    names: set[str] = set()
    globs: list[str] = []
    for item in items:
        if item.startswith(MODULES):
            globs.append(_glob(item))
        else:
            names.update(_names(item))
    sites = tuple(site for site in SITES if site.name in names)
    return Selection(sites=sites, modules=tuple(dict.fromkeys(globs)), text=",".join(items))


def _glob(item: str) -> str:
    glob = item[len(MODULES) :].strip()
    if not glob:
        raise SelectionError(f"{item!r} has no pattern", hint="write modules:<glob>, say modules:layers.*.mlp")
    return glob


def _names(item: str) -> Iterable[str]:
    if item.startswith(GROUP):
        wanted = item[len(GROUP) :].strip().lower()
        if wanted not in [group.value for group in Group]:
            groups = ", ".join(GROUP + group.value for group in Group)
            raise SelectionError(f"{item!r} is no group of sites", hint=f"groups: {groups}")
        return [site.name for site in SITES if site.group.value == wanted]
    key = _key(item)
    if key in PRESETS:
        return [site.name for site in parse_selection(PRESETS[key]).sites]
    if key in ALIASES:
        return ALIASES[key]
    if key in BY_NAME:
        return [key]
    by_short = {_key(site.short): site.name for site in SITES}
    if key in by_short:
        return [by_short[key]]
    near = difflib.get_close_matches(key, sorted(_words()), n=3)
    guess = f"; did you mean {' or '.join(near)}?" if near else ""
    raise SelectionError(f"unknown site {item!r} in the selection{guess}", hint=_choices())


def _key(text: str) -> str:
    return text.strip().lower().replace("-", "_")


def _words() -> set[str]:
    return {*PRESETS, *ALIASES, *BY_NAME, *(_key(site.short) for site in SITES)}


def _choices() -> str:
    sites = ", ".join(site.name if _key(site.short) == site.name else f"{site.name} ({site.short})" for site in SITES)
    aliases = ", ".join(sorted(name.replace("_", "-") for name in ALIASES))
    presets = ", ".join(sorted(name.replace("_", "-") for name in PRESETS))
    groups = ", ".join(GROUP + group.value for group in Group)
    return f"sites: {sites}\naliases: {aliases}; presets: {presets}; {groups}; modules:<glob> for any module's output"
