"""`millrace paths cost`: without a source, from a feed and from a history; tables, matrices, pictures and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from controller.apps.cli import main
from dataplane.topology.file import load_topology
from tests.collectors.ingest.test_replay import TRIANGLE
from tests.controller.apps.cli.test_telemetry import feed, history

__all__ = ["feed", "history"]


@pytest.fixture
def triangle(tmp_path: Path) -> str:
    path = tmp_path / "triangle.yaml"
    rates = "defaults: {link: {rate: 1 Gbit/s}, access: {rate: 1 Gbit/s}}"  # as the feed's collector has them
    path.write_text(f"{TRIANGLE}{rates}\n")
    return str(path)


def millrace(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> tuple[bool, str, str]:
    """Run `millrace paths cost`; return whether it succeeded, and its output."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["millrace", "paths", "cost", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
    captured = capsys.readouterr()
    return not end.value.code, captured.out, captured.err


def cost(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    done, out, err = millrace(capsys, arguments)
    assert done, err
    return out


def problem(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    done, _, err = millrace(capsys, arguments)
    assert not done
    return err


def rows(text: str) -> list[dict[str, object]]:
    table: list[dict[str, object]] = json.loads(text)
    return table


def test_pairs_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    fabric = "leaf-spine:spines=2,leaves=2,hosts=1"
    names = [host.name for host in load_topology(fabric).hosts]
    listed = rows(cost(capsys, "--topology", fabric, "--nominal", "--format", "json"))
    assert {(row["src"], row["dst"]) for row in listed} == {(a, b) for a in names for b in names if a != b}
    assert {row["delay_basis"] for row in listed} == {"nominal"}
    table = cost(capsys, "-t", fabric, "--nominal", "h1", "h2", "--format", "csv")
    assert table.splitlines()[1].startswith("h1,h2,")


def test_load_is_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("-t", "ring:switches=3,hosts=1", "--nominal", "h1", "h2", "--format", "json")
    [before], [after] = (
        rows(cost(capsys, *arguments)),
        rows(cost(capsys, *arguments, "--add", "h1:h2:100Mbit/s")),
    )
    assert isinstance(before["available_bps"], int)
    assert after["available_bps"] == before["available_bps"] - 100_000_000


def test_the_feed_is_asked(capsys: pytest.CaptureFixture[str], triangle: str, feed: str) -> None:
    listed = rows(cost(capsys, "-t", triangle, "--base-routes", "--feed", feed, "--format", "json"))
    assert {row["delay_basis"] for row in listed} > {"nominal"}
    faster = Path(triangle).read_text().replace("1 Gbit/s", "10 Gbit/s")
    Path(triangle).write_text(faster)
    errors = problem(capsys, "-t", triangle, "--base-routes", "--feed", feed)
    assert (
        "measures another network: h1->s1 has 1000000000 bit/s there, 10000000000 bit/s in topology triangle" in errors
    )


def test_a_history_is_asked(capsys: pytest.CaptureFixture[str], triangle: str, history: str) -> None:
    at = "2023-11-14T22:14:00"  # when the history was written
    listed = rows(cost(capsys, "-t", triangle, "--history", history, "--at", at, "--format", "json"))
    assert {row["delay_basis"] for row in listed} > {"nominal"}
    times = ("--since", "2023-11-14T22:13", "--at", "2023-11-14T22:15")
    window = rows(cost(capsys, "-t", triangle, "--history", history, *times, "--format", "json"))
    assert {row["delay_basis"] for row in window} > {"nominal"}
    _, _, errors = millrace(capsys, ("-t", triangle, "--history", history, "--at", at))
    assert "paths are base routes: a history has links, not routes" in errors
    assert "no link figures at" in problem(capsys, "-t", triangle, "--history", history, "--at", "2023-11-14T23:14")


def test_a_matrix_and_its_picture(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ("-t", "fat-tree:k=4", "--nominal")
    for figure in ("delay", "bandwidth", "loss"):
        table = cost(capsys, *arguments, "--matrix", figure, "--format", "csv").splitlines()
        assert len(table) == len(table[0].split(",")) == 1 + len(load_topology("fat-tree:k=4").hosts)
        for name in (f"{figure}.png", f"{figure}.svg"):
            cost(capsys, *arguments, "--matrix", figure, "--picture", str(tmp_path / name))
            assert (tmp_path / name).stat().st_size > 5_000


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("-t", "abilene", "--nominal", "h1", "h-losa"), "topology abilene has no host 'h1'"),
        (("-t", "nowhere", "--nominal"), "nowhere"),
        (("-t", "abilene", "--nominal", "--add", "h1:h2"), "is not SRC:DST:RATE"),
        (("-t", "abilene", "--nominal", "--add", "h1:h-losa:1Mbit/s"), "topology abilene has no host 'h1'"),
        (("-t", "abilene", "--at", "2026-01-31T12:00"), "--history and --at require each other"),
        (("-t", "abilene", "--history", "x", "--at", "noon"), "--at 'noon' is not a time such as"),
        (("-t", "abilene", "--nominal", "--since", "noon"), "--since requires --history and --at"),
        (("-t", "abilene", "--nominal", "--picture", "map.jpg"), "a picture's name ends in .png or .svg"),
        (("-t", "abilene", "--base-routes", "--feed", "unix:/nonexistent/feed"), "/nonexistent/feed"),
    ],
)
def test_invalid_input_is_one_line(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], text: str) -> None:
    errors = problem(capsys, *arguments)
    assert text in " ".join(errors.replace("│", " ").split())
    assert "Traceback" not in errors
