"""The steps of `lockgate package`, around the builds themselves."""

import io
import tarfile
import zipfile

import pytest

from ci import cli
from ci.errors import PackageError, UsageError
from ci.packaging import build
from ci.packaging.command import publish
from ci.packaging.environment import top_level_packages

pytestmark = pytest.mark.cpu


def test_an_unknown_native_mode_lists_the_choices(capsys):
    assert cli.main(["package", "--native", "rocm"]) == UsageError.exit_code
    assert "cpu, cuda, off" in capsys.readouterr().err


def test_a_build_that_leaves_nothing_or_two_files_is_an_error(tmp_path):
    with pytest.raises(PackageError, match="found nothing"):
        build.only(tmp_path, "*.whl")
    (tmp_path / "a.whl").touch()
    (tmp_path / "b.whl").touch()
    with pytest.raises(PackageError, match=r"a\.whl, b\.whl"):
        build.only(tmp_path, "*.whl")


def test_a_damaged_wheel_is_named(tmp_path):
    path = tmp_path / "x-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/__init__.py", "a = 1\n" * 100)
    raw = bytearray(path.read_bytes())
    raw[50] ^= 0xFF
    path.write_bytes(bytes(raw))
    with pytest.raises(PackageError, match=r"x-1-py3-none-any\.whl is damaged"):
        build.read_wheel_names(path)


def test_names_and_tags_are_read(tmp_path):
    path = tmp_path / "x-1.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        info = tarfile.TarInfo("x-1/x/__init__.py")
        archive.addfile(info, io.BytesIO(b""))
    assert build.read_sdist_names(path) == ["x/__init__.py"]
    assert build.wheel_tag(tmp_path / "x-1-cp310-abi3-linux_x86_64.whl") == "cp310-abi3-linux_x86_64"
    assert top_level_packages(["a/__init__.py", "a/b/__init__.py", "c.py", "a-1.dist-info/RECORD"]) == ["a"]


def test_old_distributions_are_replaced(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old-0.whl").touch()
    new = tmp_path / "new-1.whl"
    new.touch()
    publish([new], tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["new-1.whl"]
