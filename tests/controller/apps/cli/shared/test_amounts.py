"""Options with units, and misspelt commands and options."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from controller.apps.cli.app import app
from controller.apps.cli.shared.amounts import in_bytes, in_days, in_milliseconds, in_seconds

runner = CliRunner()


def test_plain_numbers_have_the_options_unit() -> None:
    assert (in_seconds()("1.5"), in_seconds()("500ms"), in_seconds()(2.0)) == (1.5, 0.5, 2.0)
    assert (in_days()("12h"), in_milliseconds()("2s"), in_milliseconds()(7)) == (0.5, 2000, 7)
    assert (in_bytes()("1G"), in_bytes()("1GiB"), in_bytes()("17")) == (10**9, 1 << 30, 17)


@pytest.mark.parametrize("text", ["nan", "inf", "soon", "-1", "61", "2min", "1 G"])
def test_invalid_or_out_of_range_time_is_wrong_usage(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        in_seconds(0.1, 60)(text)


@pytest.mark.parametrize("text", ["1e308", "36526", "400000d"])
def test_no_time_is_longer_than_a_hundred_years(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"is more than 36525 d"):
        in_days()(text)


@pytest.mark.parametrize("words", [["balance", "history", "x", "--last=1e308"], ["probe", "results", "--days=1e308"]])
def test_a_time_beyond_all_is_wrong_usage(words: list[str]) -> None:
    done = runner.invoke(app, words)
    assert done.exit_code == 2
    assert "is more than" in " ".join(done.output.split())


def test_error_of_an_amount_gives_an_example() -> None:
    done = runner.invoke(app, ["store", "get", "/a", "--server", "127.0.0.1", "--deadline", "5 mz"])
    assert done.exit_code == 2
    assert "is not a time such as 500ms" in " ".join(done.output.replace("│", " ").split())


@pytest.mark.parametrize(("words", "meant"), [(["contoller"], "controller"), (["store", "--hepl"], "--help")])
def test_a_word_that_is_nearly_one_is_guessed(words: list[str], meant: str) -> None:
    done = runner.invoke(app, words)
    assert done.exit_code == 2
    assert meant in done.output.partition("Error")[2]
