"""Rows of pyproject over the package's defaults."""

from pathlib import Path

import pytest

from ci.errors import ConfigError, UsageError
from ci.stages.model import Launch
from ci.stages.table import DEFAULT_STAGES, default_settings, parse_settings, read_markers, read_settings

pytestmark = pytest.mark.cpu

ROOT = Path(__file__).parents[4]


def test_the_five_rows_are_the_defaults():
    assert [stage.name for stage in DEFAULT_STAGES] == ["cpu_gate", "gpu_smoke", "multi_gpu", "nightly", "package"]
    stages = default_settings().stages
    assert (stages["multi_gpu"].devices, stages["multi_gpu"].ranks) == (2, 2)
    assert stages["gpu_smoke"].select == "gpu and not multi_gpu and not slow"
    assert not any(stage.may_be_empty or stage.allow_skips for stage in DEFAULT_STAGES)


def test_a_row_changes_only_its_own_keys_and_a_new_row_is_a_new_stage():
    settings = parse_settings(
        "[tool.lockgate.stages.multi_gpu]\nranks = 4\nlaunch = 'dynamic'\n"
        "[tool.lockgate.stages.mine]\nselect = 'mine'\n",
        source="x",
    )
    assert settings.stages["multi_gpu"].ranks == 4
    assert settings.stages["multi_gpu"].launch is Launch.DYNAMIC
    assert settings.stages["multi_gpu"].select == "multi_gpu and not slow"
    assert settings.stages["mine"].select == "mine"


def test_all_problems_are_listed_at_once():
    text = "[tool.lockgate]\nstoer = 'x'\n[tool.lockgate.stages.a]\nselct = 'x'\ndevices = -1\n"
    text += "[tool.lockgate.checks.lint]\nstages = ['b']\n"
    with pytest.raises(ConfigError) as caught:
        parse_settings(text, source="pyproject.toml")
    message = caught.value.message
    for words in ("5 problem(s)", "'stoer'", "'selct'", "devices", "command is missing", "'b', which is no stage"):
        assert words in message


@pytest.mark.parametrize(
    "text", ["[tool", "[tool]\nlockgate = 3", "[tool.lockgate]\nstages = 1", "[tool.lockgate]\ntrust = 1"]
)
def test_a_broken_file_is_a_config_error(text):
    with pytest.raises(ConfigError):
        parse_settings(text, source="x")


def test_a_repository_without_a_file_has_the_defaults(tmp_path):
    assert read_settings(tmp_path) == default_settings()
    assert read_markers(tmp_path) == ()


def test_undecodable_bytes_are_a_config_error(tmp_path):
    (tmp_path / "pyproject.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_settings(tmp_path)


def test_an_unknown_stage_names_those_there_are():
    with pytest.raises(UsageError, match="cpu_gate"):
        default_settings().stage("cpu")


def test_the_projects_own_rows_parse():
    settings = read_settings(ROOT)
    assert {check.stages for check in settings.checks} == {("cpu_gate",)}
    assert settings.stages["cpu_gate"].select == "cpu and not slow"
    assert settings.stages["thorough"].select == "cpu and slow"
