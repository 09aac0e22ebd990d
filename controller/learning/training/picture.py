"""Learning curves and comparisons as pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from controller.common.figures import check_ending, save
from controller.learning.errors import LearningError
from controller.learning.training.figures import Figures
from controller.learning.training.trials import Point
from controller.learning.values import Floats

_MUCH: Final = 20
_OURS, _OTHERS, _MARK = "#c4511d", "#1f6fb4", "0.6"


def draw_curve(title: str, points: Sequence[Point], path: Path, *, unit: str, unit_ns: float) -> None:
    """Write reward, response and loss against decisions to a .png or .svg file; raise LearningError on failure.

    Grey lines are ends of episodes. Responses and losses that vary much are on a logarithmic scale: at first both can
    be a hundred times what they are later.
    """
    check_ending(path, LearningError)
    canvas = Figure(figsize=(9, 7), layout="constrained")
    rewards, responses, losses = canvas.subplots(3, 1, sharex=True)
    decisions = [point.decisions for point in points]
    trained = [point for point in points if point.steps]
    _line(rewards, decisions, [point.mean_reward for point in points], "mean reward")
    _line(responses, decisions, [point.mean_response_ns / unit_ns for point in points], f"mean response, {unit}")
    _line(losses, [point.decisions for point in trained], [point.loss for point in trained], "loss")
    ends = [point.decisions for point, after in pairwise(points) if after.episode != point.episode]
    for axes, figures in (
        (responses, [point.mean_response_ns for point in points]),
        (losses, [point.loss for point in trained]),
    ):
        if figures and 0 < _MUCH * min(figures) < max(figures):
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:g}")
    for axes in (rewards, responses, losses):
        for end in ends:
            axes.axvline(end, color=_MARK, linewidth=0.8)
    if not trained:
        losses.text(0.5, 0.5, "the buffer was never full: no training step", transform=losses.transAxes, ha="center")
    losses.set_xlabel("decisions")
    _write(canvas, title, path)


def draw_comparison(
    title: str,
    figures: Mapping[str, Sequence[Figures]],
    ours: frozenset[str],
    path: Path,
    *,
    unit: str,
    unit_ns: float,
) -> None:
    """Write mean response and mean wait of each decider over the seeds to a .png or .svg file, the best one first.

    Lines are from the least to the most of the seeds. Raises LearningError for another suffix, or on a failed write.
    """
    check_ending(path, LearningError)
    names = sorted(figures, key=lambda name: float(np.mean([run.mean_response_ns for run in figures[name]])))
    canvas = Figure(figsize=(11, 1.6 + 0.4 * len(names)), layout="constrained")
    responses, waits = canvas.subplots(1, 2, sharey=True)
    _bars(responses, names, [[run.mean_response_ns / unit_ns for run in figures[name]] for name in names], ours)
    _bars(waits, names, [[run.mean_wait_ns / unit_ns for run in figures[name]] for name in names], ours)
    responses.set_xlabel(f"mean response, {unit}")
    waits.set_xlabel(f"mean wait, {unit}")
    responses.invert_yaxis()
    _write(canvas, title, path)


def draw_attention(title: str, attention: Floats, path: Path) -> None:
    """Write each token's attention, [layers, heads, tokens, tokens], a square per head, to a .png or .svg file.

    Rows look at columns; colours are multiples of an even share, from a half to twice at least.

    Raises LearningError for another suffix, or on a failed write.
    """
    check_ending(path, LearningError)
    layers, heads, tokens, _ = attention.shape
    low, high = min(0.5, float(attention.min()) * tokens), max(2.0, float(attention.max()) * tokens)
    canvas = Figure(figsize=(2.6 * heads + 2, 2.8 * layers + 0.8), layout="constrained")
    squares = canvas.subplots(layers, heads, squeeze=False, sharex=True, sharey=True)
    for layer in range(layers):
        for head in range(heads):
            axes, times = squares[layer, head], attention[layer, head] * tokens
            shown = axes.imshow(times, vmin=low, vmax=high, cmap="viridis")
            axes.set_title(f"layer {layer + 1}, head {head + 1}", fontsize=9)
            axes.set_xlabel("action looked at" if layer == layers - 1 else "")
            axes.set_ylabel("action" if head == 0 else "")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    canvas.colorbar(shown, ax=squares, label="times an even share")
    _write(canvas, title, path)


def _line(axes: Axes, decisions: list[int], figures: list[float], what: str) -> None:
    axes.plot(decisions, figures, color=_OTHERS, linewidth=1.2, marker="." if len(figures) < 40 else "")
    axes.set_ylabel(what)
    axes.grid(visible=True, alpha=0.25)


def _bars(axes: Axes, names: list[str], figures: list[list[float]], ours: frozenset[str]) -> None:
    means = [float(np.mean(values)) for values in figures]
    spread = [
        [mean - min(values) for mean, values in zip(means, figures, strict=True)],
        [max(values) - mean for mean, values in zip(means, figures, strict=True)],
    ]
    colours = [_OURS if name in ours else _OTHERS for name in names]
    axes.barh(names, means, xerr=spread, color=colours, capsize=3)
    axes.grid(visible=True, axis="x", alpha=0.25)


def _write(canvas: Figure, title: str, path: Path) -> None:
    canvas.suptitle(title, fontsize=11)
    save(canvas, path, LearningError)
