from __future__ import annotations

import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from ci.pytest_plugin import GUARD
from ci.stages import guards

pytestmark = pytest.mark.cpu

SOURCES = Path(__file__).resolve().parents[4]


def reason(mark: pytest.MarkDecorator, **environ: str) -> str:
    return guards.find_missing([mark.mark], environ)


def test_a_guard_is_a_mark_and_making_it_looks_at_nothing():
    mark = guards.require_gpus(2)
    assert mark.name == GUARD
    assert mark.args == ("gpus", 2)


def test_a_misspelt_guard_is_an_error_and_lets_no_test_through():
    with pytest.raises(ValueError, match="there is no guard 'gpu', expected one of"):
        guards.find_missing([getattr(pytest.mark, GUARD)("gpu").mark], {})


def test_a_mask_that_hides_every_device_is_told():
    assert reason(guards.require_cuda(), CUDA_VISIBLE_DEVICES="").startswith("needs cuda: ")
    assert reason(guards.require_gpus(2), CUDA_VISIBLE_DEVICES="").startswith(
        "needs gpus: 2 devices, 0 can be used here"
    )


def test_devices_of_a_simulated_run_count_for_their_number_and_not_for_cuda():
    assert reason(guards.require_gpus(2), LOCKGATE_SIMULATED="2") == ""
    assert "3 devices, 2 can be used" in reason(guards.require_gpus(3), LOCKGATE_SIMULATED="2")
    assert reason(guards.require_cuda(), LOCKGATE_SIMULATED="2", CUDA_VISIBLE_DEVICES="") != ""


def test_nvcc_is_looked_for_where_builds_look(tmp_path):
    assert reason(guards.require_nvcc(), PATH=str(tmp_path)).startswith("needs nvcc: ")
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "nvcc"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert reason(guards.require_nvcc(), PATH=str(tmp_path), CUDA_HOME=str(tmp_path)) == ""
    assert reason(guards.require_nvcc(), PATH=str(program.parent)) == ""


def test_models_are_looked_for_in_the_cache_and_never_downloaded(tmp_path):
    mark = guards.require_model_cache("org/name")
    assert "org/name is not in" in reason(mark, HF_HUB_CACHE=str(tmp_path))
    (tmp_path / "models--org--name" / "snapshots" / "abc").mkdir(parents=True)
    assert reason(mark, HF_HUB_CACHE=str(tmp_path)) == ""


def test_clickhouse_is_a_program_or_a_server_that_answers(tmp_path):
    assert "apt-get install clickhouse-server" in reason(guards.require_clickhouse(), PATH=str(tmp_path))
    refused = reason(guards.require_clickhouse("http://user:secret@127.0.0.1:9"))
    assert "no server answers at http://127.0.0.1:9" in refused
    assert "secret" not in refused

    class Ping(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/ping" else 404)
            self.end_headers()
            self.wfile.write(b"Ok.\n")

        def log_message(self, *_):
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Ping)
    threading.Thread(target=server.handle_request).start()
    assert reason(guards.require_clickhouse(f"http://user:secret@127.0.0.1:{server.server_port}")) == ""
    server.server_close()


def test_guards_collect_without_torch_and_import_nothing_heavy(tmp_path):
    """Collection succeeds where torch cannot be imported; the guard is evaluated at set-up alone."""
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')\n", encoding="utf-8")
    (tmp_path / "test_a.py").write_text(
        "import sys\nfrom ci.stages.guards import require_cuda\n"
        "assert not {'torch', 'numpy', 'pynvml'} & set(sys.modules)\n"
        "@require_cuda()\ndef test_a():\n    import torch\n"
        "def test_b(): pass\n",
        encoding="utf-8",
    )
    words = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "ci.pytest_plugin", "-p", "no:cacheprovider"]
    words += ["--strict-markers", "-p", "no:hypothesispytest", "-p", "no:anyio"]
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, check=False,
        env={"PYTHONPATH": f"{tmp_path}:{SOURCES}", "PATH": "/usr/bin", "CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed, 1 skipped" in done.stdout
    assert "needs cuda: " in done.stdout
