"""One file of JSON lines per process: it starts with `start` and, if all went well, ends with `end`."""

from __future__ import annotations

import json
import os
import time
from typing import Any

PREFIX = "journal-"
"""Journals of a record folder are `journal-<uid>.jsonl`."""


ENCODER = json.JSONEncoder(separators=(",", ":"))


class Journal:
    """Appends entries; a process that dies leaves a journal without its `end`."""

    def __init__(self, folder: str) -> None:
        """Choose a name of its own; nothing is written before `begin`."""
        self.folder = folder
        self.handle = -1
        self.uid = f"{os.getpid()}-{time.time_ns():x}-{os.urandom(3).hex()}"
        self.path = os.path.join(folder, f"{PREFIX}{self.uid}.jsonl")

    def write(self, kind: str, value: Any) -> None:
        """Append one entry, in one write, so that a kill cannot mix two."""
        data = (ENCODER.encode({kind: value}) + "\n").encode()
        if self.handle < 0:
            self.handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        while data:
            data = data[os.write(self.handle, data) :]
