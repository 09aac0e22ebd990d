"""`millrace topology` for people and for programs."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from controller.cli.app import app

runner = CliRunner()


def run(*words: str) -> str:
    done = runner.invoke(app, ["topology", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_numbers_stand_beside_names() -> None:
    rows = json.loads(run("switches", "abilene", "--format", "json"))
    assert {(row["switch"], row["id"]) for row in rows} >= {("atlam5", 1), ("atla", 2)}
    assert "atlam5 │ 1 " in run("switches", "abilene")


def test_programs_get_plain_numbers_with_units_in_names() -> None:
    row = json.loads(run("show", "leaf-spine:rate=40G,delay=2us", "--format", "json"))[0]
    assert (row["rate_bps"], row["delay_ns"]) == (40 * 10**9, 2000)
    assert run("show", "abilene", "-f", "csv").startswith("a,a_port,b,b_port,rate_bps,delay_ns,queue_frames\n")
    assert "02:00:00:01:00:01" in run("hosts", "abilene", "-f", "csv")
    assert json.loads(run("check", "abilene", "-f", "json")) == [
        {"name": "abilene", "switches": 12, "hosts": 13, "links": 28}
    ]
    assert "abilene" in {row["name"] for row in json.loads(run("list", "-f", "json"))}


@pytest.mark.parametrize("command", ["paths why a b", "job show x"])
def test_one_thing_is_no_list_of_rows(command: str) -> None:
    done = runner.invoke(app, [*command.split(), "--format", "csv"])
    assert done.exit_code == 2
    assert "table or json" in done.output
