"""What the way into the store costs, beside the two Python clients, and what coming back costs.

    python benchmarks/stores.py [--repeat 5] [--scale 1.0] [--json FILE]

One run measures all, on the same rows and the same private server (ClickHouse from
PATH), clients interleaved and their order turned from repeat to repeat; medians.

- insert: client CPU per row (`time.process_time`, all threads) and wall time, into
  ENGINE=Null and into the real table. Ours counts everything from `push` of a raw
  buffer on (copy into the ring, encoding, HTTP); the peers get ready-made column lists,
  so building them costs them nothing. clickhouse-driver speaks the native protocol,
  clickhouse-connect HTTP; neither compresses. clickhouse-connect's greeting does not
  understand a server as old as Debian's; it is skipped, its inserts are its own.
- memory: peak of the process over its state before the ring, against the configured
  bound, with a store ten times too slow and a store that does not answer at all.
- read: one row of 256 KiB out of the table, and out of the same with the default
  `index_granularity` of 8192.

Bars: drain CPU per 1 KiB row at most 0.4x clickhouse-driver; memory at most 1.1x.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import timezone
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from monitoring import devserver
from monitoring.native import load_native
from monitoring.rows import COLUMNS, RunRecord
from monitoring.store import open_store
from monitoring.store.schema import SORTING_KEY

MIB = 1 << 20
CASES = ((1024, 20_000, 1024), (262_144, 320, 32))
"""Bytes of a row, rows, rows of one batch of the peers."""

CPU_BAR, MEMORY_BAR = 0.4, 1.1
BOUND = 64 * MIB


@dataclass(frozen=True, kw_only=True)
class Cost:
    """One client on one case, in seconds; `drain` is the CPU of all threads but the one that pushes."""

    client: str
    engine: str
    row_bytes: int
    rows: int
    cpu: float
    drain: float
    wall: float


def main() -> int:
    """Measure and print; exit code 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the numbers of rows")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--memory-child", choices=("slow", "silent"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_child:
        print(json.dumps(measure_memory(options.memory_child)))
        return 0
    out = Console(width=None if sys.stdout.isatty() else 120)
    with devserver.running_server() as server:
        costs = measure_inserts(server, repeat=options.repeat, scale=options.scale, out=out)
        reads = measure_reads(server, repeat=options.repeat)
    memory = {kind: run_child(kind) for kind in ("slow", "silent")}
    missed = show(out, costs, reads, memory)
    if options.json:
        found = {"inserts": [asdict(cost) for cost in costs], "reads": reads, "memory": memory, "missed": missed}
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    return 1 if missed else 0


def measure_inserts(server: devserver.ServerInfo, *, repeat: int, scale: float, out: Console) -> list[Cost]:
    """Interleave the clients over all cases and engines."""
    found: dict[tuple[str, str, int], list[Cost]] = {}
    for engine in ("Null", "MergeTree"):
        for size, full, batch in CASES:
            count = max(batch, int(full * scale))
            payload = os.urandom(size * 64)
            clients: list[Callable[[str, int, int, int, bytes], Cost]] = [
                Ours(server).run, Driver(server).run, Connect(server).run,
            ]  # fmt: skip
            for turn in range(repeat + 1):
                for run in clients[turn % 3 :] + clients[: turn % 3]:
                    cost = run(engine, size, count, batch, payload)
                    if turn:  # the first round warms everything up
                        found.setdefault((cost.client, engine, size), []).append(cost)
            out.print(
                f"inserted {size} bytes x {count} into {engine}, {repeat} times with each client", highlight=False
            )
    return [
        Cost(
            client=client, engine=engine, row_bytes=size, rows=some[0].rows,
            cpu=statistics.median(one.cpu for one in some), drain=statistics.median(one.drain for one in some),
            wall=statistics.median(one.wall for one in some),
        )
        for (client, engine, size), some in found.items()
    ]  # fmt: skip


class Ours:
    """The native ring, drain, encoder and HTTP client."""

    def __init__(self, server: devserver.ServerInfo) -> None:
        """Remember the server."""
        self.url = server.url

    def run(self, engine: str, size: int, count: int, batch: int, payload: bytes) -> Cost:  # noqa: ARG002 - own batches
        """Push all rows and wait until the last is stored."""
        store = fresh_store(self.url, engine)
        record = RunRecord(run_id="r")
        ring = load_native().Ring(store.sink(record), run_id="r", model_id="m", capacity_bytes=BOUND, deadline=60.0)
        slot, request = ring.declare("resid_pre", 3, 0, "uint8"), ring.request("q0")
        source = ctypes.create_string_buffer(payload, len(payload))
        address = ctypes.addressof(source)
        push, shape = ring.push, (1, size)
        cpu, own, wall = time.process_time(), time.thread_time(), time.perf_counter()
        for token in range(count):
            push(slot, request, token, 0, token, token + 1, shape, address + size * (token % 64), size)
        stored = ring.flush(120.0)
        cpu, own, wall = time.process_time() - cpu, time.thread_time() - own, time.perf_counter() - wall
        assert stored, ring.last_error
        assert ring.stats()["written"] == count
        ring.close(5.0)
        store.close()
        return Cost(client="lockgate", engine=engine, row_bytes=size, rows=count, cpu=cpu, drain=cpu - own, wall=wall)


def columns_of(size: int, first: int, count: int, payload: bytes) -> list[list[Any]]:
    """Make the same rows as column lists, for the peers."""
    tokens = range(first, first + count)
    data = [payload[size * (token % 64) : size * (token % 64) + size] for token in tokens]
    same: dict[str, Any] = {"run_id": "r", "model_id": "m", "request_id": "q0", "site": "resid_pre", "layer": 3,
                            "shard_rank": 0, "call": 0, "dtype": "uint8", "shape": [1, size],
                            "inserted_at": 7}  # fmt: skip
    own = {"step": list(tokens), "seq": list(tokens), "token_start": list(tokens), "data": data,
           "token_end": [token + 1 for token in tokens]}  # fmt: skip
    return [own[name] if name in own else [same[name]] * count for name, _ in COLUMNS]


Columns = list[list[Any]]


def time_batches(
    insert: Callable[[Columns], object], size: int, count: int, batch: int, payload: bytes, *,
    ready: Callable[[Columns], Columns] = lambda columns: columns,
) -> tuple[float, float]:  # fmt: skip
    """Insert all rows in batches; seconds of CPU and wall time of the insert calls alone."""
    cpu = wall = 0.0
    for first in range(0, count, batch):
        columns = ready(columns_of(size, first, min(batch, count - first), payload))
        cpu_before, wall_before = time.process_time(), time.perf_counter()
        insert(columns)
        cpu += time.process_time() - cpu_before
        wall += time.perf_counter() - wall_before
    return cpu, wall


class Driver:
    """clickhouse-driver over the native protocol."""

    def __init__(self, server: devserver.ServerInfo) -> None:
        """Connect."""
        from clickhouse_driver import Client

        self.url = server.url
        self.client = Client("127.0.0.1", port=server.tcp_port, settings={"strings_as_bytes": True})

    def run(self, engine: str, size: int, count: int, batch: int, payload: bytes) -> Cost:
        """Insert all rows."""
        fresh_store(self.url, engine).close()
        encode = {name for name, kind in COLUMNS if kind == "String"}
        sql = f"INSERT INTO default.bench ({', '.join(name for name, _ in COLUMNS)}) VALUES"

        def insert(columns: list[list[Any]]) -> object:
            return self.client.execute(sql, columns, columnar=True)

        def ready(columns: list[list[Any]]) -> list[list[Any]]:
            return [
                [value.encode() for value in column] if name in encode and name != "data" else column
                for (name, _), column in zip(COLUMNS, columns, strict=True)
            ]

        cpu, wall = time_batches(insert, size, count, batch, payload, ready=ready)
        return Cost(
            client="clickhouse-driver", engine=engine, row_bytes=size, rows=count, cpu=cpu, drain=cpu, wall=wall
        )


class Connect:
    """clickhouse-connect over HTTP."""

    def __init__(self, server: devserver.ServerInfo) -> None:
        """Connect without the greeting, which an old server does not understand."""
        import clickhouse_connect
        from clickhouse_connect.datatypes.registry import get_from_name
        from clickhouse_connect.driver import client

        def greet(self: Any, _: object) -> None:
            self.server_version, self.server_settings, self.server_tz = "18.16.1", {}, timezone.utc

        setattr(client.Client, "_init_common_settings", greet)  # noqa: B010 - its private method, on purpose
        self.url = server.url
        self.client = clickhouse_connect.get_client(
            host="127.0.0.1", port=server.http_port, compress=False, autogenerate_session_id=False
        )
        self.types = [get_from_name(kind) for _, kind in COLUMNS]

    def run(self, engine: str, size: int, count: int, batch: int, payload: bytes) -> Cost:
        """Insert all rows."""
        fresh_store(self.url, engine).close()
        names = [name for name, _ in COLUMNS]

        def insert(columns: list[list[Any]]) -> object:
            return self.client.insert(
                "bench", columns, column_names=names, column_types=self.types, column_oriented=True, database="default"
            )

        cpu, wall = time_batches(insert, size, count, batch, payload)
        return Cost(
            client="clickhouse-connect", engine=engine, row_bytes=size, rows=count, cpu=cpu, drain=cpu, wall=wall
        )


def fresh_store(url: str, engine: str) -> Any:
    """Give an empty table `bench` of the wanted engine."""
    store: Any = open_store(f"{url}?table=bench&engine={engine}&timeout=120")
    for name in ("bench", "bench_runs"):
        store.execute(f"DROP TABLE IF EXISTS default.{name}")
    store.prepare()
    return store


def measure_reads(server: devserver.ServerInfo, *, repeat: int) -> dict[str, float]:
    """Milliseconds to read one row of 256 KiB, by where and how it is stored."""
    size, count = CASES[1][:2]
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, url in (("server", f"{server.url}?table=reading"), ("embedded", str(Path(folder) / "store"))):
            store: Any = open_store(url)
            store.prepare()
            ring = load_native().Ring(store.sink(RunRecord(run_id="r")), run_id="r", model_id="m", deadline=60.0)
            slot, request = ring.declare("resid_pre", 3, 0, "uint8"), ring.request("q0")
            payload = os.urandom(size)
            source = ctypes.create_string_buffer(payload, size)
            address = ctypes.addressof(source)
            for token in range(count):
                ring.push(slot, request, token, 0, token, token + 1, (1, size), address, size)
            assert ring.close(120.0)
            plain = store.tables.full(store.tables.captures)
            body = ", ".join(f"{column} {kind}" for column, kind in COLUMNS)
            coarse = f"{store.tables.database}.coarse"
            store.execute(
                f"CREATE TABLE {coarse} ({body}) ENGINE = ReplacingMergeTree() ORDER BY ({', '.join(SORTING_KEY)})"
                + (" SETTINGS index_granularity = 8192" if store.version < (19, 11) else
                   " SETTINGS index_granularity = 8192, index_granularity_bytes = 0, min_bytes_for_wide_part = 0")
            )  # fmt: skip
            store.execute(f"INSERT INTO {coarse} SELECT * FROM {plain}")
            for kind, table in (("index_granularity 32", plain), ("index_granularity 8192", coarse)):
                where = "run_id = 'r' AND request_id = 'q0' AND site = 'resid_pre' AND layer = 3 AND shard_rank = 0"
                times = []
                for turn in range(repeat + 1):
                    token = (turn * 37) % count
                    before = time.perf_counter()
                    wanted = f"SELECT data FROM {table} WHERE {where} AND token_start = {token}"
                    answer = store.execute(f"{wanted} FORMAT Native")
                    times.append(time.perf_counter() - before)
                    assert len(answer) > size
                found[f"{name}, {kind}"] = 1000 * statistics.median(times[1:])
            store.close()
    return found


def run_child(kind: str) -> dict[str, float]:
    """Measure memory in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--memory-child", kind], capture_output=True, text=True, check=True, timeout=300
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measure_memory(kind: str) -> dict[str, float]:
    """Push eight times the bound at a store that cannot take it; the peak over the state before, in bytes."""
    native = load_native()
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve_badly, args=(listener, kind), daemon=True).start()
    sink = native.HttpSink("127.0.0.1", listener.getsockname()[1], database="d", table="t", timeout=5.0)
    size = 256 * 1024
    payload = ctypes.create_string_buffer(os.urandom(size), size)
    before = resident()
    Path("/proc/self/clear_refs").write_text("5")
    ring = native.Ring(
        sink,
        run_id="r",
        model_id="m",
        capacity_bytes=BOUND,
        policy="drop_newest",
        retry_seconds=1.0,
        flush_seconds=0.05,
    )
    slot, request = ring.declare("resid_pre", 3, 0, "uint8"), ring.request("q0")
    for token in range(8 * BOUND // size):
        ring.push(slot, request, token, 0, token, token + 1, (1, size), ctypes.addressof(payload), size)
        if token % 64 == 0:
            time.sleep(0.02)
    ring.close(5.0)
    stats = ring.stats()
    lost = sum(stats["dropped"].values()) + sum(stats["failed"].values())
    assert stats["accepted"] == stats["written"] + lost, stats
    return {
        "peak": resident(peak=True) - before, "bound": BOUND, "accepted": stats["accepted"],
        "written": stats["written"], "lost": lost,
    }  # fmt: skip


def serve_badly(listener: socket.socket, kind: str) -> None:
    """Take requests at some 5 MiB a second and answer them, or never read them at all."""
    while True:
        link, _ = listener.accept()
        threading.Thread(target=serve_one, args=(link, kind), daemon=True).start()


def serve_one(link: socket.socket, kind: str) -> None:
    """Serve one connection badly."""
    while kind == "silent":
        time.sleep(1)
    with link, link.makefile("rb", buffering=0) as stream:
        head = b""
        while True:
            while b"\r\n\r\n" not in head:
                part = stream.read(4096)
                if not part:
                    return
                head += part
            head, _, body = head.partition(b"\r\n\r\n")
            lengths = [
                int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
            ]
            left = lengths[0] - len(body)
            while left > 0:
                part = stream.read(min(left, 262_144))
                if not part:
                    return
                left -= len(part)
                time.sleep(len(part) / (5 * MIB))
            head = b""
            link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


def resident(*, peak: bool = False) -> int:
    """Bytes of this process in memory, now or at its peak."""
    wanted = "VmHWM:" if peak else "VmRSS:"
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(wanted))


def show(
    out: Console, costs: Sequence[Cost], reads: dict[str, float], memory: dict[str, dict[str, float]]
) -> list[str]:
    """Print the tables; give the bars that were missed."""
    missed = []
    table = Table(title="insert (medians)")
    for name in ("engine", "row", "client"):
        table.add_column(name)
    for name in ("CPU us/row", "of driver's", "drain us/row", "of driver's", "wall MiB/s"):
        table.add_column(name, justify="right")
    for cost in sorted(costs, key=lambda one: (one.engine != "Null", one.row_bytes, one.cpu)):
        driver = next(
            one for one in costs
            if (one.client, one.engine, one.row_bytes) == ("clickhouse-driver", cost.engine, cost.row_bytes)
        )  # fmt: skip
        ratio = cost.drain / driver.cpu
        speed = cost.rows * cost.row_bytes / MIB / cost.wall
        table.add_row(
            cost.engine, f"{cost.row_bytes // 1024} KiB", cost.client, f"{1e6 * cost.cpu / cost.rows:.2f}",
            f"{cost.cpu / driver.cpu:.2f}x", f"{1e6 * cost.drain / cost.rows:.2f}", f"{ratio:.2f}x", f"{speed:.0f}",
        )  # fmt: skip
        if cost.client == "lockgate" and cost.row_bytes == CASES[0][0] and ratio > CPU_BAR:
            missed.append(f"drain CPU per 1 KiB row into {cost.engine}: {ratio:.2f}x, bar {CPU_BAR}x")
    out.print(table)
    for name, milliseconds in reads.items():
        out.print(f"read one row of 256 KiB: {name}: {milliseconds:.1f} ms", highlight=False)
    for kind, values in memory.items():
        ratio = values["peak"] / values["bound"]
        out.print(
            f"memory, {kind} store: peak {values['peak'] / MIB:.1f} MiB of {values['bound'] / MIB:.0f} MiB allowed:"
            f" {ratio:.3f}x; accepted {values['accepted']:.0f} = {values['written']:.0f} written"
            f" + {values['lost']:.0f} lost",
            highlight=False,
        )
        if ratio > MEMORY_BAR:
            missed.append(f"memory with a {kind} store: {ratio:.2f}x, bar {MEMORY_BAR}x")
    for line in missed:
        out.print(f"missed: {line}", style="red", highlight=False)
    return missed


if __name__ == "__main__":
    sys.exit(main())
