"""The hours of a centre as a picture: runs over the window, changes of level, and the state of each hour of the day."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from controller.common.figures import check_ending, save
from controller.probing.errors import ProbeError
from controller.probing.hours.values import HOUR_S, HOURS, GoodHours, HourState, PathSample, ProbeSample

_COLOURS: Final = {
    HourState.GOOD: "#2e8b57",
    HourState.SLOW_NETWORK: "#c4511d",
    HourState.SLOW_COMPUTE: "#7b4fa3",
    HourState.SLOW: "#b8a021",
    HourState.UNKNOWN: "#d0d0d0",
}


def draw_hours(
    title: str, samples: Sequence[ProbeSample], path: Sequence[PathSample], good: GoodHours, file: Path
) -> None:
    """Write runs over time, free bandwidth on the path if telemetry has it, and the day's hours, as .png or .svg.

    Raises ProbeError for another file type, without a run or telemetry to draw, or if the file cannot be written.
    """
    check_ending(file, ProbeError)
    if not samples and not path:
        raise ProbeError(f"{file}: no run and no telemetry to draw")
    rows = [bool(samples), bool(path), True]
    canvas = Figure(figsize=(10, 2.0 + 2.4 * sum(rows[:2])), layout="constrained")
    axes = canvas.subplots(sum(rows), 1, squeeze=False, height_ratios=[2.2] * sum(rows[:2]) + [0.9])[:, 0]
    if samples:
        _draw_runs(axes[0], samples, good)
    if path:
        _draw_way(axes[sum(rows[:1])], path)
    if samples and path:
        axes[1].set_xlim(_span(samples, path))
        axes[0].set_xlim(_span(samples, path))
    _draw_day(axes[-1], good)
    canvas.suptitle(title, fontsize=11)
    save(canvas, file, ProbeError)


def _draw_runs(axes: Axes, samples: Sequence[ProbeSample], good: GoodHours) -> None:
    times = [_date(sample.time_s) for sample in samples]
    axes.plot(times, [sample.run_time_s for sample in samples], ".", color="0.25", markersize=4, label="run time")
    for name, colour, values in (
        ("network kernels", _COLOURS[HourState.SLOW_NETWORK], [sample.network_s for sample in samples]),
        ("compute kernels", _COLOURS[HourState.SLOW_COMPUTE], [sample.compute_s for sample in samples]),
    ):
        if any(value is not None for value in values):
            shown = [float("nan") if value is None else value for value in values]
            axes.plot(times, shown, ".", color=colour, markersize=3, label=name)
    for change in good.changes:
        axes.axvline(_date(change.time_s), color="0.4", linestyle="--", linewidth=1)
        label = f"{change.factor:.2f}x: {change.cause}"
        axes.annotate(
            label,
            (_date(change.time_s), 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(3, -3),
            textcoords="offset points",
            rotation=90,
            va="top",
            fontsize=7,
            color="0.3",
        )
    # Room above the runs for the labels of changes.
    axes.set_ylim(0, (1.6 if good.changes else 1.1) * max(sample.run_time_s for sample in samples))
    axes.set_ylabel("seconds")
    axes.legend(fontsize=8, loc="lower left", ncols=3)
    _dates(axes)


def _draw_way(axes: Axes, path: Sequence[PathSample]) -> None:
    axes.plot(
        [_date(sample.time_s) for sample in path], [sample.available_bps / 1e6 for sample in path], color="#1f6fb4"
    )
    axes.set_ylim(bottom=0)
    axes.set_ylabel("free on the path, Mbit/s")
    _dates(axes)


def _draw_day(axes: Axes, good: GoodHours) -> None:
    for hour in good.hours:
        axes.bar(hour.hour + 0.5, 1, width=0.96, color=_COLOURS[hour.state])
        if hour.run_time_s is not None:
            label, colour = f"{hour.run_time_s:.3g}", "black" if hour.state is HourState.SLOW else "white"
            axes.text(hour.hour + 0.5, 0.5, label, ha="center", va="center", fontsize=7, color=colour)
    axes.set_xlim(0, HOURS)
    axes.set_ylim(0, 1)
    axes.set_yticks([])
    axes.set_xticks(range(0, HOURS + 1, 2))
    axes.set_xlabel("hour of the day (UTC); in each the median run time, s")
    states = [state for state in HourState if any(hour.state is state for hour in good.hours)]
    patches = [Patch(color=_COLOURS[state], label=state.value) for state in states]
    axes.legend(
        handles=patches, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 1.45), ncols=len(states), frameon=False
    )


def _dates(axes: Axes) -> None:
    locator = AutoDateLocator()  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.grid(visible=True, alpha=0.25)


def _span(samples: Sequence[ProbeSample], path: Sequence[PathSample]) -> tuple[float, float]:
    times = [sample.time_s for sample in samples] + [sample.time_s for sample in path]
    return _date(min(times) - HOUR_S / 4), _date(max(times) + HOUR_S / 4)


def _date(time_s: float) -> float:
    return float(date2num(datetime.fromtimestamp(time_s, UTC)))  # type: ignore[no-untyped-call]
