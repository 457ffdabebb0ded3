"""The hook table: ids and names are a promise to stored data, and the file stands alone."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from monitoring.hooks import sites
from monitoring.hooks.sites import BY_ID, BY_NAME, FIRST_MODULE_ID, SITES, Shape

pytestmark = pytest.mark.cpu

PROMISED = {
    0: "resid_pre", 1: "ln1", 2: "attn_out", 3: "resid_mid", 4: "attn_scores", 5: "pattern", 6: "q", 7: "k", 8: "v",
    9: "z", 11: "ln2", 12: "mlp_in", 13: "mlp_out", 14: "resid_final", 15: "embed", 16: "pos_embed", 17: "final_ln",
    18: "token_ids", 19: "final_logits", 20: "mlp_post", 21: "router_logits", 22: "topk_ids", 23: "topk_weights",
}  # fmt: skip
SHARDED = {"attn_scores", "pattern", "q", "k", "v", "z", "mlp_post"}


def test_ids_and_names_are_the_promised_ones():
    assert {site.id: site.name for site in SITES} == PROMISED


def test_ids_names_and_short_names_are_unique():
    assert len(BY_ID) == len(BY_NAME) == len({site.short for site in SITES}) == len(SITES)
    assert max(BY_ID) < FIRST_MODULE_ID


def test_a_short_name_is_never_another_sites_name():
    for site in SITES:
        assert BY_NAME.get(site.short, site) is site


def test_the_tensor_parallel_sites_are_the_declared_ones():
    assert {site.name for site in SITES if site.tp_sharded} == SHARDED


def test_a_square_site_is_split_by_head_and_a_hidden_one_never():
    for site in SITES:
        if site.shape is Shape.SQUARE:
            assert site.sharded_dim == 0
        if site.shape is Shape.HIDDEN:
            assert site.sharded_dim is None


def test_the_digest_follows_every_column(monkeypatch):
    before = sites.table_digest()
    assert len(before) == 64
    assert sites.table_digest() == before
    monkeypatch.setattr(sites, "SITES", (*SITES[:-1], SITES[-1].__class__(**{**vars(SITES[-1]), "short": "other"})))
    assert sites.table_digest() != before


def test_the_file_runs_without_its_package():
    namespace = runpy.run_path(sites.__file__)
    assert namespace["table_digest"]() == sites.table_digest()
    assert namespace["TABLE_VERSION"] == sites.TABLE_VERSION


def test_a_build_can_run_the_file_in_an_isolated_interpreter():
    script = "import runpy, sys; print(runpy.run_path(sys.argv[1])['table_digest']())"
    command = [sys.executable, "-I", "-S", "-c", script, str(Path(sites.__file__))]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.strip() == sites.table_digest()
