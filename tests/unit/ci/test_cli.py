"""The command line as a person meets it: help, wrong words, errors."""

import pytest

from ci import cli
from ci.errors import InfrastructureError, UsageError

pytestmark = pytest.mark.cpu


def test_help_lists_every_command(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert all(row.name in text and row.summary.split()[0] in text for row in cli.COMMANDS)


@pytest.mark.parametrize("name", [row.name for row in cli.COMMANDS])
def test_every_command_has_help_and_its_module_the_two_functions(name, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main([name, "--help"])
    assert ended.value.code == 0
    assert f"lockgate {name}" in capsys.readouterr().out
    row = next(row for row in cli.COMMANDS if row.name == name)
    module = __import__(row.module, fromlist=["run"])
    assert callable(module.run)
    assert callable(module.add_arguments)


@pytest.mark.parametrize("words", [[], ["no-such-command"], ["docs", "--no-such-option"], ["docs", "stray"]])
def test_wrong_words_end_with_the_usage_code_and_a_hint(words, capsys):
    assert cli.main(words) == UsageError.exit_code
    text = capsys.readouterr().err
    assert "error:" in text
    assert "--help" in text
    assert "Traceback" not in text


def test_unknown_arguments_are_kept_only_where_they_are_passed_on():
    _, options = cli.parse(["run", "cpu_gate", "-k", "ring and not slow", "-x"])
    assert options.rest == ["-k", "ring and not slow", "-x"]
    with pytest.raises(UsageError, match="--wrong"):
        cli.parse(["docs", "--wrong"])


def test_an_error_becomes_message_hint_and_code(monkeypatch, capsys):
    def fail(options, context):
        raise InfrastructureError("no device", hint="pass --simulate 2")

    monkeypatch.setattr("ci.docs.command.run", fail)
    assert cli.main(["docs"]) == InfrastructureError.exit_code
    text = capsys.readouterr().err
    assert "no device" in text
    assert "pass --simulate 2" in text


def test_an_interrupt_ends_as_in_a_shell(monkeypatch):
    def interrupt(options, context):
        raise KeyboardInterrupt

    monkeypatch.setattr("ci.docs.command.run", interrupt)
    assert cli.main(["docs"]) == cli.INTERRUPTED
