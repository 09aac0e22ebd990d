"""Scores of options for tasks."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from controller.probing.hours.good import SLOWER
from controller.scheduling.framework.policies import MOST_POINTS, Floats, Longs, NoSettings
from controller.scheduling.tasks.values import PendingTask, TimedOptions
from controller.scheduling.tasks.waiting import known_share
from dataplane.clock import NS_PER_S


def by_least(figures: Floats) -> Longs:
    """Return `MOST_POINTS` for the smallest value, half of it for twice as much."""
    points = np.zeros(len(figures), np.int64)
    known = np.isfinite(figures)
    if known.any():
        # A billionth keeps the quotient defined for a figure of 0.
        least = float(figures[known].min()) + 1e-9
        points[known] = np.rint(MOST_POINTS * least / (figures[known] + 1e-9))
    return points


class FinishTime:
    """Prefers the earliest upper bound of the end: waiting for units, data transfer, and run time.

    Because upper bounds count, an estimate with wide bounds does not win by a lucky mean.
    """

    Settings = NoSettings

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def points(self, task: PendingTask, timed: TimedOptions, rows: Longs) -> Longs:  # noqa: ARG002
        """Return the most points for the earliest end, half for twice as long."""
        return by_least(timed.finish_s[rows])

    def reason(self, task: PendingTask, timed: TimedOptions, row: int) -> str:
        """Return the parts of the end time."""
        option = timed.options.items[row]
        parts = [f"{option.units} of {timed.offer(row).unit or 'the units it chooses'}: {option.estimate}"]
        if timed.start_s[row] > 0:
            parts.append(f"begins in {timed.start_s[row]:.4g} s")
        if task.reads:
            parts.append(_transfer_reason(task, timed, row))
        if (deadline_ns := task.deadline_ns) is not None:
            late_s = timed.finish_s[row] - (deadline_ns - timed.view.now_ns) / NS_PER_S
            if late_s > 0:
                parts.append(f"up to {late_s:.4g} s after its deadline")
        return ", ".join(parts)


class Thrift:
    """Prefers the fewest unit-seconds, by the upper bound."""

    Settings = NoSettings

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def points(self, task: PendingTask, timed: TimedOptions, rows: Longs) -> Longs:  # noqa: ARG002
        """Return the most points for the fewest unit-seconds."""
        return by_least((timed.options.high * timed.options.units)[rows])

    def reason(self, task: PendingTask, timed: TimedOptions, row: int) -> str:  # noqa: ARG002
        """Return the unit-seconds."""
        if np.isnan(timed.options.high[row]):
            return "its unit-seconds are unknown"
        return f"{timed.options.high[row] * timed.options.units[row]:.4g} unit-seconds at most"


class GoodHours:
    """Prefers options that begin while the centre's network is forecast good, for tasks that read over it."""

    Settings = NoSettings

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def points(self, task: PendingTask, timed: TimedOptions, rows: Longs) -> Longs:  # noqa: ARG002
        """Return the most points in good hours or without a forecast, none otherwise."""
        points: Longs = np.where(timed.slowdown[rows] < SLOWER, MOST_POINTS, 0).astype(np.int64)
        return points

    def reason(self, task: PendingTask, timed: TimedOptions, row: int) -> str:
        """Return what is forecast for its start, whether it waits for that, and how much is known."""
        if not task.reads:
            return "it reads nothing over the network"
        windows = timed.view.network.get((task.main_host, timed.offer(row).centre))
        if windows is None:
            return "there is no forecast"
        known = f"the network is known for {known_share(windows):.0%} of the next day"
        slowdown = timed.slowdown[row]
        forecast = "as in good hours" if slowdown < SLOWER else f"in {slowdown:.1f} times the time of good hours"
        if timed.waits_s[row] > 0:
            begin = datetime.fromtimestamp(timed.view.now_ns / NS_PER_S + timed.start_s[row], UTC)
            return f"waits until {begin:%H:%M} UTC, when its data is forecast to arrive {forecast}; {known}"
        if slowdown < SLOWER:
            return f"its data is forecast to arrive {forecast}; {known}"
        why = "it has no deadline to wait for" if task.deadline_ns is None else "waiting would cost more than it saves"
        return f"its data is forecast to arrive {forecast}, but {why}; {known}"


def _transfer_reason(task: PendingTask, timed: TimedOptions, row: int) -> str:
    nbytes = sum(read.nbytes for read in task.reads)
    basis = "measured" if timed.is_measured_way[row] else "nominal"
    return f"its {nbytes} bytes arrive in {timed.transfer_s[row]:.4g} s ({basis})"
