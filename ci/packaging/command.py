"""`lockgate package`: the visible list of steps."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from ci.context import Context
from ci.errors import PackageError
from ci.packaging import build, environment
from ci.packaging.model import Native, PackageRules, check_sdist, check_wheel, parse_rules
from ci.stages.table import read_settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options; what is unknown goes on to `lockgate run package`."""
    parser.add_argument("--native", default=Native.CPU.value, metavar="MODE", help="cpu (default), cuda or off")
    parser.add_argument("--build-only", action="store_true", help="build and check, but run no tests")
    parser.add_argument("--out", default="dist", metavar="DIR", help="where the distributions go (default: dist)")


def run(options: argparse.Namespace, context: Context) -> int:
    """Build, check and try the distributions; 0 is green, 1 means that tests failed."""
    native = Native.parse(options.native, what="--native")
    rules = parse_rules(read_settings(context.root).package)
    with tempfile.TemporaryDirectory(prefix="lockgate-package-") as scratch:
        work = Path(scratch)
        sdist, wheel, pure = build_all(context, native, rules, work)
        distributions = [sdist, wheel, *([pure] if pure else [])]
        build.check_metadata(context, *distributions)
        publish(distributions, context.path(options.out))
        for path in distributions:
            context.out.line(f"built {path.name} ({path.stat().st_size / 1024:.0f} KiB)")
        if options.build_only:
            return 0
        python = environment.make_environment(context, wheel, rules, work / "environment")
        outside = work / "outside"
        outside.mkdir()
        environment.check_origin(context, python, build.read_wheel_names(wheel), outside)
        environment.copy_tests(context, rules, outside)
        report = ["--report", str(context.root / ".lockgate" / "report" / "package")]
        return environment.run_stage(context, python, outside, [*report, *options.rest])


def build_all(context: Context, native: Native, rules: PackageRules, work: Path) -> tuple[Path, Path, Path | None]:
    """Build sdist, wheel and pure wheel, each checked; raises `PackageError` listing all problems."""
    folders = {name: work / name for name in ("sdist", "wheel", "repaired", "pure")}
    for folder in folders.values():
        folder.mkdir()
    sdist = build.build_sdist(context, folders["sdist"])
    problems = check_sdist(build.read_sdist_names(sdist), rules)
    wheel = build.build_wheel(context, sdist, folders["wheel"], environ=build.native_environment(native))
    problems += check_wheel(build.read_wheel_names(wheel), build.wheel_tag(wheel), rules, native=native)
    pure = None
    if native is not Native.OFF:
        switches = dict(item.split("=", 1) for item in rules.pure_environment)
        pure = build.build_wheel(context, sdist, folders["pure"], environ=switches)
        problems += check_wheel(build.read_wheel_names(pure), build.wheel_tag(pure), rules, native=Native.OFF)
    if problems:
        raise PackageError("the distributions are not right:\n" + "\n".join(f"  - {problem}" for problem in problems))
    if native is not Native.OFF:
        wheel = build.repair_wheel(context, wheel, folders["repaired"])
    return sdist, wheel, pure


def publish(files: list[Path], folder: Path) -> None:
    """Leave the distributions in `folder`, replacing what an earlier build left there."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in [*folder.glob("*.whl"), *folder.glob("*.tar.gz")]:
        old.unlink()
    for path in files:
        shutil.copy2(path, folder / path.name)
