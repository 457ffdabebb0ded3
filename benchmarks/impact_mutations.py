# ruff: noqa: E501, PLR0913, SIM102 - prompts and tables of a benchmark are one line
"""Mutants of a real project: who misses failing tests, who selects how many, beside pytest-testmon in the same run.

    python benchmarks/impact_mutations.py PATH --mutants 20 --directed 10 --reversed 5

PATH is a git clone of a pure-Python project whose tests run from its root. It
is cloned; nothing in it changes. Kinds: `body` (random functions), `module`
(random statements at module or class level), `directed` (functions that run
while modules are imported, or whose results are kept), `reversed` (the source
part of a recent commit, taken back).
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

import ci
from ci.cli import Parser
from ci.context import Context
from ci.impact import command
from ci.impact.plan import Decision, Plan
from ci.impact.verify import find_missed
from ci.impact.witness import VARIABLE
from ci.manifest import command as manifest_command
from ci.output import Output

TOOL = Path(ci.__file__).parents[1]
KEEPERS = ("cache", "lru_cache", "cached_property", "internalcode", "memoize")

PEER_PLUGIN = """
import json, os, pytest
from testmon.testmon_core import TestmonData

whole = TestmonData.get_tests_fingerprints

def without_bare_names(self, nodes_files_lines, reports):
    nodes = {node: {name: lines for name, lines in files.items() if "." in name} for node, files in nodes_files_lines.items()}
    return whole(self, nodes, reports)

# testmon 2.2 stops with IndexError at an executed file without a suffix (jinja has such a template).
TestmonData.get_tests_fingerprints = without_bare_names

def pytest_collection_finish(session):
    if "PEER_CHOICE" in os.environ:
        with open(os.environ["PEER_CHOICE"], "w") as stream:
            json.dump([item.nodeid for item in session.items], stream)
        pytest.exit("chosen", 0)
"""

IMPORT_PROBE = """
import json, runpy, sys
seen = set()
def note(frame, event, argument):
    if event == "call":
        code = frame.f_code
        seen.add((code.co_filename, code.co_firstlineno))
sys.setprofile(note)
import pytest
pytest.main(["-q", "--collect-only", "-p", "no:cacheprovider", *sys.argv[2:]])
sys.setprofile(None)
json.dump(sorted(seen), open(sys.argv[1], "w"))
"""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change to a clean tree: new texts by path."""

    kind: str
    name: str
    files: dict[str, str]


@dataclass(kw_only=True)
class Tally:
    """What one kind of mutants showed."""

    mutants: int = 0
    failing: int = 0
    missed: int = 0
    peer_missed: int = 0
    shares: list[float] = field(default_factory=list)
    peer_shares: list[float] = field(default_factory=list)
    everything: int = 0


class Trial:
    """A clone of the project, with the commands that are compared."""

    def __init__(self, source: Path, folder: Path, *, tests: Sequence[str], mentioned: bool) -> None:
        """Clone `source` into `folder` and write what the comparison needs beside it."""
        self.root, self.folder, self.tests = folder / "project", folder, list(tests)
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(source), str(self.root)], check=True)
        self.git("config", "user.email", "bench@example.invalid")
        self.git("config", "user.name", "bench")
        with (self.root / ".git/info/exclude").open("a") as stream:
            stream.write(".lockgate\n.testmondata*\n.pytest_cache\n")
        if mentioned:
            with (self.root / "pyproject.toml").open("a") as stream:
                stream.write("\n[tool.lockgate.stages.unit]\nmentioned_names = true\n")
            self.git("commit", "--quiet", "--all", "-m", "row")
        self.base = self.git("rev-parse", "HEAD")
        # A copy: editing the tool while a long comparison runs must not change what is compared.
        shutil.copytree(TOOL / "ci", folder / "tool" / "ci", ignore=shutil.ignore_patterns("__pycache__"))
        self.environ = {
            **os.environ, "PYTHONPATH": os.pathsep.join((str(self.root / "src"), str(self.root), str(folder / "tool"))),
            "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0", "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
        }  # fmt: skip
        (folder / "peer").mkdir()
        (folder / "peer" / "peer_choice.py").write_text(PEER_PLUGIN)
        self.environ["PYTHONPATH"] += os.pathsep + str(folder / "peer")
        self.manifest = folder / "manifest.sqlite"
        self.peer_data = folder / "testmondata"

    def git(self, *words: str) -> str:
        """Run git in the clone."""
        return subprocess.run(["git", *words], cwd=self.root, capture_output=True, text=True, check=True).stdout.strip()

    def pytest(self, *words: str, limit: float = 600, **environ: str) -> tuple[subprocess.CompletedProcess[str], float]:
        """Run pytest; gives what it left and its CPU seconds, children included."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *words, *self.tests],
            cwd=self.root, env={**self.environ, **environ}, capture_output=True, text=True, check=False, timeout=limit,
        )  # fmt: skip
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return done, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def failures(self, *words: str, limit: float = 600) -> tuple[frozenset[str], int, float]:
        """Run in full; gives failing ids, how many ran, CPU seconds."""
        out = self.folder / "witness.json"
        out.unlink(missing_ok=True)
        done, seconds = self.pytest("-p", "ci.impact.witness", *words, limit=limit, **{VARIABLE: str(out)})
        if not out.exists():
            raise RuntimeError(f"pytest could not start: {(done.stderr or done.stdout)[-500:]}")
        document = json.loads(out.read_text())
        return frozenset(document["failed"]), document["ran"], seconds

    def record(self) -> float:
        """Record and build the manifest; gives CPU seconds."""
        run = self.folder / "record"
        done, seconds = self.pytest(
            "-p", "ci.manifest.plugin", LOCKGATE_RECORD_DIR=str(run), LOCKGATE_RECORD_STAGE="unit"
        )
        code, text = self.lockgate(manifest_command, "build", "unit", "--run", str(run), "--out", str(self.manifest))
        if code:
            raise RuntimeError(f"the manifest is not complete: {text}\n{done.stdout[-500:]}")
        print(text.strip())
        return seconds

    def lockgate(self, module: Any, *words: str) -> tuple[int, str]:
        """Run one command in this process; gives its code and its words."""
        stream = io.StringIO()
        console = Console(file=stream, width=240)
        context = Context(
            root=self.root,
            cwd=self.root,
            environ=self.environ,
            out=Output(stdout=console, stderr=console),
            clock=time.time,
        )
        parser = Parser(prog="lockgate")
        module.add_arguments(parser)
        return module.run(parser.parse_args(list(words)), context), stream.getvalue()

    def plan(self) -> Plan:
        """Plan the work tree as it lies there."""
        parser = Parser(prog="lockgate")
        command.add_arguments(parser)
        words = ["unit", "--manifest", str(self.manifest), "--base", self.base]
        console = Console(file=io.StringIO())
        context = Context(
            root=self.root,
            cwd=self.root,
            environ=self.environ,
            out=Output(stdout=console, stderr=console),
            clock=time.time,
        )
        return command.make_plan(parser.parse_args(words), context)

    def peer_record(self) -> float:
        """Build testmon's database; gives CPU seconds."""
        done, seconds = self.pytest("--testmon", "-p", "peer_choice", TESTMON_DATAFILE=str(self.peer_data))
        if not self.peer_data.exists() or "INTERNALERROR" in done.stdout + done.stderr:
            raise RuntimeError(f"testmon did not finish: {(done.stdout + done.stderr)[-500:]}")
        return seconds

    def peer_selects(self) -> frozenset[str]:
        """Ask a copy of testmon's database what it would run."""
        copy = self.folder / "testmondata-copy"
        for path in (copy, Path(f"{copy}-wal"), Path(f"{copy}-shm")):
            path.unlink(missing_ok=True)
        for path in self.folder.glob(f"{self.peer_data.name}*"):
            if not path.name.startswith(copy.name):
                shutil.copy(path, path.with_name(path.name.replace(self.peer_data.name, copy.name)))
        out = self.folder / "peer.json"
        out.unlink(missing_ok=True)
        # With --collect-only testmon selects nothing away, so the run is ended once it has chosen.
        self.pytest(
            "--testmon", "--testmon-forceselect", "-p", "peer_choice", TESTMON_DATAFILE=str(copy), PEER_CHOICE=str(out)
        )
        if not out.exists():
            raise RuntimeError("testmon did not get to choose")
        return frozenset(json.loads(out.read_text()))

    def write(self, mutant: Mutant) -> None:
        """Apply a mutant."""
        for path, text in mutant.files.items():
            (self.root / path).write_text(text, encoding="utf-8")

    def restore(self) -> None:
        """Make the tree clean again."""
        self.git("checkout", "--quiet", "--force", self.base)
        self.git("clean", "--quiet", "-fd")


def random_mutants(trial: Trial, *, count: int, draw: random.Random, kind: str, wanted: Any) -> Iterator[Mutant]:
    """Mutate random nodes of the sources; `wanted(path, owner)` says which places count."""
    places = []
    for path in trial.git("ls-files", "src").splitlines():
        if path.endswith(".py"):
            text = (trial.root / path).read_text(encoding="utf-8")
            for place, (owner, _) in enumerate(sites(ast.parse(text))):
                if wanted(path, owner):
                    places.append((path, place))
    draw.shuffle(places)
    made = 0
    for path, place in places:
        if made == count:
            return
        text = (trial.root / path).read_text(encoding="utf-8")
        tree = ast.parse(text)
        owner, node = list(sites(tree))[place]
        if not mutate(node, draw):
            continue
        changed = ast.unparse(ast.fix_missing_locations(tree))
        if ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text)):
            made += 1
            name = f"{path}:{getattr(node, 'lineno', 0)} {type(node).__name__} in {owner.name if owner else '<module>'}"
            yield Mutant(kind=kind, name=name, files={path: changed})


def sites(tree: ast.Module) -> Iterator[tuple[Any, ast.AST]]:
    """Give (innermost function or None, node) for every node that can be mutated."""

    def walk(node: ast.AST, owner: Any) -> Iterator[tuple[Any, ast.AST]]:
        inside = node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else owner
        for name, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    # Decorators, defaults and annotations run where the function is defined.
                    place = inside if name == "body" or node is not inside else owner
                    if isinstance(
                        child, ast.Constant | ast.Compare | ast.BoolOp | ast.BinOp | ast.Return | ast.If | ast.Assign
                    ):
                        if not (isinstance(child, ast.Constant) and isinstance(node, ast.Expr | ast.JoinedStr)):
                            yield place, child
                    yield from walk(child, place)

    yield from walk(tree, None)


def mutate_constant(node: ast.Constant) -> bool:
    """Change a constant's value in place; some kinds are left alone."""
    if isinstance(node.value, bool):
        node.value = not node.value
    elif isinstance(node.value, int):
        node.value += 1
    elif isinstance(node.value, str) and node.value:
        node.value += "X"
    elif node.value is None:
        node.value = 0
    else:
        return False
    return True


def mutate(node: ast.AST, draw: random.Random) -> bool:
    """Change one node's meaning in place."""
    if isinstance(node, ast.Constant):
        return mutate_constant(node)
    if isinstance(node, ast.Compare):
        swap = {ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.GtE: ast.Lt,
                ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}  # fmt: skip
        node.ops[0] = swap[type(node.ops[0])]()
    elif isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif isinstance(node, ast.BinOp):
        node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
    elif isinstance(node, ast.Return):
        if node.value is None:
            return False
        node.value = ast.Constant(value=None)
    elif isinstance(node, ast.If):
        node.test = ast.UnaryOp(op=ast.Not(), operand=node.test)
    elif isinstance(node, ast.Assign):
        node.value = ast.Constant(value=draw.choice([None, 0]))
    return True


def import_time(trial: Trial) -> set[tuple[str, int]]:
    """Find the functions of the sources that run while the tests are collected."""
    out = trial.folder / "imports.json"
    subprocess.run(
        [sys.executable, "-c", IMPORT_PROBE, str(out), *trial.tests],
        cwd=trial.root,
        env=trial.environ,
        capture_output=True,
        check=False,
    )
    found = set()
    for name, line in json.loads(out.read_text()):
        if name.startswith(str(trial.root)):
            found.add((os.path.relpath(name, trial.root), line))
    return found


def reversed_commits(trial: Trial, *, count: int, depth: int = 400) -> Iterator[Mutant]:
    """Take back the source part of recent commits, where git still can."""
    made = 0
    for commit in trial.git("rev-list", "--no-merges", f"--max-count={depth}", "HEAD", "--", "src").split():
        if made == count:
            return
        patch = subprocess.run(
            ["git", "diff", f"{commit}^", commit, "--", "src"], cwd=trial.root, capture_output=True, check=False
        ).stdout
        done = subprocess.run(["git", "apply", "-R"], cwd=trial.root, input=patch, capture_output=True, check=False)
        if done.returncode == 0 and patch:
            changed = trial.git("diff", "--name-only").splitlines()
            files = {path: (trial.root / path).read_text() for path in changed if (trial.root / path).exists()}
            complete = len(files) == len(changed) and not trial.git("ls-files", "--others", "--exclude-standard")
            trial.restore()
            if files and complete and any(path.endswith(".py") for path in files):
                made += 1
                yield Mutant(kind="reversed", name=trial.git("show", "-s", "--format=%h %s", commit), files=files)
        trial.restore()


def confirmed(trial: Trial, mutant: Mutant, names: Sequence[str], flaky: frozenset[str]) -> list[str]:
    """Keep the misses that fail again with the mutant and pass without it: the others are flaky."""
    names = [name for name in names if name not in flaky]
    if not names:
        return []
    try:
        again, _, _ = trial.failures(limit=900)
    except RuntimeError:
        return names
    trial.restore()
    clean, _, _ = trial.failures(limit=900)
    trial.write(mutant)
    return [name for name in names if name in again and name not in clean]


def judge(
    trial: Trial, mutant: Mutant, tally: Tally, *, broken: frozenset[str], limit: float, known: int, peer: bool
) -> None:
    """Try one mutant on both selectors."""
    trial.write(mutant)
    plan = trial.plan()
    try:
        failed, _, _ = trial.failures(limit=limit)
    except subprocess.TimeoutExpired:
        print(f"  left out, it hangs: {mutant.name}")
        return
    except RuntimeError:
        # Not even a conftest can be imported: every test is lost, if that is the mutant's doing.
        failed = frozenset(plan.skipped) | {item.id for item in plan.tests}
        trial.restore()
        trial.failures(limit=limit)
        trial.write(mutant)
    failed -= broken
    missed = confirmed(trial, mutant, find_missed(plan, failed), broken)
    share = 1.0 if plan.decision is Decision.ALL else plan.selected / known
    tally.mutants += 1
    tally.failing += len(failed)
    tally.missed += len(missed)
    tally.shares.append(share)
    tally.everything += plan.decision is Decision.ALL
    theirs = ""
    if peer:
        try:
            selected = trial.peer_selects()
        except RuntimeError:
            selected = failed
        # A file that cannot be collected is met by running any test of it.
        lost = {name for name in failed if not any(one == name or one.startswith(f"{name}::") for one in selected)}
        tally.peer_missed += len(lost)
        tally.peer_shares.append(len(selected) / known)
        theirs = f"; testmon {len(lost)} missed, {len(selected) / known:.0%}"
    reason = next((str(cause.reason) for cause in plan.causes), "-")
    print(
        f"  {mutant.kind:9} {len(failed):5} failed, {len(missed)} missed, {share:4.0%} ({reason}){theirs}; {mutant.name}",
        flush=True,
    )
    for name in missed[:5]:
        print(f"    MISSED {name}")


def main() -> None:
    """Record, mutate, compare, and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="a git clone of a project with its tests")
    parser.add_argument("--mutants", type=int, default=20, help="random ones, two thirds of them in bodies")
    parser.add_argument("--directed", type=int, default=10)
    parser.add_argument("--reversed", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-peer", action="store_true", help="leave testmon out")
    parser.add_argument("--mentioned-names", action="store_true", help="switch the row key on")
    parser.add_argument("--deselect", action="append", default=[], help="a test that does not pass here at all")
    parser.add_argument("tests", nargs="*", help="arguments for pytest")
    options = parser.parse_args()
    tests = [*options.tests, *(f"--deselect={name}" for name in options.deselect)]
    with tempfile.TemporaryDirectory(prefix="lockgate-mutants-") as name:
        trial = Trial(options.path.resolve(), Path(name), tests=tests, mentioned=options.mentioned_names)
        first, known, plain = trial.failures()
        second, _, plain_again = trial.failures()
        broken = first | second
        plain = min(plain, plain_again)
        recorded = trial.record()
        peer_recorded = trial.peer_record() if not options.no_peer else 0.0
        print(f"{known} tests, {len(broken)} fail without any mutant; CPU seconds: plain {plain:.1f}, "
              f"recording (one process per test) {recorded:.1f} (+{recorded / plain - 1:.0%}, "
              f"{(recorded - plain) / known * 1000:.0f} ms a test), testmon {peer_recorded:.1f}")  # fmt: skip
        draw = random.Random(options.seed)
        early = import_time(trial)

        def is_directed(path: str, owner: Any) -> bool:
            if owner is None:
                return False
            line = min([owner.lineno, *(item.lineno for item in owner.decorator_list)])
            kept = any(word in ast.unparse(item) for item in owner.decorator_list for word in KEEPERS)
            return kept or (path, line) in early

        bodies = round(options.mutants * 2 / 3)
        mutants = [
            *random_mutants(trial, count=bodies, draw=draw, kind="body", wanted=lambda _, owner: owner is not None),
            *random_mutants(
                trial, count=options.mutants - bodies, draw=draw, kind="module", wanted=lambda _, owner: owner is None
            ),
            *random_mutants(trial, count=options.directed, draw=draw, kind="directed", wanted=is_directed),
            *reversed_commits(trial, count=options.reversed),
        ]
        tallies: dict[str, Tally] = {}
        for mutant in mutants:
            judge(
                trial,
                mutant,
                tallies.setdefault(mutant.kind, Tally()),
                broken=broken,
                limit=max(60, plain * 20),
                known=known,
                peer=not options.no_peer,
            )
            trial.restore()
    print("\n| kind | mutants | failing | missed | mean selected | everything | testmon missed | testmon selected |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for kind, tally in tallies.items():
        count = max(1, tally.mutants)
        print(f"| {kind} | {tally.mutants} | {tally.failing} | {tally.missed} | {sum(tally.shares) / count:.0%} | {tally.everything} "
              f"| {tally.peer_missed} | {sum(tally.peer_shares) / count:.0%} |")  # fmt: skip


if __name__ == "__main__":
    main()
