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
    Variable(name="LOCKGATE_SANITIZE", reader="`setup.py`", meaning="`thread` or `address`: build with that sanitizer"),
    Variable(
        name="LOCKGATE_DEBUG", reader="`setup.py`", meaning="`1` builds without optimisation, with debug information"
    ),
    Variable(
        name="LOCKGATE_BUILD_JOBS",
        reader="`setup.py`",
        meaning="parallel compile jobs; by default bounded by cores and memory",
    ),
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
        name="LOCKGATE_RUNNER_PROFILE",
        reader="`lockgate manifest`",
        meaning="name of the kind of runner, kept in a manifest; another kind never uses it",
    ),
    Variable(
        name="LOCKGATE_LOCK_DIR",
        reader="`lockgate run`",
        meaning="folder of the machine-wide device locks; containers that share GPUs must share it",
    ),
    Variable(
        name="LOCKGATE_VERIFY",
        reader="`lockgate run`",
        meaning="`shallow`: no kernel and no all-reduce is tried, for suites that use GPUs without torch",
    ),
    Variable(
        name="LOCKGATE_CLICKHOUSE",
        reader="guards, `monitoring.devserver`",
        meaning="the ClickHouse program to start for tests, instead of the one on PATH",
    ),
    Variable(
        name="LOCKGATE_PUBLISH",
        reader="`lockgate manifest publish`",
        meaning="`1` in the publisher's job alone: without it nothing is published",
    ),
    Variable(name="LOCKGATE_STAGE", reader="tests", meaning="the stage that runs; set by `lockgate run`"),
    Variable(
        name="LOCKGATE_SIMULATED",
        reader="tests, guards",
        meaning="the number of simulated devices; set by `--simulate`",
    ),
    Variable(
        name="LOCKGATE_RANK",
        reader="tests",
        meaning="the rank of this process; set for each rank beside torch's own variables",
    ),
    Variable(name="LOCKGATE_DEVICES", reader="tests", meaning="the devices of this rank; set for each rank"),
    Variable(
        name="LOCKGATE_TOKEN",
        reader="`python -m ci.running.agent`",
        meaning="the secret that a run over several nodes shares with its agents",
    ),
    Variable(
        name="LOCKGATE_HELD_DEVICES",
        reader="`lockgate run`",
        meaning="devices that the run above holds; set for ranks, so that a run inside a run does not wait for them",
    ),
    Variable(
        name="LOCKGATE_JOB",
        reader="the sessions of a run",
        meaning="the file that describes a session's job; set by `lockgate run`",
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
        name="LOCKGATE_RECORD_ISOLATION",
        reader="the recording plugin",
        meaning="`fork`: one fork per test, or an error; `shared`: all in one process; default: fork where possible",
    ),
    Variable(
        name="LOCKGATE_RECORD_ORDER",
        reader="the recording plugin",
        meaning="`reverse` runs the tests backwards, for a second recording where forking is impossible",
    ),
    Variable(
        name="LOCKGATE_RECORD_BRANCH",
        reader="the recording plugin",
        meaning="`1` records branches as well, for the coverage report",
    ),
    Variable(
        name="LOCKGATE_RECORD_CORE",
        reader="the recording plugin",
        meaning="the tracer to use: `lockgate-monitoring` (Python 3.12 and later) or `coverage-ctrace`",
    ),
    Variable(
        name="LOCKGATE_RECORD_CONTEXT",
        reader="the recording plugin",
        meaning="the test a child process belongs to; set for children",
    ),
    Variable(
        name="LOCKGATE_RECORD_ROOT",
        reader="the recording plugin",
        meaning="the repository being recorded; set for children",
    ),
    Variable(
        name="LOCKGATE_RECORD_QUIET",
        reader="the recording plugin",
        meaning="`0` lets a child say why it could not be recorded",
    ),
    Variable(
        name="LOCKGATE_WITNESS",
        reader="`lockgate replay`",
        meaning="file in which the real runs of a replay note which tests failed; set by `--verify`",
    ),
    Variable(name="LOCKGATE_FUZZ", reader="`setup.py`", meaning="`1` builds the fuzz targets as well (clang)"),
    Variable(name="GITHUB_OUTPUT", reader="`lockgate`", meaning="file for a job's outputs; set by the workflow runner"),
    Variable(
        name="GITHUB_STEP_SUMMARY", reader="`lockgate`", meaning="file for a job's summary; set by the workflow runner"
    ),
    Variable(name="GITHUB_ACTIONS", reader="`lockgate`", meaning="`true` adds annotations to warnings and errors"),
)
"""A test compares this table with the names found in the sources."""
