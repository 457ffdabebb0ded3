"""What the doctor says of a machine."""

import io
import json

import pytest
from rich.console import Console

from ci import cli, doctor
from ci.errors import InfrastructureError, UsageError

pytestmark = pytest.mark.cpu


def render(table):
    console = Console(file=io.StringIO(), width=160)
    console.print(table)
    return console.file.getvalue()


def test_a_missing_need_shows_its_remedy_brackets_and_all():
    findings = doctor.find_needs(doctor.NEEDS, which=lambda name: None)
    text = render(doctor.render_needs(findings))
    assert "python -m pip install 'lockgate[cuda-build]'" in text
    assert "apt-get install clickhouse-server" in text


def test_a_found_program_shows_its_path_and_a_package_its_version():
    found = {
        item.need.name: item.found for item in doctor.find_needs(doctor.NEEDS, which=lambda name: f"/usr/bin/{name}")
    }
    assert found["git"] == "/usr/bin/git"
    assert doctor.package_version("pytest") == pytest.__version__
    assert doctor.package_version("no-such-distribution") == ""


@pytest.mark.parametrize("stage", ["cpu_gate", "package"])
def test_a_stage_without_devices_fits_any_machine(stage, capsys):
    assert cli.main(["doctor", "--stage", stage]) == 0
    assert "no device needed" in capsys.readouterr().out


def test_too_few_simulated_devices_are_an_infrastructure_error_that_offers_enough(capsys):
    assert cli.main(["doctor", "--stage", "multi_gpu", "--simulate", "1"]) == InfrastructureError.exit_code
    assert "--simulate 2" in capsys.readouterr().err


def test_enough_simulated_devices_fit_and_the_runs_own_arguments_are_ignored(capsys):
    assert cli.main(["doctor", "--stage", "multi_gpu", "--simulate", "2", "-k", "ring", "--plan", "x.json"]) == 0
    assert "simulated 1" in capsys.readouterr().out


def test_json_is_one_object(capsys):
    assert cli.main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {need["name"] for need in report["needs"]} == {need.name for need in doctor.NEEDS}
    assert report["stages"]["cpu_gate"] == []


def test_an_unknown_stage_is_a_usage_error(capsys):
    assert cli.main(["doctor", "--stage", "gpu"]) == UsageError.exit_code
    assert "gpu_smoke" in capsys.readouterr().err
