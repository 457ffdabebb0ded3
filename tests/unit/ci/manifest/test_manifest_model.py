"""Sets of tests as integers, listings, closures."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.manifest.model import Manifest, blob_id, count, listing_digest, listings_of, pack, unpack

pytestmark = pytest.mark.cpu


@given(st.sets(st.integers(0, 5000)))
def test_sets_of_tests_survive_packing(numbers: set[int]) -> None:
    bits = pack(numbers)
    assert list(unpack(bits)) == sorted(numbers)
    assert count(bits) == len(numbers)


def test_atoms_collect_every_relation(manifest: Manifest) -> None:
    first = manifest.atoms("tests/test_a.py::test_1")
    assert first.blocks == {("src/a.py", "f")}
    assert first.modules == {"src/a.py", "tests/test_a.py"}
    assert first.opened == {"data.txt"}
    second = manifest.atoms("tests/test_a.py::test_2")
    assert second.listed == {""}
    assert second.opaque == ("child-shell",)
    third = manifest.atoms("tests/test_a.py::test_3")
    assert third.probed == {"absent.cfg"}
    assert third.libraries == {"build/lib.so"}
    with pytest.raises(KeyError):
        manifest.atoms("tests/test_a.py::test_4")


def test_only_passed_and_transparent_tests_may_be_skipped(manifest: Manifest) -> None:
    assert manifest.unskippable == 0b110
    assert manifest.ids(manifest.everything) == [test.id for test in manifest.tests]
    assert manifest.executors("src/a.py") == 0b011
    assert manifest.closure(["tests/test_a.py"]) == {"tests/test_a.py", "src/a.py"}


def test_listings_depend_on_direct_entries_alone() -> None:
    before = listings_of(["a/x.py", "a/b/y.py", "z.txt"])
    deeper = listings_of(["a/x.py", "a/b/y.py", "a/b/new.py", "z.txt"])
    assert before["a"] == deeper["a"]
    assert before["a/b"] != deeper["a/b"]
    assert before[""] == listing_digest(["a", "z.txt"])
    assert listings_of([])[""] == listing_digest([])


def test_blob_ids_are_those_of_git(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"some\r\ncontent \xff\n")
    found = subprocess.run(
        ["git", "hash-object", "--no-filters", "file"], cwd=tmp_path, check=True, capture_output=True
    )
    assert blob_id(path.read_bytes()) == found.stdout.decode().strip()
