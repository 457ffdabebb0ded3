"""The invoke tasks run what they say they run, and nothing of their own."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from invoke import MockContext, Program
from invoke.collection import Collection

pytestmark = pytest.mark.cpu

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tasks():
    spec = importlib.util.spec_from_file_location("lockgate_tasks", ROOT / "tasks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Recorder(MockContext):
    """Keeps the command lines and the environment given with them."""

    def __init__(self):
        super().__init__(run=True, repeat=True)

    def lines(self):
        return [(call.args[0], call.kwargs.get("env", {})) for call in self.run.mock_calls if call.args]


def run(task, *arguments, **options):
    context = Recorder()
    task.body(context, *arguments, **options)
    return context.lines()


@pytest.mark.parametrize(
    ("name", "options", "command", "environ"),
    [
        (
            "build_native",
            {},
            "build_ext --inplace",
            {"LOCKGATE_NATIVE": "cpu", "LOCKGATE_SANITIZE": "", "LOCKGATE_DEBUG": ""},
        ),
        (
            "build_native",
            {"cuda": True, "debug": True},
            "build_ext --inplace",
            {"LOCKGATE_NATIVE": "cuda", "LOCKGATE_DEBUG": "1"},
        ),
        ("build_native", {"sanitize": "thread"}, "build_ext --inplace", {"LOCKGATE_SANITIZE": "thread"}),
        ("build_clickhouse", {}, "test_native --client-only", {"LOCKGATE_NATIVE": "cpu"}),
        ("test_native", {"sanitize": "address"}, "test_native", {"LOCKGATE_SANITIZE": "address"}),
        ("clean_native", {}, "clean_native", {}),
    ],
)
def test_build_tasks_call_setup_with_their_options(tasks, name, options, command, environ):
    ((line, given),) = run(getattr(tasks, name), **options)
    assert line == f"{sys.executable} setup.py -q {command}"
    assert environ.items() <= given.items()


@pytest.mark.parametrize(("name", "command"), [("doctor", "doctor"), ("audit", "audit"), ("docs", "docs")])
def test_the_rest_calls_the_command(tasks, name, command):
    ((line, _),) = run(getattr(tasks, name))
    assert line == f"{sys.executable} -m ci {command}"


def test_bench_runs_what_is_named_or_everything_there(tasks, monkeypatch, tmp_path):
    (tmp_path / "benchmarks").mkdir()
    for name in ("b.py", "a.py", "notes.txt"):
        (tmp_path / "benchmarks" / name).write_text("")
    monkeypatch.chdir(tmp_path)
    assert [line for line, _ in run(tasks.bench)] == [f"{sys.executable} benchmarks/{name}.py" for name in ("a", "b")]
    assert [line for line, _ in run(tasks.bench, only=["b"])] == [f"{sys.executable} benchmarks/b.py"]


def test_the_server_tasks_say_what_happened(tasks, monkeypatch, capsys):
    from types import SimpleNamespace

    from monitoring import devserver

    monkeypatch.setattr(devserver, "up", lambda: SimpleNamespace(url="clickhouse://127.0.0.1:1/default"))
    monkeypatch.setattr(devserver, "down", lambda: False)
    run(tasks.clickhouse_up)
    run(tasks.clickhouse_down)
    assert capsys.readouterr().out == "clickhouse://127.0.0.1:1/default\nnone was running\n"


def test_every_task_has_a_docstring_and_the_names_of_the_manual(tasks):
    collection = Collection.from_module(tasks)
    names = set(collection.task_names)
    assert {
        "build-clickhouse",
        "build-native",
        "test-native",
        "clean-native",
        "clickhouse-up",
        "clickhouse-down",
    } <= names
    assert {"doctor", "audit", "docs", "bench"} <= names
    for name in names:
        assert collection[name].__doc__, name


def test_an_unknown_flag_is_refused(tasks, capsys):
    program = Program(namespace=Collection.from_module(tasks))
    with pytest.raises(SystemExit):
        program.run("inv build-native --gpu", exit=True)
    assert "--gpu" in capsys.readouterr().err
