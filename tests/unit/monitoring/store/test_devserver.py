"""The private server's configuration and how its program is found; starting it is tested in tests/native/store."""

from __future__ import annotations

import json
import os
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from monitoring import devserver
from monitoring.errors import MissingDependency, StoreError

pytestmark = pytest.mark.cpu


def test_everything_stays_on_loopback_and_inside_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "a & b"
    config = ET.fromstring(devserver.render_config(folder, http_port=1234, tcp_port=1235))
    assert config.findtext("listen_host") == "127.0.0.1"
    assert (config.findtext("http_port"), config.findtext("tcp_port")) == ("1234", "1235")
    paths = [element.text or "" for element in config.iter() if (element.text or "").strip().startswith("/")]
    assert len(paths) >= 6
    assert all(path.startswith(f"{folder}/") for path in paths)
    assert config.find("interserver_http_port") is None
    users = ET.fromstring(devserver.render_users())
    assert [element.text for element in users.iter("ip")] == ["127.0.0.1"]


def test_a_missing_program_says_how_to_get_it() -> None:
    with pytest.raises(MissingDependency, match="clickhouse-server or clickhouse") as caught:
        devserver.find_binary({"PATH": "/nowhere", "LOCKGATE_CLICKHOUSE": ""}, also="/nowhere")
    assert "apt-get install clickhouse-server" in caught.value.hint
    with pytest.raises(MissingDependency, match="LOCKGATE_CLICKHOUSE=/no/such"):
        devserver.find_binary({"LOCKGATE_CLICKHOUSE": "/no/such"})


def test_a_named_program_is_taken(tmp_path: Path) -> None:
    program = tmp_path / "clickhouse"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    assert devserver.find_binary({"LOCKGATE_CLICKHOUSE": str(program)}) == str(program)
    assert devserver.find_binary({"PATH": str(tmp_path)}, also="") == str(program)


def test_a_note_of_another_process_is_no_server(tmp_path: Path) -> None:
    note = {"pid": os.getpid(), "http_port": 1, "tcp_port": 2, "folder": str(tmp_path), "binary": "x"}
    for text in ("", "{", "[]", json.dumps({"pid": 1}), json.dumps(note), json.dumps({**note, "pid": 2**22 + 5})):
        (tmp_path / "server.json").write_text(text)
        assert devserver.read_info(tmp_path) is None
    assert devserver.read_info(tmp_path / "absent") is None


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(StoreError, match="not a private server's"):
        devserver.up(tmp_path)
    assert not devserver.down(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "precious"


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    with pytest.raises(StoreError, match="is no folder"):
        devserver.up(tmp_path / "link")
