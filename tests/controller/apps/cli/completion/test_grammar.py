"""Completion: the place that words lead to, and the candidates there."""

from __future__ import annotations

import pytest

from controller.apps.cli.completion.grammar import Grammar
from tests.completion_table import unused_rules

GRAMMAR = Grammar(
    "\tAll.\t--quiet,-q\t--log-level=debug,info\n"
    "task\tTasks.\n"
    "task show\tShow one.\tname=@tasks\t--format,-f=table,csv\n"
    "task cancel\tCancel some.\tnames*=@tasks\n"
    "demo\tRun it.\t--topology=@topologies\n"
    "demo int\tOne packet.\t--src=@hosts\n"
    "get\tShow.\tkind=pods,tasks\tname=@objects\n"
)


@pytest.mark.parametrize(
    ("line", "words", "source"),
    [
        ("", ["task", "demo", "get"], ""),
        ("-q ", ["task", "demo", "get"], ""),
        ("--log-level ", ["debug", "info"], ""),
        ("task ", ["show", "cancel"], ""),
        ("task show ", [], "tasks"),
        ("task show x ", [], ""),
        ("task show x -", ["--format", "--help"], ""),
        ("task show -f ", ["table", "csv"], ""),
        ("task show --format=", ["table", "csv"], ""),
        ("task cancel a b ", [], "tasks"),
        ("demo ", ["int"], ""),
        ("demo --topology ", [], "topologies"),
        ("demo --topology ring int --src ", [], "hosts"),
        ("get ", ["pods", "tasks"], ""),
        ("get pods ", [], "objects"),
        ("task show -- -", [], "tasks"),
        ("unknown ", [], ""),
    ],
)
def test_candidates_fit_the_place(line: str, words: list[str], source: str) -> None:
    *before, begun = line.split(" ")
    candidates, its_source, _ = GRAMMAR.candidates(before, begun)
    assert ([candidate.word for candidate in candidates], its_source) == (words, source)


def test_values_before_are_known_by_their_name() -> None:
    place = GRAMMAR.place(["demo", "--topology=ring", "int", "--src", "h1"])
    assert place.given == {"--topology": "ring", "--src": "h1"}
    assert GRAMMAR.place(["get", "pods", "a"]).given == {"kind": "pods", "name": "a"}


def test_commands_have_their_help() -> None:
    assert [tuple(candidate) for candidate in GRAMMAR.below(["task"])] == [
        ("show", "Show one."),
        ("cancel", "Cancel some."),
    ]


def test_every_rule_of_values_fits_a_parameter() -> None:
    assert unused_rules() == []
