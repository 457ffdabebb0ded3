"""`python -m monitoring` as a person uses it: tables, JSON, pictures, exit codes, wrong arguments."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from monitoring.__main__ import main
from monitoring.rows import CLOSED, CaptureRow, RunRecord, encode_rows
from monitoring.store import open_store

pytest.importorskip("chdb")

pytestmark = pytest.mark.native_backend

Run = Callable[..., tuple[int, str, str]]


def rows_of(run: str) -> list[CaptureRow]:
    rows = []
    for step, (start, end) in enumerate(((0, 3), (3, 4))):
        for site, layer in (("resid_pre", 0), ("resid_pre", 1), ("pattern", 0)):
            count = end - start
            shape = (2, count, end) if site == "pattern" else (count, 4)
            size = shape[0] * shape[1] * (shape[2] if site == "pattern" else 1)
            rows.append(
                CaptureRow(
                    run_id=run, model_id="Tiny", request_id="q0", site=site, layer=layer, step=step, seq=len(rows),
                    token_start=start, token_end=end, dtype="uint8", shape=shape, data=bytes(range(size)),
                )
            )  # fmt: skip
    return rows


EXPECTED = (("resid_pre", 0), ("resid_pre", 1), ("pattern", 0))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[str]:
    """A store with an old complete run `old`, and a newer one `[new]` that lost its last record."""
    store = open_store(tmp_path / "store")
    store.prepare()
    for age, (run, lost) in enumerate((("old", 0), ("[new]", 1))):
        rows = rows_of(run)
        store.write_block(encode_rows(rows[: len(rows) - lost]))
        store.write_run(
            RunRecord(
                run_id=run, model_id="Tiny", state=CLOSED, started_at=(1 + age) * 10**18, finished_at=2 * 10**18,
                expected=EXPECTED, seq_end=6, accepted=6, written=6 - lost, failed=lost,
                losses={"failed:retry": lost} if lost else {}, details={"family": "tiny [x]"},
            )
        )  # fmt: skip
    yield str(tmp_path / "store")  # an open store keeps the engine up from command to command
    store.close()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*words: str) -> tuple[int, str, str]:
        code = main(words)
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def test_list(folder: str, run: Run) -> None:
    code, out, _ = run("list", folder)
    assert code == 0
    old, new = (next(line for line in out.splitlines() if name in line) for name in ("old", "[new]"))
    assert "complete" in old
    assert "1 gap(s)" in new or "gap(s)" in new
    values = json.loads(run("list", folder, "--json")[1])
    assert [(one["run_id"], one["state"], one["rows"]) for one in values] == [
        ("old", "complete", 6),
        ("[new]", "incomplete", 5),
    ]


def test_show(folder: str, run: Run) -> None:
    code, out, _ = run("show", folder)
    assert code == 0
    for piece in (
        "[new]", "resid_pre", "0-1", "uint8", "[1, 4] [3, 4]", "accepted 6 = 5 written + 0 dropped + 1 failed",
        "failed:retry 1", "family: tiny [x]", "seq 5", "pattern layer 0 lacks request q0 steps 1",
    ):  # fmt: skip
        assert piece in out
    assert json.loads(run("show", folder, "--run", "old", "--json")[1])["missing"] == []


def test_check_fails_on_an_incomplete_run(folder: str, run: Run) -> None:
    code, out, _ = run("check", folder)
    assert code == 1
    assert "pattern layer 0 lacks request q0 steps 1" in out
    code, out, _ = run("check", folder, "--run", "old")
    assert (code, out) == (0, "old: complete\n")
    assert json.loads(run("check", folder, "--json")[1])[0] == {"run_id": "old", "state": "complete", "missing": []}


def test_plot_draws_pngs(folder: str, run: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("torch")
    for kind in ("norms", "attention"):
        picture = tmp_path / f"{kind}.png"
        code, out, err = run("plot", folder, "--run", "old", "--kind", kind, "--out", str(picture))
        assert (code, out) == (0, f"wrote {picture}\n"), err
        assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("plot", "STORE"), 1, "is incomplete"),
        (("plot", "STORE", "--run", "old", "--request", "4"), 3, "expected 0 to 0"),
        (("plot", "STORE", "--run", "old", "--site", "q"), 3, "holds no q"),
        (("plot", "STORE", "--run", "old", "--site", "qq"), 3, "no such site"),
        (("plot", "STORE", "--run", "old", "--kind", "attention", "--layer", "7"), 3, "layer 7 has no pattern"),
        (("plot", "STORE", "--run", "old", "--out", "/no/where/x.png"), 3, "cannot be written"),
        (("show", "STORE", "--run", "other"), 3, "holds no run 'other'"),
        (("show", "nowhere"), 3, "there is no store at"),
        (("list", "clickhouse://u:s3cret-w0rd@127.0.0.1:1/d"), 3, "connection refused"),
        (("list", "ftp://u:s3cret-w0rd@h"), 3, "scheme 'ftp'"),
        (("prune", "STORE"), 2, "--keep"),
        (("prune", "STORE", "--older-than", "soon"), 2, "'soon'"),
        (("prune", "STORE", "--keep", "-1"), 2, "expected 0 or more"),
        (("prune", "STORE", "--run", "other"), 3, "holds no run other"),
        ((), 2, "COMMAND"),
        (("shw", "STORE"), 2, "invalid choice"),
        (("show", "STORE", "--rn", "x"), 2, "--rn"),
    ],
)
def test_mistakes_end_with_a_message_and_a_hint(
    folder: str, run: Run, words: tuple[str, ...], code: int, said: str
) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("torch")
    found, out, err = run(*[folder if word == "STORE" else word for word in words])
    assert found == code, err
    assert said in err
    assert "Traceback" not in err + out
    assert "s3cret" not in err + out
    assert "hint: " in err


def test_prune(folder: str, run: Run) -> None:
    assert run("prune", folder, "--keep", "1", "--dry-run")[1] == "would remove old\n"
    assert run("prune", folder, "--older-than", "1000d")[1] == "removed old\n"
    assert run("prune", folder, "--keep", "1")[1] == "nothing to remove\n"
    assert run("prune", folder, "--run", "[new]")[1] == "removed [new]\n"
    code, out, _ = run("list", folder)
    assert (code, "holds no run" in out) == (0, True)
    code, _, err = run("check", folder)
    assert (code, "holds no run" in err) == (3, True)


def test_as_a_program(folder: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "monitoring", "check", folder], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "[new]: incomplete" in done.stdout
