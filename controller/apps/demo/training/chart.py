"""Chart of the training: the loss by step against gloo alone, and the deaths of a worker and the switch."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from controller.apps.demo.training.scenario import TrainingOutcome
from controller.common.figures import save_both

_OURS, _GLOO, _EDGE = "#2e6da4", "#c0392b", "#909090"


def draw(outcome: TrainingOutcome, stem: Path) -> tuple[Path, Path]:
    """Write `stem`.png and `stem`.svg; return both paths."""
    figure = Figure(figsize=(10, 4.6), layout="constrained")
    axis = figure.add_subplot()
    steps = range(len(outcome.losses))
    axis.plot(steps, outcome.gloo_losses, color=_GLOO, lw=3, alpha=0.35, label="gloo alone, all workers")
    axis.plot(steps, outcome.losses, color=_OURS, lw=1.2, label="over the switch")
    axis.set_yscale("log")
    top = axis.get_ylim()[1]
    places = (0, outcome.killed_at, outcome.switch_killed_at)
    for position, phase in zip(places, outcome.phases, strict=True):
        axis.axvline(position, color=_EDGE, lw=0.8)
        words = f" {phase.name}:\n {phase.way}\n {phase.steps_per_s:.0f} steps/s"
        behind = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.5}
        axis.text(position, top * 0.97, words, fontsize=8, va="top", color="#404040", bbox=behind)
    axis.set_ylim(top=top)
    axis.set_xlim(0, len(outcome.losses))
    axis.set_xlabel("step")
    axis.set_ylabel("loss, mean of workers")
    axis.legend(loc="lower left", fontsize=8)
    axis.set_title(f"{outcome.workers} workers, of which {outcome.killed} is killed, then the switch", fontsize=10)
    return save_both(figure, stem)
