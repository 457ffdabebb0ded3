"""`clickhouses://`: the same blocks by way of clickhouse-connect, TLS checked, credentials kept."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from monitoring.errors import MissingDependency, StoreError
from monitoring.rows import CLOSED, RunRecord, encode_rows
from monitoring.store import open_store

pytestmark = pytest.mark.native_backend


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl: no openssl program to make a certificate with")
    pytest.importorskip("clickhouse_connect", reason="the cloud extra is not installed")
    paths = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-out", paths[0], "-keyout", paths[1]],
        check=True, capture_output=True,
    )  # fmt: skip
    return paths


@pytest.fixture
def secure_url(certificate: tuple[Path, Path], serve_modern: Callable[..., Any], tmp_path: Path) -> Any:
    """A password-protected modern engine behind TLS."""
    with serve_modern(tmp_path / "store", password="s3cret-w0rd") as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        yield f"clickhouses://default:s3cret-w0rd@127.0.0.1:{server.server_address[1]}/default?ca_cert={certificate[0]}"


def test_rows_travel_through_tls(secure_url: str, make_rows: Callable[..., Any]) -> None:
    store = open_store(secure_url)
    store.prepare()
    store.write_block(encode_rows(make_rows(20)))
    store.write_run(RunRecord(run_id="r", state=CLOSED, updated_at=3))
    assert sorted(store.read_rows("r"), key=lambda row: row.seq) == make_rows(20)
    assert [record.run_id for record in store.read_runs()] == ["r"]
    assert store.query("SELECT count() FROM {captures}").rows[0][0] == 20
    assert "s3cret" not in repr(store) + str(store.url)
    store.close()


def test_an_unknown_authority_is_refused_without_showing_the_password(secure_url: str) -> None:
    store = open_store(secure_url.partition("?")[0])
    with pytest.raises(StoreError, match="CERTIFICATE_VERIFY_FAILED") as caught:
        store.prepare()
    assert "s3cret" not in str(caught.value)


def test_a_wrong_password_has_a_hint(secure_url: str) -> None:
    store = open_store(secure_url.replace("s3cret-w0rd", "other-w0rd"))
    with pytest.raises(StoreError) as caught:
        store.prepare()
    assert "check user and password" in caught.value.hint
    assert "other-w0rd" not in str(caught.value)
    store.close()


def test_a_closed_port_is_a_store_error() -> None:
    pytest.importorskip("clickhouse_connect", reason="the cloud extra is not installed")
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        store = open_store(f"clickhouses://u:s3cret-w0rd@127.0.0.1:{held.getsockname()[1]}/d?timeout=2")
        with pytest.raises(StoreError) as caught:
            store.prepare()
    assert "s3cret" not in str(caught.value)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "clickhouse_connect", None)
    with pytest.raises(MissingDependency) as caught:
        open_store("clickhouses://u:s3cret-w0rd@h/d")
    assert 'pip install "lockgate[cloud]"' in caught.value.hint
    assert "s3cret" not in str(caught.value)
