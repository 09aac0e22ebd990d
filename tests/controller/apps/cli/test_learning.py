"""`millrace scheduler train`, `evaluate` and `compare`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller.apps.cli.app import app
from controller.apps.cli.learning.options import progress_of
from controller.apps.cli.shared import common
from controller.learning.agent.agents import new_checkpoint
from controller.learning.agent.records import load_checkpoint, save_checkpoint
from controller.learning.agent.settings import AgentSettings, Form, NetworkSettings
from controller.learning.training.given import load_settings, read_given
from dataplane.errors import MillraceError

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


def test_an_agent_is_trained_resumed_evaluated_and_compared(
    settings: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(common, "_PROGRESS_S", 0.01)
    checkpoint, picture = str(tmp_path / "agent.ckpt"), tmp_path / "curve.svg"
    train = ["train", "bursty", "-s", settings, "-c", checkpoint, "--episodes", "1", "-f", "json"]
    best = tmp_path / "best.ckpt"
    shown, errors = run(*train, "--picture", str(picture), "--best", str(best))
    assert f"wrote {best}: version 1, a mean response of " in errors
    assert best.read_bytes() == Path(checkpoint).read_bytes()
    assert json.loads(shown)[-1]["version"] == 1
    assert 0 < json.loads(shown)[-1]["mean response, ms"] < 100
    assert "decides until the network is trained" in errors
    assert re.search(r"^millrace: playing the heuristics, .*: \d+ s$", errors, re.MULTILINE)
    assert re.search(
        r"^millrace: training: \d+ decisions, \d+ training steps, 0 episodes ended: ", errors, re.MULTILINE
    )
    assert "<svg" in picture.read_text()
    shown, _ = run(*train, "--resume", checkpoint)
    assert json.loads(shown)[-1]["version"] == 3
    shown, _ = run("evaluate", checkpoint, "bursty", "-s", settings, "-f", "json")
    figures = {row["what"]: row["value"] for row in json.loads(shown)}
    assert (figures["by network"], figures["by fallback"]) == (100, 0)
    drawn = tmp_path / "compared.png"
    shown, _ = run("compare", "bursty", "-s", settings, "-c", checkpoint, "-f", "json", "--picture", str(drawn))
    rows = json.loads(shown)
    assert {row["decider"] for row in rows} >= {checkpoint, "data-local", "random"}
    ours = next(row for row in rows if row["decider"] == checkpoint)
    assert ours["mean response, ms"] == figures["mean response, ms"]
    assert [row["mean response, ms"] for row in rows] == sorted(row["mean response, ms"] for row in rows)
    assert drawn.read_bytes().startswith(b"\x89PNG")


def test_preset_trains_and_evaluates_what_others_refuse(settings: str, tmp_path: Path) -> None:
    """Its observations have six features: without the option the checkpoint is of another kind."""
    pytest.importorskip("torch")
    checkpoint = str(tmp_path / "agent.ckpt")
    options = ["bursty", "-s", settings, "--preset", "specification"]
    run("train", *options, "-c", checkpoint, "--episodes", "1")
    agent = load_checkpoint(Path(checkpoint))
    assert (agent.settings.preset, agent.settings.training.loss) == ("specification", "criticality-through")
    assert (agent.shape.output, agent.shape.add, agent.shape.inputs) == ("distribution", "noise", 4 + 2 * 4)
    shown, _ = run("evaluate", checkpoint, *options, "-f", "json")
    assert {row["what"]: row["value"] for row in json.loads(shown)}["by network"] == 100
    with pytest.raises(MillraceError, match="it was made for nodes of a pool with the six features only"):
        run("evaluate", checkpoint, "bursty", "-s", settings)


@pytest.mark.parametrize(
    ("option", "why"),
    [(["--picture", "curve.pdf"], "ends in .png or .svg"), (["-c", "/nowhere/a.ckpt"], "/nowhere is not a folder")],
)
def test_unwritable_output_is_reported_before_the_work(settings: str, option: list[str], why: str) -> None:
    _, errors = run("train", "bursty", "-s", settings, "-c", "a.ckpt", *option, code=2)
    assert why in " ".join(errors.replace("│", " ").split())


def test_a_checkpoint_of_another_kind_of_input_is_refused(settings: str, tmp_path: Path) -> None:
    """Every command refuses it in one line that names the file."""
    given = read_given("bursty", load_settings(Path(settings)), 0)
    path = tmp_path / "agent.ckpt"
    network = NetworkSettings(form="tokens", hidden=8, heads=2, layers=1, feed_forward=8)
    save_checkpoint(path, new_checkpoint(AgentSettings(network=network), given.environment.start(0), given.kind))
    (tmp_path / "log.swf").write_text("1 2 -1 60 1 -1 -1 -1 -1 -1 1 1 1 1 1 -1 -1 -1\n")
    log = f"swf:{tmp_path}/log.swf"
    for command in (
        ["evaluate", str(path), log],
        ["compare", log, "-c", str(path)],
        ["train", log, "-c", str(path), "--resume", str(path)],
    ):
        with pytest.raises(MillraceError, match=f"^{path}: it was made for nodes of a pool, not for jobs of a q"):
            run(*command)


def test_attention_is_drawn_or_refused_for_networks_without_it(settings: str, tmp_path: Path) -> None:
    given = read_given("bursty", load_settings(Path(settings)), 0)
    forms: list[Form] = ["tokens", "flat"]
    for form in forms:
        network = NetworkSettings(form=form, hidden=8, heads=2, layers=1, feed_forward=8)
        fresh = new_checkpoint(AgentSettings(network=network), given.environment.start(0), given.kind)
        save_checkpoint(tmp_path / form, fresh)
    drawn = tmp_path / "attention.svg"
    options = ["bursty", "-s", settings, "--attention", str(drawn)]
    _, errors = run("evaluate", str(tmp_path / "tokens"), *options)
    assert errors == f"wrote {drawn}\n"
    text = drawn.read_text()
    # A title for each head of each layer, and the colour scale.
    assert [text.count(f"<!-- layer 1, head {head} -->") for head in (1, 2, 3)] == [1, 1, 0]
    assert text.count("<!-- times an even share -->") == 1
    with pytest.raises(MillraceError, match="a network flat has no attention between tokens"):
        run("evaluate", str(tmp_path / "flat"), *options)


def test_progress_is_said_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    always, never = progress_of("easy", 0.0), progress_of("easy", 1e6)
    for decisions in (1, 2):
        always(decisions)
        never(decisions)
    assert capsys.readouterr().err == "easy: 1 decisions\neasy: 2 decisions\n"
