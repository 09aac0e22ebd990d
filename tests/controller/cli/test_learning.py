"""`millrace scheduler train`, `evaluate` and `compare` as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller.cli.app import app

SETTINGS = """
agent:
  network: {form: flat, hidden: 8, heads: 2, layers: 1, feed_forward: 8, dropout: 0}
  training: {buffer: 32, batch: 8, batches: 2, publish_every: 64}
bursty: {tasks: 100, objects: 256, system: {nodes: 4}}
"""


def run(*arguments: str, code: int = 0) -> tuple[str, str]:
    result = CliRunner().invoke(app, ["scheduler", *arguments], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout, result.stderr


@pytest.fixture
def settings(tmp_path: Path) -> str:
    (tmp_path / "learning.yaml").write_text(SETTINGS)
    return str(tmp_path / "learning.yaml")


def test_an_agent_is_trained_resumed_evaluated_and_compared(settings: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    checkpoint, picture = str(tmp_path / "agent.ckpt"), tmp_path / "curve.svg"
    train = ["train", "bursty", "-s", settings, "-c", checkpoint, "--episodes", "1", "-f", "json"]
    shown, said = run(*train, "--picture", str(picture))
    assert json.loads(shown)[-1]["version"] == 1
    assert "decides until the network is trained" in said
    assert "<svg" in picture.read_text()
    shown, _ = run(*train, "--resume", checkpoint)
    assert json.loads(shown)[-1]["version"] == 3
    shown, _ = run("evaluate", checkpoint, "bursty", "-s", settings, "-f", "json")
    found = {row["what"]: row["value"] for row in json.loads(shown)}
    assert (found["by network"], found["by fallback"]) == (100, 0)
    drawn = tmp_path / "compared.png"
    shown, _ = run("compare", "bursty", "-s", settings, "-c", checkpoint, "-f", "json", "--picture", str(drawn))
    rows = json.loads(shown)
    assert {row["decider"] for row in rows} >= {checkpoint, "data-local", "random"}
    ours = next(row for row in rows if row["decider"] == checkpoint)
    assert ours["mean response, ms"] == found["mean response, ms"]
    assert [row["mean response, ms"] for row in rows] == sorted(row["mean response, ms"] for row in rows)
    assert drawn.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("option", "why"),
    [(["--picture", "curve.pdf"], "ends in .png or .svg"), (["-c", "/nowhere/a.ckpt"], "/nowhere is no folder")],
)
def test_what_cannot_be_written_is_told_before_the_work(settings: str, option: list[str], why: str) -> None:
    _, said = run("train", "bursty", "-s", settings, "-c", "a.ckpt", *option, code=2)
    assert why in " ".join(said.replace("│", " ").split())
