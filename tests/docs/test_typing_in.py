"""A reader of pages (tests/soak/pages/typing_in.py) complains of stack traces, silence, failures, other output."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.test_examples import Example
from tests.soak.pages import typing_in
from tests.soak.pages.shell import Command
from tests.soak.pages.typing_in import Bash, Python, Terminals, User, problems_of


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User((), tmp_path, dict(os.environ))


@pytest.fixture
def bash(user: User) -> Iterator[Bash]:
    shell = Bash(user)
    yield shell
    shell.close()


def test_shell_keeps_folder_and_variables(bash: Bash, tmp_path: Path) -> None:
    for text in ("mkdir below", "cd below", "export GREETING='a b\nc'"):
        assert not bash.run(Command(1, text), "page:1").problem
    folder, environment = bash.state()
    assert (folder, environment["GREETING"]) == (str(tmp_path / "below"), "a b\nc")


@pytest.mark.parametrize(
    ("text", "printed", "problem"),
    [
        ("echo 12 rows in 0.5 s", ["9 rows in 3.25 s"], ""),
        ("echo 12 rows", ["12 columns"], "prints something else than the page shows"),
        ("false", [], "ends with 1"),
        ("echo 'millrace: no'; false", ["millrace: no"], ""),
        ("echo 'Traceback (most recent call last):'", [], "prints a stack trace"),
    ],
)
def test_reader_judges_a_command(bash: Bash, text: str, printed: list[str], problem: str) -> None:
    done = bash.run(Command(7, text, printed=printed), "page:7")
    assert done.problem == problem
    assert len(list(problems_of([done]))) == bool(problem)


def test_reader_notices_silence(bash: Bash, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typing_in, "SILENCE_S", 0.05)
    done = bash.run(Command(1, "sleep 0.6; echo done"), "page:1")
    assert done.problem == "is silent for more than 0.05 s"
    assert done.output == "done\n"


def test_terminal_goes_on_until_ctrl_c(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typing_in, "STAYS_S", 0.0)
    terminals = Terminals(user, str(user.folder), user.environment)
    command = Command(1, "echo here; sleep 600", printed=["here"])
    done = terminals.run(command, "page:1", ends=False)
    before = done.status
    terminals.close()
    assert (before, done.status, done.problem) == (None, 0, "")


def test_python_shares_names_and_follows_the_shell(user: User) -> None:
    python = Python(user, Path("page.md"))
    first = python.run(Example(3, "python", "x = 20\n", "", None), "page:3", str(user.folder), {"N": "1"})
    text = "import os\nprint(x + int(os.environ['N']))\n"
    second = python.run(Example(6, "python", text, "21\n", None), "page:6", str(user.folder), {"N": "1"})
    third = python.run(Example(9, "python", "1 / 0\n", "", None), "page:9", str(user.folder), {})
    python.close()
    assert [done.problem for done in (first, second, third)] == ["", "", "prints a stack trace"]
