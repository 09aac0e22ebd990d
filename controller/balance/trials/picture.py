"""Plots of trials: error, output and levers over time, one row for each, one column for each load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from controller.balance.control.picture import COLOURS, save, shade_settled, width_of
from controller.balance.trials.trial import LoadKind, Trial

_SIDE_IN: Final = (4.2, 2.3)
_FUZZY: Final = "#8e3a9d"


def draw_trials(path: Path, trials: Sequence[Trial]) -> None:
    """Plot error, output and sub-units of each trial, .png or .svg; raise BalanceError for another suffix."""
    kinds = [kind for kind in LoadKind if any(trial.load is kind for trial in trials)]
    canvas = Figure(figsize=(_SIDE_IN[0] * len(kinds), 3 * _SIDE_IN[1]), layout="constrained")
    rows = canvas.subplots(3, len(kinds), sharex="col", sharey="row", squeeze=False)
    for column, kind in enumerate(kinds):
        _draw([axes[column] for axes in rows], [trial for trial in trials if trial.load is kind])
        rows[0][column].set_title(f"{kind} load", fontsize=10)
        rows[-1][column].set_xlabel("time (s)", fontsize=8.5)
    for axes, name in zip(rows[:, 0], ("error", "output u", "sub-units"), strict=True):
        axes.set_ylabel(name, fontsize=9)
    handles, names = rows[0][0].get_legend_handles_labels()
    canvas.legend(handles, names, loc="outside lower center", ncols=len(names), fontsize=9, frameon=False)
    save(canvas, path)


def _draw(axes: Sequence[Axes], trials: Sequence[Trial]) -> None:
    shade_settled(axes[0])
    shade_settled(axes[1])
    for order, trial in enumerate(trials):
        width = width_of(order, len(trials))
        trajectory, colour = trial.trajectory, COLOURS.get(trial.controller, _FUZZY)
        for axis, values in zip(axes, (trajectory.error, trajectory.output, trajectory.sub_units), strict=True):
            axis.step(trajectory.time_s, values, where="post", color=colour, linewidth=width, label=trial.controller)
            axis.tick_params(labelsize=8)
