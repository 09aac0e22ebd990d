"""Interrupted `millrace scheduler train` saves its state and resumes exactly."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller.apps.cli.app import app
from controller.apps.cli.learning.train import Interrupted, stopping
from tests.waiting import wait_until

SETTINGS = """
agent:
  network: {form: tokens, hidden: 16, heads: 2, layers: 1, feed_forward: 16}
  training: {buffer: 64, batch: 16, batches: 2, publish_every: 64, optimiser: adam}
bursty: {tasks: 200, objects: 256, system: {nodes: 4}}
"""
WITHIN_S = 120.0


@pytest.fixture
def train(tmp_path: Path) -> list[str]:
    """Return the command."""
    pytest.importorskip("torch")
    (tmp_path / "learning.yaml").write_text(SETTINGS)
    return ["scheduler", "train", "bursty", "-s", str(tmp_path / "learning.yaml"), "-f", "csv", "--every", "100"]


def interrupted(command: list[str], checkpoint: Path, number: signal.Signals) -> tuple[int, str, str]:
    """Send a signal once an episode has ended; return the exit status, stdout and stderr."""
    line = [sys.executable, "-m", "controller.apps.cli", *command, "-c", str(checkpoint)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:

        def is_saved() -> bool:
            assert process.poll() is None
            return checkpoint.exists()

        wait_until(is_saved, "no episode ends")
        process.send_signal(number)
        shown, errors = process.communicate(timeout=WITHIN_S)
    return process.returncode, shown, errors


def test_interrupted_training_resumes_to_identical_weights(train: list[str], tmp_path: Path) -> None:
    whole, part = tmp_path / "whole.ckpt", tmp_path / "part.ckpt"
    # Enough episodes that the signal arrives during training on any machine.
    status, shown, errors = interrupted([*train, "--episodes", "1000"], part, signal.SIGINT)
    assert status == 130, errors
    assert shown.startswith("decisions,")
    assert "stopping after this decision" in errors
    assert f"wrote {part}: version " in errors
    matched = re.search(r"interrupted: continue with --resume \S+ --episodes (\d+)", errors)
    assert matched is not None, errors
    ended = 1000 - int(matched[1])
    assert ended >= 1
    more = [*train, "--resume", str(part), "--episodes", "2", "-c", str(part)]
    result = CliRunner().invoke(app, more, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(app, [*train, "--episodes", str(ended + 2), "-c", str(whole)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert whole.read_bytes() == part.read_bytes()


def test_the_second_interrupt_ends_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT)
    with stopping("once") as stop:
        assert not stop()
        os.kill(os.getpid(), signal.SIGINT)
        assert stop()
        assert stop.status == 130
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(SystemExit, match="143"):
            os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) is before
    assert capfd.readouterr().err == "once\n"
    with stopping("once") as stop, pytest.raises(Interrupted), stop.breaking():
        os.kill(os.getpid(), signal.SIGTERM)
