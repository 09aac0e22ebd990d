"""All command lines in pages are valid: each is parsed, whether its block is run or not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs import shell_blocks
from tests.docs.command_lines import (
    Line,
    Script,
    commands_in,
    imports_of,
    lines_of,
    problem_of,
    problem_of_script,
    scripts_of,
)
from tests.docs.shell_blocks import ROOT, shell_blocks_of
from tests.soak.pages.scenes import SCENES
from tests.test_house import is_there

PAGES = [page for page in shell_blocks.PAGES if page != ROOT / "CHANGELOG.md"]  # which is history


SAID_BEFORE = {
    "products have run": "](task-scheduler.md#an-example)",
    "node with containers": "](nodes.md#in-millrace-up)",
    "Abilene is up": "`millrace up abilene`",
    "racks are up": "`millrace up`",
    "api.example": "`millrace api serve`",
    "own program": "docs/examples/own_program",
    "p4c": "p4c",
}
"""Words with which a page says how its reader gets what a scene sets up: before the first block that wants it."""


OF_OTHERS = {"run": "of p4lang's tutorials"}
"""Targets of makefiles that are not ours."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_command_lines_of_a_page_are_taken(page: Path) -> None:
    problems = {
        f"{page.name}:{line.number}: millrace {' '.join(line.words)}": problem
        for line in lines_of(page)
        if (problem := problem_of(line)) is not None
    }
    assert problems == {}


def test_pages_have_command_lines() -> None:
    lines = [line for page in PAGES for line in lines_of(page)]
    assert sum(line.is_whole for line in lines) > 150
    assert sum(not line.is_whole for line in lines) > 150


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_make_is_asked_for_is_there(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    blocks = re.findall(r"^```(?:sh|console)?\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    asked = {
        name for block in blocks for name in re.findall(r"^(?:\$ )?(?:sudo )?make ([a-z][\w-]*)", block, re.MULTILINE)
    }
    assert asked <= targets | OF_OTHERS.keys()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_scripts_on_a_page_have_the_options_it_names(page: Path) -> None:
    assert [problem for script in scripts_of(page) if (problem := problem_of_script(script, ROOT)) is not None] == []


def test_a_script_or_an_option_that_is_gone_is_told() -> None:
    assert problem_of_script(Script("tests/benchmarks/gone", ()), ROOT) == "there is no tests/benchmarks/gone"
    assert problem_of_script(Script("tests/soak/switch.py", ("--minutes",)), ROOT) is None
    assert (
        problem_of_script(Script("tests/soak/switch.py", ("--hourz",)), ROOT)
        == "tests/soak/switch.py has no option --hourz"
    )
    assert sum(1 for page in PAGES for _ in scripts_of(page)) > 20


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_pages_python_imports_is_there(page: Path) -> None:
    """Also in blocks that need root, a card or a cluster and are never run."""
    gone = [f"{module}.{name}" for module, name in imports_of(page) if not is_there(f"{module}.{name}")]
    assert gone == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sudo .venv/bin/millrace up abilene   # all of it", [("up", "abilene")]),
        ("A=1 millrace topology list | less", [("topology", "list")]),
        ("millrace status && millrace down; echo millrace", [("status",), ("down",)]),
        ("echo millrace up", []),
        ("pip install millrace", []),
        ("millrace status > out 2>&1", [("status",)]),
    ],
)
def test_commands_are_found_in_lines(text: str, words: list[tuple[str, ...]]) -> None:
    assert list(commands_in(text)) == words


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("topology lst", "No such command 'lst'"),
        ("topology show x --fromat json", "No such option: --fromat"),
        ("topology show", "Missing parameter: spec"),
        ("topology show x --format xml", "'xml' is not one of"),
        ("trace a.json 00 --port 511", "should be less than or equal to 510"),
        ("switch --prot 1", "unrecognized arguments: --prot"),
        ("stf NAME.json INFO TEST --tarce", "No such option: --tarce"),
    ],
)
def test_what_is_gone_is_told(text: str, problem: str) -> None:
    complaint = problem_of(Line(1, tuple(text.split()), is_whole=True))
    assert complaint is not None
    assert problem in complaint


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("topology lst", "there is no command lst"),
        ("topology show --fromat", "there is no option --fromat"),
        ("fabric up|down|list", None),
        ("paths routes --server X", None),
    ],
)
def test_sentences_name_commands_that_there_are(text: str, problem: str | None) -> None:
    assert problem_of(Line(1, tuple(text.split()), is_whole=False)) == problem


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_for_a_shell_says_who_runs_it(page: Path) -> None:
    blocks = shell_blocks_of(page)
    assert [block.place for block in blocks if block.way not in {"run", "shell", "terminals", "not run"}] == []
    assert [block.place for block in blocks if block.way == "not run" and not block.reason] == []
    assert {name for block in blocks for name in block.scenes} <= SCENES.keys()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_says_first_what_its_commands_need(page: Path) -> None:
    """A reader has no scenes, and no variables that only a page's Python has set."""
    lines = page.read_text(encoding="utf-8").splitlines()
    unsaid = {
        f"{block.place}: {name}"
        for block in shell_blocks_of(page)
        for name in block.scenes
        if SAID_BEFORE.get(name, "") not in "\n".join(lines[: block.line + 1])
    }
    assert unsaid == set()
    assert not re.search(r"^os\.environ\[", "\n".join(lines), re.MULTILINE)
