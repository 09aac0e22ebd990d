"""`millrace help`, and its groups."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller.apps.cli.app import app
from controller.apps.cli.table import COMMANDS, help_text

INDEX = Path(__file__).parents[4] / "docs" / "index.md"
runner = CliRunner()


@pytest.mark.parametrize("words", [["task", "submit"], ["task"], ["topology"], ["switch"], ["switch", "show"]])
def test_help_is_that_of_the_option(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    texts = []
    for arguments in (["help", *words], [*words, "--help"]):
        done = runner.invoke(app, arguments, prog_name="millrace")
        assert done.exit_code == 0, done.output
        texts.append(done.output + capfd.readouterr().out)
    assert texts[0] == texts[1]
    assert "sage" in texts[0]


def test_help_alone_lists_all_commands() -> None:
    assert runner.invoke(app, ["help"], prog_name="millrace").output == f"{help_text()}\n"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["tsk"], "No such command 'tsk'. Did you mean 'task'"),
        (["task", "sho"], "No such command 'sho'. Did you mean 'show'"),
        (["up", "abilene"], "Invalid value for 'abilene': `millrace up` has no commands"),
    ],
)
def test_help_refuses_what_is_no_command(words: list[str], problem: str) -> None:
    done = runner.invoke(app, ["help", *words], prog_name="millrace")
    assert done.exit_code == 2
    assert problem in done.output


def test_help_has_the_groups_of_the_documentation() -> None:
    headings = re.findall(r"^## ([^:\n]+)", INDEX.read_text(encoding="utf-8"), re.MULTILINE)
    assert [heading for heading in headings if heading in COMMANDS] == list(COMMANDS)
