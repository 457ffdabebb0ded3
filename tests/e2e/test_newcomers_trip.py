"""The whole trip of a user, as its users make it: the demonstration, the examples, a killed process."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("chdb")

pytestmark = [pytest.mark.native_backend, pytest.mark.hf, pytest.mark.e2e, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


def run(*command: str, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(cwd), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, *command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_the_demonstration_captures_reads_back_and_draws(tmp_path):
    done = run("-m", "monitoring.demo", "--out", "demo", "--tokens", "6", cwd=tmp_path)
    assert "bit-equal" in done.stdout
    assert "NOT equal" not in done.stdout
    assert "final_logits" in done.stdout
    assert (tmp_path / "demo" / "norms.png").read_bytes().startswith(b"\x89PNG")
    listing = run("-m", "monitoring", "list", "demo/store", cwd=tmp_path).stdout
    assert "complete" in listing
    assert "incomplete" not in listing
    run("-m", "monitoring", "check", "demo/store", cwd=tmp_path)
    done = run("-m", "monitoring.demo", "--out", "demo", "--store", "mysql://x/y", cwd=tmp_path, code=1)
    assert "hint:" in done.stderr
    done = run("-m", "monitoring.demo", "--tokens", "0", cwd=tmp_path, code=2)
    assert "--tokens is 0" in done.stderr


@pytest.mark.parametrize(
    ("name", "expected"),
    [("norm_drift", "drifted"), ("attention_map", "0 dropped + 0 failed"), ("distillation_dump", "divergence")],
)
def test_an_example_runs(name, expected, tmp_path):
    done = run(str(ROOT / "examples" / f"{name}.py"), cwd=tmp_path)
    assert expected in done.stdout


def test_a_killed_process_loses_what_was_not_flushed_and_the_reader_says_so(tmp_path):
    script = textwrap.dedent(
        """
        import sys, time, torch, monitoring
        model = torch.nn.Identity()
        watch = monitoring.watch(model, select="modules:*", store="store", run_id="killed")
        watch.open()
        for number in range(10):
            model(torch.full((4,), float(number)))
        watch.flush(30)
        model(torch.zeros(4))
        print("flushed", flush=True)
        time.sleep(600)
        """
    )
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "flushed"
        process.send_signal(signal.SIGKILL)
    done = run("-m", "monitoring", "check", "store", "--run", "killed", cwd=tmp_path, code=1)
    assert "was not closed" in done.stdout + done.stderr
    code = "import monitoring; print(len(monitoring.read('store', run='killed', allow_incomplete=True).rows))"
    kept = int(run("-c", code, cwd=tmp_path).stdout)
    assert kept in (10, 11)


def test_a_terminated_process_does_not_hang(tmp_path):
    script = textwrap.dedent(
        """
        import signal, sys, torch, monitoring
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        model = torch.nn.Identity()
        with monitoring.watch(model, select="modules:*", store="store", run_id="ended"):
            print("running", flush=True)
            while True:
                model(torch.zeros(4))
        """
    )
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "running"
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
    run("-m", "monitoring", "check", "store", "--run", "ended", cwd=tmp_path)
