"""Bad manifests of every kind: refused with a reason and a remedy, and never a traceback."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ci.errors import ManifestError
from ci.manifest import packed, store
from ci.manifest.model import Expectations, Finding, Manifest, Refusal, SourceFile, TestRecord
from ci.manifest.read import read_manifest
from ci.manifest.store import write_manifest

pytestmark = pytest.mark.cpu

Damage = Callable[[Path], None]


def edit(*statements: str, values: tuple[Any, ...] = ()) -> Damage:
    """Damage the tables of a manifest and seal it again, as somebody with bad intent would."""

    def run(path: Path) -> None:
        database = sqlite3.connect(path)
        for statement in statements:
            database.execute(statement, values)
        database.execute("UPDATE seal SET hash = ?", [(store.MARK + store.BLANK).decode()])
        database.commit()
        database.close()
        store._seal(path)

    return run


def set_meta(key: str, value: object) -> Damage:
    """Change one field of the header."""
    return edit("UPDATE meta SET value = ? WHERE key = '" + key + "'", values=(json.dumps(value),))


def truncate(share: float) -> Damage:
    """Cut the file short."""
    return lambda path: os.truncate(path, int(path.stat().st_size * share))


def overwrite(place: int, content: bytes) -> Damage:
    """Write over some bytes."""

    def run(path: Path) -> None:
        with path.open("r+b") as stream:
            stream.seek(place, os.SEEK_SET if place >= 0 else os.SEEK_END)
            stream.write(content)

    return run


def become_folder(path: Path) -> None:
    """Put a folder in its place."""
    path.unlink()
    path.mkdir()


def other_database(path: Path) -> None:
    """Put somebody else's SQLite file there, with a seal."""
    path.unlink()
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE seal (hash TEXT)")
    database.execute("INSERT INTO seal VALUES (?)", [(store.MARK + store.BLANK).decode()])
    database.commit()
    database.close()
    store._seal(path)


FILES: dict[str, tuple[Damage, str, str]] = {
    "missing": (lambda path: path.unlink(), "present", "no file"),
    "empty": (truncate(0), "readable", "empty"),
    "a-folder": (become_folder, "readable", "directory"),
    "not-sqlite": (lambda path: path.write_bytes(b"{}" * 500) and None, "readable", "not an SQLite file"),
    "header-only": (truncate(0.004), "readable", "."),
    "half": (truncate(0.5), "readable", "."),
    "one-byte-short": (lambda path: os.truncate(path, path.stat().st_size - 1), "readable", "content hash"),
    "one-byte-long": (overwrite(10**6, b"x"), "readable", "content hash"),
    "page-zeroed": (overwrite(8192, b"\0" * 4096), "readable", "content hash"),
    "changed-unsealed": (
        lambda path: sqlite3.connect(path, isolation_level=None).execute("UPDATE meta SET value = '1'") and None,
        "readable",
        "content hash",
    ),
    "not-a-manifest": (other_database, "readable", "not a manifest"),
    "no-seal": (
        lambda path: path.write_bytes(path.read_bytes().replace(store.MARK, b"x" * 22)) and None,
        "readable",
        "no content hash",
    ),
    "newer-schema": (edit("PRAGMA user_version = 99"), "readable", "schema is 99"),
    "older-schema": (edit("PRAGMA user_version = 0"), "readable", "schema is 0"),
    "table-dropped": (edit("DROP TABLE relations"), "readable", "relations"),
    "column-dropped": (edit("ALTER TABLE tests DROP COLUMN outcome"), "readable", "outcome"),
    "header-field-gone": (edit("DELETE FROM meta WHERE key = 'source'"), "readable", "source"),
    "header-field-of-another-kind": (set_meta("started", "yesterday"), "readable", "started"),
    "header-not-json": (edit("UPDATE meta SET value = '{' WHERE key = 'stage'"), "readable", "wrong kind"),
    "sysmon-core": (set_meta("core", "coverage-sysmon"), "readable", "not known to be good"),
    "set-missing": (edit("DELETE FROM sets WHERE id = (SELECT max(tests) FROM relations)"), "readable", "not there"),
    "test-of-bytes": (edit("UPDATE tests SET id = x'ff' WHERE number = 0"), "readable", "expected text"),
    "opaque-not-a-list": (edit("UPDATE tests SET opaque = '7'"), "readable", "list of words"),
    "unknown-relation": (edit("INSERT INTO relations VALUES ('likes', 'x', 0)"), "readable", "likes"),
    "unknown-kind": (edit("UPDATE files SET kind = 'poem'"), "readable", "poem"),
    "absolute-path": (
        edit("UPDATE files SET path = '/etc/passwd' WHERE path = 'data.txt'"),
        "safe-paths",
        "/etc/passwd",
    ),
    "path-that-climbs": (
        edit("UPDATE files SET path = 'a/../../x' WHERE path = 'data.txt'"),
        "safe-paths",
        "climbs|a/",
    ),
    "windows-path": (edit("UPDATE files SET path = 'C:x' WHERE path = 'data.txt'"), "safe-paths", "C:x"),
    "control-letter": (
        edit("UPDATE relations SET path = 'a' || char(10) WHERE relation = 'opened'"),
        "safe-paths",
        ".",
    ),
    "test-twice": (edit("UPDATE tests SET id = 'tests/test_a.py::test_1'"), "unique-tests", "twice"),
    "incomplete": (set_meta("is_complete", value=False), "complete", "incomplete"),
    "future": (set_meta("started", 4e9), "age", "from now"),
    "short-commit": (set_meta("source", "main"), "source-commit", "main"),
    "other-digests": (set_meta("blocks_version", 999), "blocks-version", "999"),
}

EXPECTATIONS: dict[str, tuple[dict[str, Any], str, str]] = {
    "other-stage": ({"stage": "gpu_smoke"}, "stage", "cpu_gate"),
    "other-runner": ({"runner_profile": "h100-4"}, "runner-profile", "none"),
    "other-ranks": ({"ranks": 8}, "ranks", "0"),
    "simulated": ({"simulated": True}, "simulated", "real devices"),
    "other-environment": ({"environment": {"python": "CPython 3.14.0"}}, "environment", "3.11.7"),
    "other-configuration": ({"pytest_config": "f" * 32}, "pytest-config", "another"),
    "other-content": ({"content_hash": "0" * 64}, "content-hash", "."),
    "too-old": ({"max_age_hours": 0.5, "is_age_decisive": True}, "age", "1 h"),
}


def check_refusal(found: Manifest | Refusal, check: str) -> Finding:
    """Check that a refusal says what was found, what was expected and what to do."""
    assert isinstance(found, Refusal)
    named = [finding for finding in found.findings if finding.check == check]
    assert named, [str(finding) for finding in found.findings]
    for finding in found.findings:
        assert finding.found
        assert finding.expected
        assert finding.hint
        assert "Traceback" not in str(finding)
    return named[0]


@pytest.mark.parametrize("name", list(FILES))
def test_a_bad_file_is_refused_by_name(name: str, manifest: Manifest, now: float, tmp_path: Path) -> None:
    damage, check, found = FILES[name]
    path = tmp_path / "m.sqlite"
    write_manifest(manifest, path)
    damage(path)
    finding = check_refusal(read_manifest(path, Expectations(now=now)), check)
    assert found == "." or any(word in finding.found for word in found.split("|")), finding.found


@pytest.mark.parametrize("name", list(EXPECTATIONS))
def test_another_ones_manifest_is_refused_by_name(name: str, manifest: Manifest, now: float, tmp_path: Path) -> None:
    wanted, check, found = EXPECTATIONS[name]
    write_manifest(manifest, tmp_path / "m.sqlite")
    finding = check_refusal(read_manifest(tmp_path / "m.sqlite", Expectations(now=now, **wanted)), check)
    assert found == "." or found in finding.found


def test_all_problems_are_listed_at_once(
    build: Callable[..., Manifest], header: Any, now: float, tmp_path: Path
) -> None:
    bad = build(header=header(stage="other", ranks=3, started=now + 9e6))
    write_manifest(bad, tmp_path / "m.sqlite")
    found = read_manifest(tmp_path / "m.sqlite", Expectations(now=now, stage="cpu_gate", ranks=2))
    assert isinstance(found, Refusal)
    assert {finding.check for finding in found.findings} == {"stage", "ranks", "age"}


def test_an_incomplete_one_says_which_check_failed(
    build: Callable[..., Manifest], header: Any, now: float, tmp_path: Path
) -> None:
    problem = Finding(check="canary", found="lost", expected="owned", hint="use another core")
    write_manifest(build(header=header(is_complete=False)), tmp_path / "m.sqlite", problems=[problem])
    found = read_manifest(tmp_path / "m.sqlite", Expectations(now=now))
    assert isinstance(found, Refusal)
    assert problem in found.findings


def test_age_warns_from_half_on(manifest: Manifest, now: float, tmp_path: Path) -> None:
    write_manifest(manifest, tmp_path / "m.sqlite")
    for hours, words in ((72.0, 0), (1.5, 1), (0.5, 1)):
        found = read_manifest(tmp_path / "m.sqlite", Expectations(now=now, max_age_hours=hours))
        assert isinstance(found, Manifest)
        assert len(found.warnings) == words, hours


def test_an_unknown_source_warns_but_contents_decide(manifest: Manifest, now: float, tmp_path: Path) -> None:
    write_manifest(manifest, tmp_path / "m.sqlite")
    found = read_manifest(tmp_path / "m.sqlite", Expectations(now=now, known_commits=frozenset()))
    assert isinstance(found, Manifest)
    assert "source-known" in found.warnings[0]


LAZY: dict[str, Damage] = {
    "set-not-zlib": edit("UPDATE sets SET data = x'00ff00'"),
    "set-too-wide": edit("UPDATE sets SET data = ?", values=(packed.pack_bits(1 << 77),)),
    "set-null": edit("UPDATE sets SET data = 7"),
    "blocks-not-zlib": edit("UPDATE files SET blocks = x'01'"),
    "blocks-not-a-mapping": edit("UPDATE files SET blocks = ?", values=(__import__("zlib").compress(b"[1]"),)),
    "edges-not-json": edit("UPDATE edges SET targets = '{'"),
}


@pytest.mark.parametrize("name", list(LAZY))
def test_a_sealed_lie_inside_a_value_is_one_clear_error(
    name: str, manifest: Manifest, now: float, tmp_path: Path
) -> None:
    path = tmp_path / "m.sqlite"
    write_manifest(manifest, path)
    LAZY[name](path)
    found = read_manifest(path, Expectations(now=now))
    if isinstance(found, Refusal):
        return

    def touch() -> None:
        for relation in (found.imported, found.opened, found.listed, found.probed):
            dict(relation)
        for names in found.executed.values():
            dict(names)
        for file in found.files.values():
            dict(file.blocks)
        dict(found.edges)

    with pytest.raises(ManifestError, match="cannot be read") as error:
        touch()
    assert error.value.hint


def test_hostile_but_sealed_sizes_do_not_eat_memory(build: Callable[..., Manifest], now: float, tmp_path: Path) -> None:
    import zlib

    path = tmp_path / "m.sqlite"
    write_manifest(build(), path)
    edit("UPDATE files SET blocks = ?", values=(zlib.compress(b" " * (packed.BIGGEST + 1)),))(path)
    found = read_manifest(path, Expectations(now=now))
    assert isinstance(found, Manifest)
    with pytest.raises(ManifestError, match="longer than it may be"):
        dict(found.files["src/a.py"].blocks)


def synthetic(base: Manifest, *, tests: int, files: int) -> Manifest:
    """Make a manifest of a given size: every block is executed by a run of tests."""
    paths = [f"src/p{number % 50}/m{number}.py" for number in range(files)]
    span = max(1, tests // 40)
    executed = {
        path: {
            f"f{place}": ((1 << span) - 1) << ((number * 20 + place) * 7 % max(1, tests - span)) for place in range(20)
        }
        for number, path in enumerate(paths)
    }
    return replace(
        base,
        files={
            path: SourceFile(path=path, blob=f"{number:040x}", blocks={f"f{i}": "d" for i in range(20)})
            for number, path in enumerate(paths)
        },
        tests=tuple(
            TestRecord(id=f"tests/t.py::test_{number}", path="tests/t.py", outcome="passed") for number in range(tests)
        ),
        executed=executed,
        imported=dict.fromkeys(paths, (1 << tests) - 1),
        libraries={},
        opened={},
        listed={},
        probed={},
    )


def test_reading_is_lazy(manifest: Manifest, now: float, tmp_path: Path) -> None:
    path = tmp_path / "m.sqlite"
    write_manifest(synthetic(manifest, tests=2000, files=200), path)
    found = read_manifest(path, Expectations(now=now))
    assert isinstance(found, Manifest)
    assert not found.executed.cache, "no set is decoded before it is asked for"  # type: ignore[attr-defined]
    assert found.executed["src/p1/m1.py"]["f3"]
    assert len(found.executed.cache) == 1  # type: ignore[attr-defined]
