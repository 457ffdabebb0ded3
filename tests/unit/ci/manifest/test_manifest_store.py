"""A manifest survives its file, and a file is whole or not there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ci.errors import ManifestError
from ci.manifest.model import Finding, Manifest
from ci.manifest.packed import pack_bits, unpack_bits
from ci.manifest.store import Damaged, load_manifest, write_manifest

pytestmark = pytest.mark.cpu


def plain(value: Any) -> Any:
    """Give lazily decoded mappings as plain ones."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return value


def test_everything_comes_back(manifest: Manifest, tmp_path: Path) -> None:
    problem = Finding(check="opaque-tests", found="1", expected="0", hint="look", is_warning=True)
    header = write_manifest(manifest, tmp_path / "m.sqlite", problems=[problem])
    found, problems = load_manifest(tmp_path / "m.sqlite")
    assert problems == (problem,)
    assert found.header == header
    assert header.content_hash
    assert found.tests == manifest.tests
    for name in ("executed", "imported", "opened", "listed", "listings", "probed", "libraries", "edges"):
        assert plain(getattr(found, name)) == plain(getattr(manifest, name)), name
    assert {path: plain(file.blocks) for path, file in found.files.items()} == {
        path: plain(file.blocks) for path, file in manifest.files.items()
    }
    assert found.atoms("tests/test_a.py::test_1") == manifest.atoms("tests/test_a.py::test_1")


def test_equal_manifests_have_equal_hashes(manifest: Manifest, tmp_path: Path) -> None:
    first = write_manifest(manifest, tmp_path / "1.sqlite")
    second = write_manifest(manifest, tmp_path / "2.sqlite")
    assert first.content_hash == second.content_hash
    assert (tmp_path / "1.sqlite").read_bytes() == (tmp_path / "2.sqlite").read_bytes()


def test_a_failed_write_leaves_the_old_file_and_no_other(
    manifest: Manifest, build: Callable[..., Manifest], tmp_path: Path
) -> None:
    path = tmp_path / "m.sqlite"
    write_manifest(manifest, path)
    before = path.read_bytes()
    with pytest.raises(Exception, match=r"."):
        write_manifest(build(opened={"x": object()}), path)
    assert path.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["m.sqlite"]


def test_a_folder_that_is_a_file_is_a_clear_error(manifest: Manifest, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ManifestError, match="cannot be written"):
        write_manifest(manifest, tmp_path / "file" / "m.sqlite")


@given(st.integers(0, 2**300))
def test_sets_survive_compression(bits: int) -> None:
    assert unpack_bits(pack_bits(bits), tests=301) == bits


def test_a_set_cannot_name_more_tests_than_there_are() -> None:
    with pytest.raises(ValueError, match="names test 9"):
        unpack_bits(pack_bits(1 << 9), tests=9)
    with pytest.raises(ValueError, match="longer than it may be"):
        unpack_bits(pack_bits(1 << 100_000), tests=9)


@given(st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_changed_byte_goes_unnoticed(manifest: Manifest, tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "m.sqlite"
    if not path.exists():
        write_manifest(manifest, path)
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    bad = tmp_path / "bad.sqlite"
    bad.write_bytes(content)
    with pytest.raises(Damaged):
        load_manifest(bad)
