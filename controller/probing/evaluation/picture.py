"""Plot of speed-up and efficiency against unit count, with the threshold if there is one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter, ScalarFormatter

from controller.common.figures import check_ending, save
from controller.probing.errors import ProbeError
from controller.probing.evaluation.efficiency import Threshold

_COLOURS: Final = ("#1f6fb4", "#c4511d", "#2e8b57", "#7b4fa3", "#8a6d1d", "#b03060")
MOST_CURVES: Final = len(_COLOURS)


def draw_efficiency(title: str, thresholds: Mapping[str, Threshold], path: Path) -> None:
    """Write speed-up and efficiency of one probe at up to six places, one colour each, to a .png or .svg file.

    Bars are 95 % confidence intervals, a line is the fit, a band the threshold's 95 % interval. Raises ProbeError for
    another file type, for no curve or too many, or if the file cannot be written.
    """
    check_ending(path, ProbeError)
    shown = {name: threshold for name, threshold in thresholds.items() if threshold.curve}
    if not 1 <= len(shown) <= MOST_CURVES:
        raise ProbeError(f"{path}: {len(shown)} curves to draw, expected 1 to {MOST_CURVES}")
    canvas = Figure(figsize=(10, 4.8), layout="constrained")
    speed_ups, efficiencies = canvas.subplots(1, 2)
    for (name, threshold), colour in zip(shown.items(), _COLOURS, strict=False):
        _draw(speed_ups, efficiencies, name, threshold, colour)
    _finish(speed_ups, efficiencies, shown)
    canvas.suptitle(title, fontsize=11)
    save(canvas, path, ProbeError)


def _draw(speed_ups: Axes, efficiencies: Axes, name: str, threshold: Threshold, colour: str) -> None:
    curve = threshold.curve
    units = [point.units for point in curve]
    label = f"{name}: {threshold.units} units" if threshold.units is not None else f"{name}: no threshold"
    for axes, figures in (
        (speed_ups, [(point.speed_up, point.speed_up_low, point.speed_up_high) for point in curve]),
        (efficiencies, [(point.efficiency, point.efficiency_low, point.efficiency_high) for point in curve]),
    ):
        middle = [value for value, _, _ in figures]
        bars = [[at - low for at, low, _ in figures], [high - at for at, _, high in figures]]
        axes.errorbar(units, middle, yerr=bars, fmt="o", markersize=4, capsize=3, color=colour, label=label)
        if threshold.units is not None and threshold.low is not None and threshold.high is not None:
            axes.axvspan(threshold.low, threshold.high, color=colour, alpha=0.12, linewidth=0)
            axes.axvline(threshold.units, color=colour, linestyle="--", linewidth=1)
    if threshold.fitted:
        first = units[0]
        speed_ups.plot(units, threshold.fitted, color=colour, linewidth=1)
        fitted = [speed_up * first / count for speed_up, count in zip(threshold.fitted, units, strict=True)]
        efficiencies.plot(units, fitted, color=colour, linewidth=1)


def _finish(speed_ups: Axes, efficiencies: Axes, shown: Mapping[str, Threshold]) -> None:
    counts = sorted({point.units for threshold in shown.values() for point in threshold.curve})
    fewest = min(threshold.curve[0].units for threshold in shown.values())
    speed_ups.plot(counts, [count / fewest for count in counts], color="0.6", linewidth=0.8, label="ideal")
    efficiencies.axhline(1.0, color="0.6", linewidth=0.8)
    efficiencies.set_ylim(bottom=0)
    efficiencies.yaxis.set_major_formatter(PercentFormatter(1.0))
    speed_ups.set_yscale("log")
    speed_ups.yaxis.set_major_formatter(ScalarFormatter())
    speed_ups.yaxis.set_minor_locator(NullLocator())
    for axes, what in (
        (speed_ups, f"speed-up against {fewest} unit{'s' * (fewest > 1)}"),
        (efficiencies, "efficiency"),
    ):
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(_apart(counts)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.set_xlabel("units")
        axes.set_ylabel(what)
        axes.grid(visible=True, alpha=0.25)
    speed_ups.yaxis.set_major_locator(FixedLocator(_apart([count / fewest for count in counts])))
    speed_ups.legend(fontsize=8, loc="upper left")


def _apart(counts: list[float] | list[int]) -> list[float]:
    """Return counts spaced widely enough on a logarithmic scale for their labels to be readable."""
    kept: list[float] = []
    for count in counts:
        if not kept or count >= 1.3 * kept[-1]:
            kept.append(count)
    return kept
