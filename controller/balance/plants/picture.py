"""Pictures of loops in virtual time: error, output, levers and work of each unit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from controller.balance.control.picture import save
from controller.balance.plants.loop import PRECISIONS, Trajectory
from controller.balance.rules import TABLE

COLOURS: Final = ("#3060a8", "#b36a00", "#1b7a3d", "#b3261e", "#6a4c93", "#777777")
_WIDTH_IN: Final = 9.0
_ROW_IN: Final = 1.75
_POINTS: Final = 4000
"""Maximum points of a line; more are not visible."""


def draw_run(path: Path, trajectories: Sequence[Trajectory], dead_band: tuple[float, float] = TABLE.dead_band) -> None:
    """Plot the units' histories to a .png or .svg file, one row per figure, with the dead band of the error shaded.

    Clock and precision get rows only if they moved. Raise BalanceError if it cannot be written.
    """
    rows = [_error, _output, _sub_units, *([_clock] if _moved(trajectories, "frequency_mhz") else [])]
    rows += [*([_precision] if _moved(trajectories, "precision") else []), _work]
    canvas = Figure(figsize=(_WIDTH_IN, _ROW_IN * len(rows) + 0.6), layout="constrained")
    all_axes = canvas.subplots(len(rows), 1, sharex=True, squeeze=False)[:, 0]
    all_axes[0].axhspan(*dead_band, color="#1b7a3d", alpha=0.12, linewidth=0, label="dead band")
    for axes, draw in zip(all_axes, rows, strict=True):
        for index, trajectory in enumerate(trajectories):
            draw(axes, trajectory, COLOURS[index % len(COLOURS)])
        axes.grid(visible=True, color="#dddddd", linewidth=0.6)
        axes.margins(x=0.01)
    all_axes[-1].set_ylim(bottom=0)
    handles, labels = all_axes[0].get_legend_handles_labels()
    canvas.legend(handles, labels, fontsize=8, loc="outside upper center", ncols=min(len(trajectories) + 1, 5))
    all_axes[-1].set_xlabel("time (s)", fontsize=9)
    save(canvas, path)


def _moved(trajectories: Sequence[Trajectory], column: str) -> bool:
    return any(np.ptp(getattr(trajectory, column)) > 0 for trajectory in trajectories)


def _line(axes: Axes, trajectory: Trajectory, values: np.ndarray, colour: str) -> None:
    every = max(len(values) // _POINTS, 1)
    axes.plot(
        trajectory.time_s[::every],
        values[::every],
        color=colour,
        linewidth=1.3,
        label=trajectory.name,
        drawstyle="steps-post",
    )


def _error(axes: Axes, trajectory: Trajectory, colour: str) -> None:
    _line(axes, trajectory, trajectory.error, colour)
    axes.set_ylabel("error e", fontsize=9)


def _output(axes: Axes, trajectory: Trajectory, colour: str) -> None:
    _line(axes, trajectory, trajectory.output, colour)
    axes.set_ylabel("output u", fontsize=9)


def _sub_units(axes: Axes, trajectory: Trajectory, colour: str) -> None:
    _line(axes, trajectory, trajectory.sub_units, colour)
    axes.set_ylabel("sub-units", fontsize=9)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))


def _clock(axes: Axes, trajectory: Trajectory, colour: str) -> None:
    _line(axes, trajectory, trajectory.frequency_mhz / 1000.0, colour)
    axes.set_ylabel("clock (GHz)", fontsize=9)


def _precision(axes: Axes, trajectory: Trajectory, colour: str) -> None:
    _line(axes, trajectory, trajectory.precision, colour)
    axes.set_ylabel("precision", fontsize=9)
    axes.set_yticks(range(len(PRECISIONS)), PRECISIONS, fontsize=7)


def _work(axes: Axes, trajectory: Trajectory, colour: str) -> None:
    step_s = float(trajectory.time_s[0])
    _line(axes, trajectory, trajectory.work_tera / step_s, colour)
    axes.set_ylabel("work (TOPS)", fontsize=9)
