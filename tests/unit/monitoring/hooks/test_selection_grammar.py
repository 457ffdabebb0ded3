"""Selections: what they name, and what an error tells."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitoring.errors import SelectionError
from monitoring.hooks import select
from monitoring.hooks.select import parse_selection, register_preset
from monitoring.hooks.sites import SITES, Group

pytestmark = pytest.mark.cpu


def names(text):
    return [site.name for site in parse_selection(text).sites]


@pytest.fixture
def presets(monkeypatch):
    monkeypatch.setattr(select, "PRESETS", dict(select.PRESETS))
    return select.PRESETS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("resid_pre", ["resid_pre"]),
        ("resid-pre", ["resid_pre"]),
        (" Resid_Pre , resid_pre ,", ["resid_pre"]),
        ("hidden-states", ["resid_pre", "final_ln"]),
        ("hidden_states", ["resid_pre", "final_ln"]),
        ("logits", ["final_logits"]),
        ("token-ids", ["token_ids"]),
        ("attentions", ["pattern"]),
        ("hf-only", ["resid_pre", "pattern", "final_ln", "final_logits"]),
        ("logits,q", ["q", "final_logits"]),
        ("mlp-in", ["mlp_in"]),
        ("group:mlp", [site.name for site in SITES if site.group is Group.MLP]),
    ],
)
def test_names_aliases_and_presets(text, expected):
    assert names(text) == expected


def test_full_is_every_site():
    assert parse_selection("full").sites == SITES


@pytest.mark.parametrize("site", SITES, ids=lambda site: site.name)
def test_every_name_and_short_name_selects_its_site(site):
    assert parse_selection(site.name).sites == (site,)
    assert parse_selection(site.short).sites == (site,)


@given(st.lists(st.sampled_from([site.name for site in SITES]), min_size=1))
def test_a_selection_is_the_union_in_table_order(chosen):
    expected = [site.name for site in SITES if site.name in chosen]
    assert names(",".join(chosen)) == expected
    assert names(chosen) == expected


@pytest.mark.parametrize("text", ["", " , ,", [], ["", " "]])
def test_an_empty_selection_lists_the_choices(text):
    with pytest.raises(ValueError, match="empty") as caught:
        parse_selection(text)
    assert "resid_pre" in str(caught.value)
    assert "hidden-states" in str(caught.value)


def test_an_unknown_site_lists_the_choices_and_guesses():
    with pytest.raises(SelectionError, match=r"unknown site 'patern'.*did you mean pattern") as caught:
        parse_selection("q,patern")
    for site in SITES:
        assert site.name in str(caught.value)
    assert "modules:<glob>" in str(caught.value)


@pytest.mark.parametrize("text", ["modules:", "modules: ", "group:", "group:heads", "full!", "q;k", "*"])
def test_malformed_items_are_refused(text):
    with pytest.raises(SelectionError):
        parse_selection(text)


@given(st.text(max_size=30))
def test_any_text_selects_something_or_is_refused(text):
    try:
        chosen = parse_selection(text)
    except SelectionError:
        return
    assert chosen.sites or chosen.modules


def test_globs_are_kept_apart_from_sites():
    chosen = parse_selection("modules:h.*.mlp,logits,modules:h.*.mlp,modules:wte")
    assert chosen.modules == ("h.*.mlp", "wte")
    assert [site.name for site in chosen.sites] == ["final_logits"]


def test_a_preset_can_be_added_once(presets):
    register_preset("my-probe", "q,k,hidden-states")
    assert names("my_probe,logits") == ["resid_pre", "q", "k", "final_ln", "final_logits"]
    with pytest.raises(SelectionError, match="taken"):
        register_preset("my_probe", "v")


@pytest.mark.parametrize("name", ["full", "hf-only", "hidden-states", "resid_pre", "scores"])
def test_a_preset_cannot_take_a_name_in_use(presets, name):
    with pytest.raises(ValueError, match="taken"):
        register_preset(name, "q")


@pytest.mark.parametrize("name", ["", "a,b", "modules:x", "a b"])
def test_a_preset_needs_a_name_that_can_be_written(presets, name):
    with pytest.raises(SelectionError):
        register_preset(name, "q")


def test_a_preset_of_nonsense_is_refused_and_not_kept(presets):
    with pytest.raises(SelectionError):
        register_preset("mine", "nonsense")
    assert "mine" not in presets
