"""The environment variables that the project reads, written once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Variable:
    """One environment variable: who reads it and what it means."""

    name: str
    reader: str
    meaning: str


VARIABLES: tuple[Variable, ...] = (
    Variable(
        name="LOCKGATE_NATIVE", reader="`setup.py`", meaning="native part to build: `cpu` (default), `cuda` or `off`"
    ),
    Variable(name="SKIP_NATIVE_BUILD", reader="`setup.py`", meaning="`1` is the same as `LOCKGATE_NATIVE=off`"),
    Variable(name="CUDA_ARCHS", reader="`setup.py`", meaning="compute capabilities to build for, default `80;90`"),
    Variable(name="CUDACXX", reader="`setup.py`", meaning="the nvcc to use, if it is not on PATH"),
    Variable(
        name="CUDA_VISIBLE_DEVICES",
        reader="`lockgate run`, `lockgate doctor`",
        meaning="mask of devices: indices, UUIDs, UUID prefixes, MIG; always respected",
    ),
    Variable(
        name="LOCKGATE_RUNNER",
        reader="`lockgate run`",
        meaning="name of the stage whose own runner this machine is: undeclared skips turn it red",
    ),
    Variable(
        name="LOCKGATE_RECORD_DIR",
        reader="the recording plugin",
        meaning="where a recording run leaves its files; set by `--record`",
    ),
    Variable(
        name="LOCKGATE_RECORD_STAGE",
        reader="the recording plugin",
        meaning="the stage being recorded; set by `--record`",
    ),
    Variable(
        name="LOCKGATE_LOCK_DIR",
        reader="`lockgate run`",
        meaning="folder of the machine-wide device locks; containers that share GPUs must share it",
    ),
    Variable(
        name="LOCKGATE_HELD_DEVICES",
        reader="`lockgate run`",
        meaning="devices that the run above holds; set for ranks, so that a run inside a run does not wait for them",
    ),
    Variable(
        name="LOCKGATE_VERIFY",
        reader="`lockgate run`",
        meaning="`shallow`: no kernel and no all-reduce is tried, for suites that use GPUs without torch",
    ),
    Variable(name="GITHUB_OUTPUT", reader="`lockgate`", meaning="file for a job's outputs; set by the workflow runner"),
    Variable(
        name="GITHUB_STEP_SUMMARY", reader="`lockgate`", meaning="file for a job's summary; set by the workflow runner"
    ),
    Variable(name="GITHUB_ACTIONS", reader="`lockgate`", meaning="`true` adds annotations to warnings and errors"),
)
"""A test compares this table with the names found in the sources."""
