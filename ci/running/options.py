"""The command line of a run -> pytest's arguments. Pure but for looking whether a path exists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ci.errors import UsageError
from ci.stages.model import Stage

TAKES_VALUE = frozenset(
    {"-k", "-m", "-p", "-c", "-o", "-W", "-r", "--basetemp", "--capture", "--color", "--confcutdir", "--config-file"}
    | {"--cov", "--cov-config", "--cov-report", "--deselect", "--durations", "--ignore", "--ignore-glob"}
    | {"--import-mode", "--junit-xml", "--junitxml", "--log-cli-level", "--log-file", "--log-level", "--maxfail"}
    | {"--override-ini", "--rootdir", "--tb"}
)
"""pytest's options whose value may be the next word: that word is no path."""
NARROWING = ("-k", "--lf", "--last-failed", "--sw", "--stepwise", "--deselect", "--ignore", "--keyword")
INTERACTIVE = ("--pdb", "--trace")
FORBIDDEN = ("-n", "--numprocesses", "--dist", "--tx")


@dataclass(frozen=True, kw_only=True)
class PytestArguments:
    """What the pytest session is given; `narrowed` when a person asked for less than the whole stage."""

    words: tuple[str, ...]
    narrowed: bool
    stops_early: bool
    collects_only: bool = False


def compose_arguments(
    stage: Stage, rest: Sequence[str], *, root: Path, cwd: Path, exists: Callable[[Path], bool] = Path.exists
) -> PytestArguments:
    """Join a stage row and a person's own words into pytest's arguments.

    A person's `-m` narrows the row's selection, never replaces it; a person's
    paths, relative to `cwd`, take the place of the row's `paths`.
    """
    words: list[str] = []
    marks = [f"({stage.select})"] if stage.select else []
    paths: list[str] = []
    for option, value in pair_words(rest):
        refuse(option or value, stage=stage)
        if option == "-m":
            marks.append(f"({value})")
        elif option:
            words += [option, value]
        elif value.startswith("-m") and not value.startswith("--"):
            marks.append(f"({value[2:]})")
        elif not value.startswith("-") and exists((cwd / value.split("::", 1)[0]).resolve()):
            paths.append(_relative(value, root=root, cwd=cwd))
        elif not value.startswith("-") and "::" in value:
            raise UsageError(f"there is no file for {value!r}", hint=f"paths are taken from {cwd}")
        else:
            words.append(value)
    if marks:
        words = ["-m", " and ".join(marks) if len(marks) > 1 else marks[0][1:-1], *words]
    return PytestArguments(
        words=(*stage.extra_args, *words, *(paths or stage.paths)),
        narrowed=bool(paths) or len(marks) > bool(stage.select) or any(map(_narrows, words)),
        stops_early=any(word in {"-x", "--exitfirst"} or word.startswith("--maxfail") for word in words),
        collects_only=any(word in {"--collect-only", "--co"} for word in words),
    )


def pair_words(rest: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Pair each option that takes the next word with it; all other words come as ("", word)."""
    words = iter(rest)
    for word in words:
        if word not in TAKES_VALUE:
            yield "", word
            continue
        value = next(words, None)
        if value is None:
            raise UsageError(f"{word} is the last word, expected a value after it")
        yield word, value


def refuse(word: str, *, stage: Stage) -> None:
    """Raise `UsageError` for what cannot work in a supervised run."""
    name = word.split("=", 1)[0]
    if name in INTERACTIVE:
        raise UsageError(
            f"{name} needs a terminal of its own, which a supervised run does not have",
            hint=f"run pytest itself: pytest {name} -m {stage.select!r}",
        )
    if name in FORBIDDEN or (name.startswith("-n") and name[2:].isdigit()):
        raise UsageError(f"{name} hands the tests to another runner", hint="lockgate runs and orders them itself")


def _narrows(word: str) -> bool:
    name = word.split("=", 1)[0]
    return name in NARROWING or (word.startswith("-k") and not word.startswith("--"))


def _relative(word: str, *, root: Path, cwd: Path) -> str:
    """Rewrite a path (or node id) given from `cwd` as one from `root`."""
    path, mark, test = word.partition("::")
    full = (cwd / path).resolve()
    name = full.relative_to(root).as_posix() if full.is_relative_to(root) else full.as_posix()
    return f"{name}{mark}{test}"
