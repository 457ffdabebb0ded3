"""Tables of the code as Markdown."""

from pathlib import Path

import pytest

from ci import cli
from ci.docs import render
from ci.docs.blocks import START
from ci.docs.command import build_renderers, find_pages
from ci.errors import ConfigError
from ci.stages.table import default_settings, read_settings

pytestmark = pytest.mark.cpu

ROOT = Path(__file__).parents[4]


def test_every_block_renders_on_the_projects_own_sources():
    for name, renderer in build_renderers(ROOT).items():
        assert renderer().strip(), name


def test_every_block_that_a_page_asks_for_exists_and_every_block_is_used():
    asked = {name for page in find_pages(ROOT) for name in START.findall(page.read_text(encoding="utf-8"))}
    assert asked == set(build_renderers(ROOT))


def test_stages_show_what_they_select_and_need():
    table = render.render_stages(default_settings())
    assert "| `multi_gpu` | `multi_gpu and not slow` | 2 | 2 |" in table
    assert table.count("\n") == len(default_settings().stages) + 2


def test_keys_show_their_defaults():
    table = render.render_stage_keys()
    assert '| `select` | `""` |' in table
    assert "| `may_be_empty` | `false` |" in table
    assert "| `grace` | `5` |" in table


def test_exit_codes_are_those_of_the_tree():
    table = render.render_exit_codes()
    assert "| 3 | The machine is not fit" in table
    assert "| 0 | green |" in table


def test_sessions_and_tasks_are_read_without_running_them():
    source = (
        'import nox\n@nox.session\ndef a_b(s):\n    """Do it.\n\n    More."""\n'
        '@nox.session(name="x")\ndef c(s):\n    """Other."""\ndef d(): ...\n'
    )
    table = render.render_functions(source, decorator="nox.session", prefix="nox -s")
    assert "| `nox -s a_b` | Do it. |" in table
    assert "c" in table
    assert "d`" not in table
    tasks = render.render_functions("@task\ndef a_b(c):\n    '''Do.'''\n", decorator="task", prefix="invoke")
    assert "| `invoke a-b` | Do. |" in tasks


@pytest.mark.parametrize(
    ("step", "shown"),
    [
        ({"uses": "./stage", "with": {"session": "cpu_gate"}}, "`nox -s cpu_gate`"),
        ({"uses": "./stage", "with": {"session": "plan", "arguments": "x"}}, "`nox -s plan -- x`"),
        ({"run": "nox -s package"}, "`nox -s package`"),
        ({"run": "exit 1"}, "no session"),
        ("nonsense", "no session"),
    ],
)
def test_a_jobs_session_is_found_in_its_steps(step, shown):
    table = render.render_jobs({"w/gate.yml": {"on": "push", "jobs": {"j": {"steps": [step]}}}})
    assert f"| gate.yml | `j` | {shown} | push |" in table


def test_the_check_names_a_stale_page_and_writing_mends_it(tmp_path, capsys):
    (tmp_path / "pyproject.toml").write_text("[tool.lockgate]\n")
    page = tmp_path / "README.md"
    page.write_text("<!-- generated: stages -->\n<!-- end: stages -->\n")
    assert cli.main(["--root", str(tmp_path), "docs", "--check"]) == 1
    assert "out of date: README.md" in capsys.readouterr().out
    assert cli.main(["--root", str(tmp_path), "docs"]) == 0
    assert cli.main(["--root", str(tmp_path), "docs", "--check"]) == 0
    assert "`cpu_gate`" in page.read_text()


def test_a_block_whose_source_is_missing_is_a_config_error(tmp_path, capsys):
    (tmp_path / "README.md").write_text("<!-- generated: sessions -->\n<!-- end: sessions -->\n")
    assert cli.main(["--root", str(tmp_path), "docs"]) == ConfigError.exit_code
    assert "noxfile.py" in capsys.readouterr().err


def test_checks_are_shown_with_their_stages():
    assert "| lint | `ruff check .` | `cpu_gate` |" in render.render_checks(read_settings(ROOT))
