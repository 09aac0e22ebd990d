"""Demo of a training: the outcome of workers' answers, and one line if it cannot run."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from controller.apps.cli.app import app
from controller.apps.demo.training.command import lines, table
from controller.apps.demo.training.scenario import GLOO, RING, SWITCH_WAY, outcome_of
from dataplane.errors import MillraceError

STEPS = 30


def answer(rank: int, *, ring: int | None = None, off: float = 0.0, pause_at: int = -1) -> dict[str, Any]:
    """Return the answer of a worker whose steps take 0.1 s, one of them five times as long."""
    ended_s, now_s = [], 100.0
    for step in range(STEPS):
        now_s += 0.5 if step == pause_at else 0.1
        ended_s.append(now_s)
    losses = [1 / (step + 1) + off for step in range(STEPS)]
    record = {"rank": rank, "losses": losses, "ended_s": ended_s, "parameters": "same"}
    return {**record, "first_by_ring": ring, "said": ["h3 is no longer a member"]}


def test_each_phase_has_its_way_its_speed_and_both_losses() -> None:
    by_gloo = {rank: answer(rank) for rank in range(3)}
    answers = {rank: answer(rank, ring=20, off=1e-7, pause_at=20) for rank in range(2)}
    outcome = outcome_of(3, STEPS, by_gloo, answers)
    assert [phase.way for phase in (outcome.gloo, *outcome.phases)] == [GLOO, SWITCH_WAY, SWITCH_WAY, RING]
    assert [phase.workers for phase in outcome.phases] == [3, 2, 2]
    assert [phase.steps for phase in outcome.phases] == [10, 10, 10]
    assert [phase.longest_s for phase in outcome.phases] == pytest.approx([0.1, 0.1, 0.5])
    assert outcome.phases[2].steps_per_s == pytest.approx(10)
    assert outcome.difference == pytest.approx(1e-7, rel=1e-3)
    assert outcome.phases[0].loss - outcome.phases[0].gloo_loss == pytest.approx(1e-7, rel=1e-3)
    assert table(outcome).row_count == 4
    assert lines(outcome)[1:] == [
        "The remaining 2 workers have the same parameters, bit for bit.",
        "The first worker's log:",
        "  h3 is no longer a member",
    ]


def test_mid_phase_switch_to_the_ring_is_reported_by_step() -> None:
    by_gloo = {rank: answer(rank) for rank in range(3)}
    answers = {0: answer(0, ring=22), 1: {**answer(1, ring=None), "parameters": "others"}}
    outcome = outcome_of(3, STEPS, by_gloo, answers)
    assert outcome.phases[2].way == f"{RING} from step 22 (h1); {SWITCH_WAY} (h2)"
    assert lines(outcome)[1] == "The remaining 2 workers have NOT the same parameters, bit for bit."


def test_without_root_or_torch_it_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["demo", "training", "--out", str(tmp_path / "out")]
    with monkeypatch.context() as here:
        here.setattr(importlib.util, "find_spec", lambda _: None)
        done = CliRunner().invoke(app, command)
        assert isinstance(done.exception, MillraceError)
        assert str(done.exception) == "the training demo requires torch: pip install 'millrace-net[train]'"
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    with monkeypatch.context() as here:
        here.setattr(os, "geteuid", lambda: 1000)
        done = CliRunner().invoke(app, command)
        assert str(done.exception) == "a kernel fabric needs root (network namespaces); virtual time does not"
    assert not (tmp_path / "out").exists()
