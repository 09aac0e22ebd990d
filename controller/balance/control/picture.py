"""Pictures of loops: a recording with its model, and the settling of each form."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from controller.balance.control.identification import Fit, StepResponse
from controller.balance.control.loops import TunedLoop
from controller.balance.control.response import SETTLED
from controller.balance.errors import BalanceError
from controller.common import figures

COLOURS: Final = {"P": "#777777", "PI": "#3060a8", "PD": "#b36a00", "PID": "#1b7a3d"}
"""Colours of the forms, in all pictures."""
_SIDE_IN: Final = (6.2, 3.8)
_WIDE: Final = 3.4
_NARROW: Final = 1.1


def draw_tuning(path: Path, loops: Sequence[TunedLoop], recorded: tuple[StepResponse, Fit] | None = None) -> None:
    """Plot each loop's response to an error of 0.5, next to the recording and its model if given."""
    parts = 1 if recorded is None else 2
    canvas = Figure(figsize=(parts * _SIDE_IN[0], _SIDE_IN[1]), layout="constrained")
    axes = canvas.subplots(1, parts, squeeze=False)[0]
    if recorded is not None:
        _draw_recording(axes[0], *recorded)
    _draw_loops(axes[-1], loops)
    save(canvas, path)


def save(canvas: Figure, path: Path) -> None:
    """Write a picture, .png or .svg; raise BalanceError for another suffix or a failed write."""
    # Text kept as text.
    with mpl.rc_context({"svg.fonttype": "none"}):
        figures.save(canvas, path, BalanceError)


def shade_settled(axes: Axes, settled: float = SETTLED) -> None:
    """Shade the errors for which the interval table moves no lever."""
    axes.axhspan(-settled, settled, color="#1b7a3d", alpha=0.10, linewidth=0)
    axes.axhline(0.0, color="#999999", linewidth=0.8)


def width_of(order: int, curves: int) -> float:
    """Return the width of a curve: later ones are narrower, so that overlapping ones all remain visible."""
    return _WIDE + (_NARROW - _WIDE) * order / max(curves - 1, 1)


def _draw_recording(axes: Axes, response: StepResponse, fit: Fit) -> None:
    times = np.asarray(response.times_s)
    axes.plot(times, response.errors, ".", color="#777777", markersize=3, label="recorded")
    axes.plot(times, fit.errors_at(times), color="#b3261e", linewidth=1.6, label="model")
    axes.axvline(fit.at_s, color="#777777", linewidth=0.9, linestyle=":")
    plant = fit.plant
    axes.set_title(
        f"output stepped by {fit.step:g}: gain {plant.gain:.3g}, lag {plant.lag_s:.3g} s, delay {plant.delay_s:.3g} s",
        fontsize=9.5,
    )
    axes.set_xlabel("time (s)", fontsize=8.5)
    axes.set_ylabel("error", fontsize=8.5)
    axes.legend(fontsize=8)


def _draw_loops(axes: Axes, loops: Sequence[TunedLoop]) -> None:
    shade_settled(axes)
    for order, loop in enumerate(loops):
        if loop.errors:
            width, colour = width_of(order, len(loops)), COLOURS[loop.form]
            axes.step(loop.times_s, loop.errors, where="post", color=colour, linewidth=width, label=loop.form)
    settled = [
        loop.figures.settle_s for loop in loops if loop.figures is not None and loop.figures.settle_s is not None
    ]
    span_s = max((loop.times_s[-1] for loop in loops if loop.errors), default=1.0)
    axes.set_xlim(0.0, min(span_s, 3.0 * max(settled, default=span_s) + 5.0 * span_s / 60.0))
    axes.set_title("response of each form to an error of 0.5 (shaded: settled)", fontsize=9.5)
    axes.set_xlabel("time (s)", fontsize=8.5)
    axes.set_ylabel("error", fontsize=8.5)
    if any(loop.errors for loop in loops):
        axes.legend(fontsize=8)
