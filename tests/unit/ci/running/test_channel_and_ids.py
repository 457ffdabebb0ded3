from __future__ import annotations

import socket
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from ci.report.model import DeviceRecord
from ci.running.backend import choose_backend, rank_arguments
from ci.running.channel import Channel, connect, find_free_port, listen, name_address
from ci.running.fleet import Fleet
from ci.running.job import Job, parse_job
from ci.running.rankset import Member, compare_ids
from ci.running.stacks import trim_stacks
from ci.stages.model import Launch, Stage

pytestmark = pytest.mark.cpu


@pytest.fixture
def wire():
    here, there = map(Channel, socket.socketpair())
    yield here, there
    here.close()
    there.close()


def test_messages_arrive_whole_and_in_order(wire):
    here, there = wire
    big = "x" * 200_000
    here.send({"say": "one"})
    assert there.receive() == {"say": "one"}
    sender = threading.Thread(target=lambda: [here.send({"say": big}), here.send({"say": "last"})])
    sender.start()
    assert there.receive() == {"say": big}
    assert there.receive() == {"say": "last"}
    sender.join()


def test_what_is_there_already_is_read_without_waiting(wire):
    here, there = wire
    assert there.receive_rest() == []
    assert not there.closed
    here.send({"say": "one"})
    here.send({"say": "two"})
    here.close()
    assert there.receive_rest() == [{"say": "one"}, {"say": "two"}]
    assert there.closed


def test_a_rank_that_has_exited_is_heard_out_before_it_is_judged(wire, tmp_path):
    """It was taken for crashed when it ended between the wait for its wire and the look at its process."""
    here, there = wire
    here.send({"say": "ended", "late": [], "error": ""})
    here.close()
    member = Member(rank=0, log=tmp_path / "log", channel=there, process=SimpleNamespace(exitcode=0))
    fleet = SimpleNamespace(sets=[SimpleNamespace(members=[member])], _forget=lambda member: None)
    fleet._take = lambda member, message: Fleet._take(fleet, member, message)
    assert member.has_exited
    assert member.ended is None
    Fleet._hear_out(fleet)
    assert member.ended == {"say": "ended", "late": [], "error": ""}
    assert there.closed


def test_several_messages_of_one_read_and_the_part_of_the_next():
    left, right = socket.socketpair()
    there = Channel(right)
    with left:
        left.sendall(b'{"a": 1}\n{"a": 2}\n{"a"')
        assert there.receive_ready() == [{"a": 1}, {"a": 2}]
        left.sendall(b": 3}\n")
        assert there.receive_ready() == [{"a": 3}]
    there.close()


def test_a_closed_end_is_told_and_sending_to_it_is_no_error(wire):
    here, there = wire
    here.close()
    assert there.receive() is None
    assert there.closed
    for _ in range(3):
        there.send({"say": "anyone?"})


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_both_kinds_of_address(kind, tmp_path):
    server = listen(f"unix:{tmp_path}/s" if kind == "unix" else "127.0.0.1:0")
    channel = connect(name_address(server), limit=2.0)
    other = Channel(server.accept()[0])
    channel.send({"say": "hello"})
    assert other.receive() == {"say": "hello"}
    for end in (channel, other, server):
        end.close()


def test_a_free_port_can_be_bound():
    with socket.create_server(("127.0.0.1", find_free_port())):
        pass


def member(rank: int, *ids: str, errors: tuple[str, ...] = ()) -> Member:
    return Member(rank=rank, log=Path("log"), ids=ids, errors=errors)


def test_equal_ids_in_any_order_are_no_problem():
    assert compare_ids(["a", "b"], ["a", "b"], [member(0, "a", "b"), member(1, "b", "a")]) == []


def test_a_missing_id_names_the_rank_and_why():
    found = compare_ids(
        ["a", "b"], ["a", "b"], [member(0, "a", "b"), member(1, "a", errors=("t.py: x\nNameError: y",))]
    )
    assert found == ["rank 1 did not collect b (NameError: y)"]


def test_an_extra_id_names_the_rank_and_one_that_all_ranks_have_is_none():
    assert compare_ids(["a"], ["a"], [member(0, "a"), member(1, "a", "c")]) == [
        "rank 1 collected more than the controller: c"
    ]
    assert compare_ids(["a"], ["a"], [member(0, "a", "c"), member(1, "a", "c")]) == []


def test_long_lists_are_cut():
    found = compare_ids([f"t{n}" for n in range(9)], [], [member(0)])
    assert found == ["rank 0 did not collect t0, t1, t2, t3, t4 and 4 more"]


def test_ranks_get_the_controllers_arguments_without_its_reports_and_choices():
    given = [
        "-p",
        "ci.running.session",
        "-p",
        "mine",
        "-m",
        "cpu",
        "--junitxml",
        "a.xml",
        "--lf",
        "--junit-xml=b",
        "-x",
        "tests",
    ]
    assert rank_arguments(given)[:7] == ("-p", "mine", "-m", "cpu", "-x", "tests", "--capture=no")


def test_backends():
    device = DeviceRecord(uuid="GPU-1", index=0, name="x")
    plain = Job(run_id="r", folder="f", stage=Stage(name="s"))
    assert choose_backend(Job(run_id="r", folder="f", stage=Stage(name="s"), process_group="none")) == ""
    assert choose_backend(Job(run_id="r", folder="f", stage=Stage(name="s"), process_group="nccl")) == "nccl"
    assert choose_backend(plain) in ("gloo", "")  # "" where torch is not installed
    real = Job(run_id="r", folder="f", stage=Stage(name="s"), devices=(device,))
    assert choose_backend(real) in ("nccl", "")


def test_a_job_survives_its_file():
    stage = Stage(name="s", launch=Launch.DYNAMIC, allow_skips=("a", "b"), timeout=7.5)
    device = DeviceRecord(uuid="GPU-1", index=0, name="x", memory=1 << 35)
    job = Job(run_id="r", folder="f", stage=stage, devices=(device,), done=("t::a",), shard="1/2", preload=())
    assert parse_job(job.dump()) == job


STACK = """Current thread 0x00007f (most recent call first):
  File "/repo/tests/test_a.py", line 3 in helper
  File "/repo/tests/test_a.py", line 9 in test_a
  File "/lib/_pytest/python.py", line 187 in pytest_pyfunc_call
  File "/lib/pluggy/_execution.py", line 147 in _multicall

Thread 0x00007e (most recent call first):
  File "/lib/threading.py", line 327 in wait
after
"""


def test_stacks_end_where_pytest_begins_and_other_threads_stay_whole():
    assert (
        trim_stacks(STACK)
        == """Current thread 0x00007f (most recent call first):
  File "/repo/tests/test_a.py", line 3 in helper
  File "/repo/tests/test_a.py", line 9 in test_a
  (below: pytest)

Thread 0x00007e (most recent call first):
  File "/lib/threading.py", line 327 in wait
after
"""
    )


def test_an_idle_rank_is_told_in_a_line():
    text = """Current thread 0x00007f (most recent call first):
  File "/x/ci/running/channel.py", line 57 in _fill
  File "/x/ci/running/channel.py", line 38 in receive
"""
    assert trim_stacks(text).splitlines()[1:] == ["  (it has answered and waits)"]
