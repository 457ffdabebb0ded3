"""A private ClickHouse server on loopback, for tests and for trying things out.

`running_server()` lends one for a block and removes it; `up()` and `down()`
(`invoke clickhouse-up`, `clickhouse-down`) keep one between commands. Its
configuration, data, logs and ports are its own: a system's server is never
touched, and nothing is left behind. Works from ClickHouse 18.16 (Debian) on.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from monitoring.errors import MissingDependency, StoreError
from monitoring.store.server import wait_until_up
from monitoring.store.url import StoreUrl

BINARIES = ("clickhouse-server", "clickhouse")
"""Looked for on PATH in this order; `LOCKGATE_CLICKHOUSE` names another one."""

SEARCH_ALSO = "/usr/sbin:/usr/local/sbin"
"""Debian installs the server where a person's PATH often does not lead."""

START_LIMIT = 30.0
STOP_LIMIT = 5.0
ATTEMPTS = 3
"""Free ports are found, then used: another process may take one in between."""

PR_SET_PDEATHSIG = 1

_CHILDREN: dict[int, subprocess.Popen[bytes]] = {}
"""Servers that this process started: it has to reap them."""

INSTALL_HINT = (
    "Debian and Ubuntu: apt-get install clickhouse-server; elsewhere https://clickhouse.com/docs/install; "
    "or set LOCKGATE_CLICKHOUSE to a clickhouse binary. A folder as the store (embedded engine) needs no server"
)


@dataclass(frozen=True, kw_only=True)
class ServerInfo:
    """A running private server; `folder` holds everything of it."""

    pid: int
    http_port: int
    tcp_port: int
    folder: Path
    binary: str

    @property
    def url(self) -> str:
        """The store URL of its default database."""
        return f"clickhouse://127.0.0.1:{self.http_port}/default"


def find_binary(environ: Mapping[str, str] | None = None, *, also: str = SEARCH_ALSO) -> str:
    """Find a server binary on PATH or in `also`; raises `MissingDependency` saying how to get one."""
    environ = os.environ if environ is None else environ
    chosen = environ.get("LOCKGATE_CLICKHOUSE", "")
    path = f"{environ.get('PATH', os.defpath)}:{also}"
    for name in (chosen,) if chosen else BINARIES:
        found = shutil.which(name, path=path)
        if found:
            return found
    looked = f"LOCKGATE_CLICKHOUSE={chosen}" if chosen else " or ".join(BINARIES)
    raise MissingDependency(f"no ClickHouse server was found ({looked})", hint=INSTALL_HINT)


@contextmanager
def running_server(folder: Path | None = None) -> Iterator[ServerInfo]:
    """Lend a server for a block; it ends with the block, or with this thread if that dies first.

    `folder` must be empty or absent; without one a temporary folder is used and removed.
    """
    place = Path(tempfile.mkdtemp(prefix="lockgate-clickhouse-")) if folder is None else folder
    info: ServerInfo | None = None
    try:
        info = start(place, tied=True)
        yield info
    finally:
        if info is not None:
            stop(info)
        if folder is None:
            shutil.rmtree(place, ignore_errors=True)


def up(folder: Path | None = None) -> ServerInfo:
    """Start a server that outlives this process, or give the one that `up` started before."""
    place = default_folder() if folder is None else folder
    info = read_info(place)
    if info is not None:
        return info
    _check_private(place)
    shutil.rmtree(place, ignore_errors=True)
    info = start(place, tied=False)
    # It outlives this process on purpose: nobody here waits for it, and Popen need not complain.
    _CHILDREN.pop(info.pid).returncode = 0
    return info


def down(folder: Path | None = None) -> bool:
    """Stop the server that `up` started and remove its folder; whether there was one."""
    place = default_folder() if folder is None else folder
    info = read_info(place)
    if info is not None:
        stop(info)
    if (place / "config.xml").is_file():
        shutil.rmtree(place, ignore_errors=True)
    return info is not None


def default_folder() -> Path:
    """Where `up` keeps its server: one per user."""
    return Path(tempfile.gettempdir()) / f"lockgate-clickhouse-{os.getuid()}"


def read_info(folder: Path) -> ServerInfo | None:
    """Read which server runs in a folder; None when none does (a stale note is no server)."""
    try:
        values = json.loads((folder / "server.json").read_text(encoding="utf-8"))
        info = ServerInfo(**{**values, "folder": Path(values["folder"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return info if _is_ours(info) else None


def start(folder: Path, *, tied: bool, ports: tuple[int, int] | None = None) -> ServerInfo:
    """Start a server in `folder` and wait until it answers; raises `StoreError` with its log's end.

    `tied`: the kernel ends it when the thread that called this ends. `ports`
    (HTTP, native) are chosen when none are given: to start a stopped one again,
    on the data that its folder holds, give its own.
    """
    binary = find_binary()
    folder = folder.resolve()
    for attempt in range(1, ATTEMPTS + 1):
        http_port, tcp_port = ports or _free_ports()
        _write_files(folder, http_port=http_port, tcp_port=tcp_port)
        arguments = [binary, *(["server"] if Path(binary).name == "clickhouse" else [])]
        arguments += [f"--config-file={folder / 'config.xml'}"]
        with (folder / "output.log").open("wb") as output:
            child = subprocess.Popen(
                arguments, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
                env={"PATH": os.environ.get("PATH", os.defpath), "TZ": "UTC", "HOME": str(folder)},
                preexec_fn=_death_signal() if tied else None,  # noqa: PLW1509 - one system call, no allocation
            )  # fmt: skip
        info = ServerInfo(pid=child.pid, http_port=http_port, tcp_port=tcp_port, folder=folder, binary=binary)
        if _wait(child, info):
            _CHILDREN[child.pid] = child
            note = {**asdict(info), "folder": str(folder)}
            (folder / "server.json").write_text(json.dumps(note), encoding="utf-8")
            return info
        _end(child.pid, child)
        log = _log_tail(folder)
        if ports or attempt == ATTEMPTS or "Address already in use" not in log:
            raise StoreError(f"{binary} did not answer within {START_LIMIT:g} s or ended:\n{log}", hint=INSTALL_HINT)
    raise AssertionError  # pragma: no cover - the loop returns or raises


def stop(info: ServerInfo) -> None:
    """End a server: SIGTERM, a grace, SIGKILL; returns when its process is gone."""
    child = _CHILDREN.pop(info.pid, None)
    if child is not None or _is_ours(info):
        _end(info.pid, child)
    (info.folder / "server.json").unlink(missing_ok=True)


def render_config(folder: Path, *, http_port: int, tcp_port: int) -> str:
    """Render `config.xml`: loopback only, every path inside `folder`, small caches, quiet."""
    place = escape(str(folder))
    return f"""<?xml version="1.0"?>
<yandex>
  <logger><level>warning</level><log>{place}/server.log</log><errorlog>{place}/error.log</errorlog></logger>
  <listen_host>127.0.0.1</listen_host>
  <http_port>{http_port}</http_port>
  <tcp_port>{tcp_port}</tcp_port>
  <path>{place}/data/</path>
  <tmp_path>{place}/scratch/</tmp_path>
  <user_files_path>{place}/files/</user_files_path>
  <format_schema_path>{place}/schemas/</format_schema_path>
  <users_config>{place}/users.xml</users_config>
  <default_profile>default</default_profile>
  <default_database>default</default_database>
  <mark_cache_size>67108864</mark_cache_size>
  <uncompressed_cache_size>0</uncompressed_cache_size>
  <max_concurrent_queries>100</max_concurrent_queries>
  <keep_alive_timeout>3</keep_alive_timeout>
  <timezone>UTC</timezone>
</yandex>
"""


def render_users() -> str:
    """Render `users.xml`: one user, no password, reachable from loopback alone."""
    return """<?xml version="1.0"?>
<yandex>
  <profiles><default><max_threads>2</max_threads><log_queries>0</log_queries></default></profiles>
  <users><default><password></password><profile>default</profile><quota>default</quota>
    <networks><ip>127.0.0.1</ip></networks></default></users>
  <quotas><default></default></quotas>
</yandex>
"""


def _write_files(folder: Path, *, http_port: int, tcp_port: int) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in ("data", "scratch", "files", "schemas"):
            (folder / name).mkdir(exist_ok=True)
        config = render_config(folder, http_port=http_port, tcp_port=tcp_port)
        (folder / "config.xml").write_text(config, encoding="utf-8")
        (folder / "users.xml").write_text(render_users(), encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{folder} cannot hold a server: {error.strerror}") from error


def _wait(child: subprocess.Popen[bytes], info: ServerInfo) -> bool:
    url = StoreUrl(scheme="clickhouse", host="127.0.0.1", port=info.http_port, options={"timeout": "2"})
    end = time.monotonic() + START_LIMIT
    while time.monotonic() < end and child.poll() is None:
        if wait_until_up(url, limit=0.2):
            return True
    return False


def _is_ours(info: ServerInfo) -> bool:
    """Whether the process runs our configuration: a number alone may be another process by now."""
    try:
        words = Path(f"/proc/{info.pid}/cmdline").read_bytes().split(b"\0")
        state = Path(f"/proc/{info.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return os.fsencode(f"--config-file={info.folder / 'config.xml'}") in words and state != "Z"


def _end(pid: int, child: subprocess.Popen[bytes] | None) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            break
        end = time.monotonic() + STOP_LIMIT
        while time.monotonic() < end and not _gone(pid, child):
            time.sleep(0.02)
        if _gone(pid, child):
            break


def _gone(pid: int, child: subprocess.Popen[bytes] | None) -> bool:
    if child is not None:
        return child.poll() is not None
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        for one in (first, second):
            one.bind(("127.0.0.1", 0))
        return int(first.getsockname()[1]), int(second.getsockname()[1])


def _log_tail(folder: Path) -> str:
    lines: list[str] = []
    for name in ("error.log", "output.log"):
        try:
            lines += (folder / name).read_text(encoding="utf-8", errors="replace").splitlines()[-8:]
        except OSError:
            continue
    return "\n".join(f"  {line[:300]}" for line in lines) or "  (it wrote no log)"


def _check_private(folder: Path) -> None:
    """Refuse a folder of somebody else: /tmp is everybody's."""
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return
    if found.st_uid != os.getuid() or folder.is_symlink() or not folder.is_dir():
        raise StoreError(f"{folder} belongs to somebody else or is no folder", hint="remove it, or give another folder")
    if any(folder.iterdir()) and not (folder / "config.xml").is_file():
        raise StoreError(f"{folder} holds files that are not a private server's", hint="give an empty folder")


def _death_signal() -> Callable[[], object] | None:
    """Give what a child runs before the server to end with its parent's thread (Linux); looked up before the fork."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    return None if prctl is None else lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
