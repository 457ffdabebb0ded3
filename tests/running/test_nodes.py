"""Sets that span two nodes: two agents on this machine, torchrun's c10d rendezvous between them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ci.running.channel import find_free_port

SECRET = {"LOCKGATE_TOKEN": "a secret of this test"}
SUITE = """
import os, signal, time, pytest, torch, torch.distributed as dist
pytestmark = pytest.mark.multi_gpu
def add():
    value = torch.ones(4) * (dist.get_rank() + 1)
    dist.all_reduce(value)
    assert value[0] == 3
def test_reduce():
    assert os.environ["GROUP_WORLD_SIZE"] == "2"
    assert os.environ["LOCAL_WORLD_SIZE"] == "1"
    add()
def test_fails():
    add()
    assert dist.get_rank() == 0
def test_after_a_failure(): add()
def test_crashes():
    if dist.get_rank() == 1: os.kill(os.getpid(), signal.SIGSEGV)
    add()
def test_after_a_crash(): add()
@pytest.mark.multi_gpu(nproc=3)
def test_uneven(): pass
"""


def start_agent(project, address: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "ci.running.agent", address]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(words, cwd=project.root, env=project.environ(SECRET), text=True, **streams)


@pytest.mark.native_backend
@pytest.mark.slow
def test_ranks_of_a_set_on_two_nodes(project):
    project.write("tests/test_nodes.py", SUITE)
    path = project.root / "pyproject.toml"
    text = path.read_text(encoding="utf-8").replace("test_timeout = 3\ngrace", "test_timeout = 60\ngrace")
    path.write_text(text.replace("timeout = 90", "timeout = 300"), encoding="utf-8")
    address = f"127.0.0.1:{find_free_port()}"
    agent = start_agent(project, address)
    ran = project.run("ranks", "--nodes", "2", "--listen", address, environ=SECRET, limit=280)
    assert ran.outcomes == {
        "test_reduce": "passed", "test_fails": "failed", "test_after_a_failure": "passed", "test_crashes": "crashed",
        "test_after_a_crash": "passed", "test_uneven": "infrastructure",
    }, ran.output  # fmt: skip
    assert "rank 1 failed: assert 1 == 0" in ran.results["test_fails"]["reason"]
    assert "has 3 ranks, which 2 nodes cannot share evenly" in ran.results["test_uneven"]["reason"]
    assert ran.code == 3
    agent.communicate(timeout=20)
    assert agent.returncode == 0
    assert project.living() == set()


@pytest.mark.cpu
@pytest.mark.slow
def test_several_nodes_need_an_address_and_a_secret(project):
    project.write("tests/test_nodes.py", "def test_a(): pass\n")
    for words, environ in ((("--nodes", "2"), SECRET), (("--nodes", "2", "--listen", "127.0.0.1:1"), {})):
        child = project.start("ranks", *words, environ=environ)
        output, _ = child.communicate(timeout=30)
        assert child.returncode == 2
        assert "needs --listen HOST:PORT and a secret in LOCKGATE_TOKEN" in output


@pytest.mark.cpu
@pytest.mark.slow
@pytest.mark.parametrize(("words", "environ", "message"), [
    ((), SECRET, "expected one word, HOST:PORT"),
    (("127.0.0.1:1",), {}, "LOCKGATE_TOKEN is not set"),
])  # fmt: skip
def test_a_wrong_agent_command_is_a_clear_error(project, words, environ, message):
    command = [sys.executable, "-m", "ci.running.agent", *words]
    done = subprocess.run(
        command, cwd=project.root, env=project.environ(environ), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
