"""The native library's loader: once, lazily, and with the real cause when it fails."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

from monitoring import native
from monitoring.errors import NativeUnavailable
from monitoring.hooks import sites

pytestmark = pytest.mark.cpu


def library(**changes):
    module = ModuleType("monitoring._native")
    module.ABI = native.ABI
    module.check_hook_table = lambda version, digest: None
    for name, value in changes.items():
        setattr(module, name, value)
    return module


@pytest.fixture
def importing(monkeypatch):
    """Let the import give a module, or raise, and count how often it was tried."""
    tries = []

    def use(result):
        def load(name):
            tries.append(name)
            if isinstance(result, BaseException):
                raise result
            return result

        native._load_once.cache_clear()
        monkeypatch.setattr(native.importlib, "import_module", load)
        return tries

    yield use
    native._load_once.cache_clear()


def test_the_library_is_loaded_once(importing):
    module = library()
    tries = importing(module)
    assert native.load_native() is native.load_native() is module
    assert native.find_fault() is None
    assert tries == ["monitoring._native"]


@pytest.mark.parametrize(
    ("error", "message", "hint"),
    [
        (ModuleNotFoundError("No module", name="monitoring._native"), "was not built", "invoke build-native"),
        (
            ModuleNotFoundError("No module", name="nanobind_backend"),
            "needs the module nanobind_backend",
            "pip install nanobind-backend",
        ),
        (ImportError("undefined symbol: _Zfoo"), "does not load: undefined symbol: _Zfoo", "build it again"),
        (
            ImportError("nanobind: backend module 'nanobind_backend' is not installed."),
            "is not installed",
            "pip install nanobind-backend",
        ),
    ],
)
def test_the_real_cause_is_kept(importing, error, message, hint):
    """Regression: the precursor's loader said "not found, build it first" for an undefined symbol."""
    importing(error)
    for _ in range(2):
        with pytest.raises(NativeUnavailable) as caught:
            native.load_native()
        assert message in caught.value.message
        assert hint in caught.value.hint
        assert caught.value.cause is error
        assert caught.value.__cause__ is error
    assert native.find_fault().cause is error


def test_another_contract_is_refused(importing):
    importing(library(ABI=native.ABI + 1))
    with pytest.raises(NativeUnavailable, match=f"speaks contract {native.ABI + 1}, this package {native.ABI}"):
        native.load_native()


def test_another_hook_table_is_refused_in_the_librarys_words(importing):
    seen = []

    def check(version, digest):
        seen.append((version, digest))
        raise ImportError("built for hook table 0")

    importing(library(check_hook_table=check))
    with pytest.raises(NativeUnavailable, match="built for hook table 0"):
        native.load_native()
    assert seen == [(sites.TABLE_VERSION, sites.table_digest())]


def test_importing_the_loader_and_the_ring_needs_neither_torch_nor_the_library():
    script = (
        "import sys; sys.modules['torch'] = sys.modules['monitoring._native'] = None; "
        "import monitoring.native, monitoring.ring; print(monitoring.native.find_fault().message)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "was not built" in done.stdout or "needs the module" in done.stdout
