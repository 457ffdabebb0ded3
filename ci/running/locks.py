"""One machine-wide kernel lock per device, held as long as any process that inherited it lives.

A lock is a `flock` on an open file named after the device's UUID. The kernel
frees it when the last copy of the descriptor is closed, so a tool that is killed
does not free a GPU on which its ranks still work: they inherit the descriptor
(`subprocess.Popen(pass_fds=held.descriptors)`). Nothing is written into the files
and nothing has to be cleaned up.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from ci.devices.probe import read_process_name
from ci.errors import InfrastructureError

FOLDER_VARIABLE = "LOCKGATE_LOCK_DIR"
HELD_VARIABLE = "LOCKGATE_HELD_DEVICES"
"""UUIDs that a process above has locked for this one: a run within a run does not wait for them."""

UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


H = TypeVar("H", bound="HeldDevices")


class HeldDevices:
    """Locks of some devices; released by `release`, or by the kernel when every inheritor is gone."""

    def __init__(self, descriptors: Mapping[str, int]) -> None:
        """Own one open descriptor per UUID."""
        self._descriptors = dict(descriptors)

    @property
    def uuids(self) -> tuple[str, ...]:
        """The devices whose lock is held."""
        return tuple(self._descriptors)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What the ranks must inherit."""
        return tuple(self._descriptors.values())

    def release(self) -> None:
        """Close the descriptors; a device stays locked while a rank holds its copy."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()

    def __enter__(self: H) -> H:
        """Give itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Release."""
        self.release()


def lock_folder(environ: Mapping[str, str]) -> Path:
    """Name the folder of the locks: the same for every user and run of this machine unless told otherwise.

    Containers that share GPUs must share this folder, or no lock can be seen across them.
    """
    return Path(environ.get(FOLDER_VARIABLE) or Path(tempfile.gettempdir(), "lockgate-devices"))


def try_lock(uuids: Sequence[str], *, environ: Mapping[str, str]) -> HeldDevices | None:
    """Lock all of these devices at once, or none and give None; never waits.

    Devices in `LOCKGATE_HELD_DEVICES` are taken as granted by the process above.
    """
    above = set(filter(None, environ.get(HELD_VARIABLE, "").split(",")))
    folder = lock_folder(environ)
    held: dict[str, int] = {}
    for uuid in sorted(set(uuids) - above):
        descriptor = _open(folder, uuid)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            HeldDevices(held).release()
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return None
            raise InfrastructureError(
                f"device {uuid} cannot be locked: {error.strerror}", hint=_hint(folder)
            ) from error
        held[uuid] = descriptor
    return HeldDevices(held)


@contextlib.contextmanager
def hold_free(uuids: Iterable[str], *, environ: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Hold every one of these devices that is free; gives those that others hold, with their holder.

    For a look at the devices: what two runs try on a device at once would be a
    foreign process to each other.
    """
    with contextlib.ExitStack() as stack:
        taken = []
        for uuid in uuids:
            held = try_lock([uuid], environ=environ)
            if held is None:
                taken.append(uuid)
            else:
                stack.enter_context(held)
        yield read_held(taken, environ=environ) if taken else {}


def name_held(environ: Mapping[str, str], uuids: Iterable[str]) -> str:
    """Give `LOCKGATE_HELD_DEVICES` for a process that works on these devices: a run in it need not wait for them."""
    above = filter(None, environ.get(HELD_VARIABLE, "").split(","))
    return ",".join(dict.fromkeys([*above, *uuids]))


def read_held(uuids: Iterable[str], *, environ: Mapping[str, str]) -> dict[str, str]:
    """Name the holder of each of these devices that another run has locked (UUID -> process)."""
    above = set(filter(None, environ.get(HELD_VARIABLE, "").split(",")))
    folder = lock_folder(environ)
    holders: dict[str, str] = {}
    for uuid in uuids:
        path = _path(folder, uuid)
        if uuid in above or not path.exists():
            continue
        descriptor = _open(folder, uuid)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holders[uuid] = _describe_holder(descriptor)
        finally:
            os.close(descriptor)
    return holders


def _open(folder: Path, uuid: str) -> int:
    path = _path(folder, uuid)
    try:
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o1777)
        # Without O_CREAT first: some kernels forbid that on another user's file in a shared folder, and
        # reading rights are enough for a flock.
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with contextlib.suppress(PermissionError):
            os.fchmod(descriptor, 0o644)
    except OSError as error:
        raise InfrastructureError(f"{path} cannot be opened: {error.strerror}", hint=_hint(folder)) from error
    return descriptor


def _path(folder: Path, uuid: str) -> Path:
    return folder / f"{UNSAFE.sub('_', uuid)}.lock"


def _hint(folder: Path) -> str:
    return f"{folder} must be a folder that every user of the GPUs may use; {FOLDER_VARIABLE} names another"


def _describe_holder(descriptor: int) -> str:
    inode = os.fstat(descriptor).st_ino
    for pid in _lockers(inode):
        if Path(f"/proc/{pid}").exists():
            return f"{read_process_name(pid)} (pid {pid})"
        return f"the ranks of a run that is gone (its pid was {pid})"
    return "a process that cannot be seen from here"


def _lockers(inode: int) -> Iterator[int]:
    """Find who took the flock on an inode in /proc/locks: `1: FLOCK  ADVISORY  WRITE 4242 00:2d:1234 0 EOF`."""
    try:
        lines = Path("/proc/locks").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        words = line.split()
        if len(words) > 5 and words[1] == "FLOCK" and words[5].rpartition(":")[2] == str(inode):
            yield int(words[4])
