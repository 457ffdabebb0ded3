"""What bringing rows to a ClickHouse server costs the capturing process, beside Python clients.

    python benchmarks/drain.py [--rounds 5]

One run measures all, on the same rows and the same private server (a ClickHouse from
PATH), into ENGINE=Null, interleaved; medians of client CPU seconds.

- drain: CPU of the whole process but for the pushing thread, per row, of the native
  drain with its own HTTP client; against the insert call of clickhouse-driver (native
  protocol) and clickhouse-connect (HTTP), which get ready-made columns.
- main thread: CPU of the thread that computes (a small matrix product between two
  records), per 1 KiB tensor: `Taps.take` into the ring, against a clone into a queue that
  a Python thread with clickhouse-driver empties; and how much longer its loop takes.

Bars: drain CPU per 1 KiB row at most 0.4x of clickhouse-driver; main-thread CPU per
1 KiB record at most 1/5 of the Python thread's way.
"""

from __future__ import annotations

import argparse
import ctypes
import queue
import statistics
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from typing import Any
from unittest import mock

import clickhouse_connect
import clickhouse_driver
import torch

from monitoring import devserver
from monitoring.native import load_native
from monitoring.rows import COLUMNS

DRAIN_BAR, MAIN_BAR = 0.4, 0.2
CASES = ((1024, 40_000, 2048), (262_144, 1000, 16))
"""Bytes of a row, rows, rows of a peer's batch (2 and 4 MiB, as the ring's)."""


def main() -> int:
    """Measure and print; 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each measurement (default 5)")
    rounds = parser.parse_args().rounds
    with devserver.running_server() as server:
        create_table(server.http_port)
        ratios = [measure_drain(server, *case, rounds) for case in CASES]
        main_ratio = measure_main_thread(server, rounds)
    met = {
        f"drain CPU per 1 KiB row at most {DRAIN_BAR}x of clickhouse-driver": ratios[0] <= DRAIN_BAR,
        f"main-thread CPU per 1 KiB record at most {MAIN_BAR}x of a Python thread's": main_ratio <= MAIN_BAR,
    }
    for text, is_met in met.items():
        sys.stdout.write(f"bar: {text}: {'met' if is_met else 'MISSED'}\n")
    return 0 if all(met.values()) else 1


def create_table(port: int) -> None:
    """Make the table that forgets."""
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS)
    sql = f"CREATE TABLE drain ({columns}) ENGINE = Null"
    urllib.request.urlopen(f"http://127.0.0.1:{port}/", data=sql.encode(), timeout=30).close()


def measure_drain(server: Any, nbytes: int, rows: int, batch: int, rounds: int) -> float:
    """Give the ratio of our drain's CPU to clickhouse-driver's."""
    driver = clickhouse_driver.Client("127.0.0.1", port=server.tcp_port, settings={"use_numpy": False})
    connect = make_connect(server)
    columns = peer_columns(nbytes, batch)
    names = [name for name, _ in COLUMNS]

    def ours() -> float:
        return drain_cpu(server.http_port, nbytes, rows)

    def with_driver() -> float:
        start = time.process_time()
        for _ in range(rows // batch):
            driver.execute(f"INSERT INTO drain ({', '.join(names)}) VALUES", columns, columnar=True)
        return (time.process_time() - start) / (rows // batch * batch)

    def with_connect() -> float:
        start = time.process_time()
        for _ in range(rows // batch):
            connect.insert_context = None
            connect.insert(
                "drain",
                columns,
                column_names=names,
                column_type_names=[kind for _, kind in COLUMNS],
                column_oriented=True,
            )
        return (time.process_time() - start) / (rows // batch * batch)

    costs = interleave(
        {"native drain": ours, "clickhouse-driver": with_driver, "clickhouse-connect": with_connect}, rounds
    )
    driver.disconnect()
    for name, seconds in costs.items():
        ratio = seconds / costs["clickhouse-driver"]
        sys.stdout.write(f"{nbytes >> 10:4} KiB rows  {name:18} {seconds * 1e6:9.2f} us CPU per row  {ratio:5.2f}x\n")
    return costs["native drain"] / costs["clickhouse-driver"]


def make_connect(server: Any) -> Any:
    """Make a clickhouse-connect client; it cannot greet a server as old as Debian's, so it is spared the greeting."""
    from clickhouse_connect.driver.httpclient import HttpClient

    def spare(self: Any, *_: object, **__: object) -> None:
        self.server_version = "18.16.1"

    with mock.patch.object(HttpClient, "_init_common_settings", spare):
        return clickhouse_connect.get_client(
            host="127.0.0.1", port=server.http_port, compress=False, autogenerate_session_id=False, query_limit=0
        )


def drain_cpu(port: int, nbytes: int, rows: int) -> float:
    """CPU seconds per row of all threads but this one, from the first push to the last answer."""
    native = load_native()
    sink = native.HttpSink("127.0.0.1", port, database="default", table="drain")
    ring = native.Ring(
        sink, run_id="bench" * 6, model_id="model", capacity_bytes=64 << 20, flush_seconds=0.1, deadline=60.0
    )
    slot, request = ring.declare("resid_pre", 3, 0, "uint8"), ring.request("request-0")
    memory = (ctypes.c_ubyte * nbytes)()
    place = ctypes.addressof(memory)
    whole, own = time.process_time(), time.thread_time()
    for step in range(rows):
        ring.push(slot, request, step, 0, 0, 1, (nbytes,), place, nbytes)
    ring.close(60.0)
    spent = (time.process_time() - whole) - (time.thread_time() - own)
    stats = ring.stats()
    assert stats["written"] == rows, stats
    return spent / rows


def peer_columns(nbytes: int, batch: int) -> list[list[Any]]:
    """One batch as the Python clients want it, made before the clock starts."""
    values: dict[str, Any] = {
        "run_id": "bench" * 6, "model_id": "model", "request_id": "request-0", "site": "resid_pre", "layer": 3,
        "shard_rank": 0, "step": 0, "seq": 0, "call": 0, "token_start": 0, "token_end": 1, "dtype": "uint8",
        "shape": [nbytes], "data": bytes(nbytes), "inserted_at": 1,
    }  # fmt: skip
    return [[values[name]] * batch for name, _ in COLUMNS]


def measure_main_thread(server: Any, rounds: int, records: int = 20_000) -> float:
    """Give the ratio of the producing thread's CPU per record, beyond what the loop itself computes."""
    torch.set_num_threads(1)
    weight, tensor = torch.eye(64), torch.zeros(1, 16, 16)
    bare: list[float] = []
    wall: dict[str, list[float]] = {"bare": [], "ring": [], "python": []}

    def loop(record: Callable[[], object], name: str) -> float:
        state = torch.ones(64, 64)
        begin, start = time.perf_counter(), time.thread_time()
        for _ in range(records):
            state = weight @ state
            record()
        spent = time.thread_time() - start
        wall[name].append(time.perf_counter() - begin)
        return spent / records

    def with_ring() -> float:
        bare.append(loop(lambda: None, "bare"))
        native = load_native()
        sink = native.HttpSink("127.0.0.1", server.http_port, database="default", table="drain")
        ring = native.Ring(sink, run_id="bench" * 6, model_id="model", flush_seconds=0.1, deadline=60.0)
        taps = native.Taps(ring, torch.Tensor.__dlpack_c_exchange_api__, torch.Tensor, 1)
        taps.bind(0, ring.declare("resid_pre", 3, 0, "float32"), 1, 2, 32)
        request = ring.request("request-0")
        plan = ring.plan(0, [(request, 0, 0, 16, 0)])
        take = taps.take
        taps.enter(plan, 1)
        cost = loop(lambda: take(0, tensor), "ring")
        ring.close(60.0)
        assert ring.stats()["written"] == records
        return cost - bare[-1]

    def with_python_thread() -> float:
        waiting: queue.SimpleQueue[torch.Tensor | None] = queue.SimpleQueue()
        thread = threading.Thread(target=drain_in_python, args=(server, waiting))
        thread.start()
        cost = loop(lambda: waiting.put(tensor.clone()), "python")
        waiting.put(None)
        thread.join()
        return cost - bare[-1]

    costs = interleave({"ring": with_ring, "python": with_python_thread}, rounds, turning=False)
    base = statistics.median(wall["bare"])
    for name, title in (("ring", "native ring"), ("python", "queue, Python thread, clickhouse-driver")):
        slower = statistics.median(wall[name]) / base
        line = f"{title:40} {costs[name] * 1e6:6.2f} us CPU per record, loop {slower:4.2f}x as long"
        sys.stdout.write(f"main thread  {line}\n")
    return costs["ring"] / costs["python"]


def drain_in_python(server: Any, waiting: queue.SimpleQueue[torch.Tensor | None], batch: int = 2048) -> None:
    """Insert what the queue gives, in batches, until it gives None."""
    client = clickhouse_driver.Client("127.0.0.1", port=server.tcp_port)
    names = [name for name, _ in COLUMNS]
    whole = peer_columns(1024, batch)
    held: list[bytes] = []
    while True:
        item = waiting.get()
        if item is not None:
            held.append(item.numpy().tobytes())
        if len(held) == batch or (item is None and held):
            columns = [
                held if name == "data" else column[: len(held)] for name, column in zip(names, whole, strict=True)
            ]
            client.execute(f"INSERT INTO drain ({', '.join(names)}) VALUES", columns, columnar=True)
            held = []
        if item is None:
            client.disconnect()
            return


def interleave(actions: dict[str, Callable[[], float]], rounds: int, *, turning: bool = True) -> dict[str, float]:
    """Run each action once per round; medians of what they give."""
    values: dict[str, list[float]] = {name: [] for name in actions}
    names = list(actions)
    for turn in range(rounds):
        first = turn % len(names) if turning else 0
        for name in names[first:] + names[:first]:
            values[name].append(actions[name]())
    return {name: statistics.median(found) for name, found in values.items()}


if __name__ == "__main__":
    sys.exit(main())
