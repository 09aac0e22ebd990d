"""Forecast of a centre's network over the next hours, for a scheduler to plan with."""

from __future__ import annotations

import math
from itertools import groupby

from controller.probing.hours.values import HOUR_S, HOURS, GoodHours, NetworkWindow
from dataplane.clock import NS_PER_S


def network_windows(
    good: GoodHours, now_s: float, *, horizon_s: float = HOURS * HOUR_S
) -> tuple[NetworkWindow, ...] | None:
    """Return the forecast until the horizon as windows without gaps; None if nothing is known.

    The rest of the present hour goes by the current state. An hour without evidence is not a bad one: its slowdown is
    the mean of the known hours' and of one good hour.
    """
    known = [hour.slowdown for hour in good.hours if hour.slowdown is not None]
    if not known:
        return None
    usual = (1.0 + sum(known)) / (1 + len(known))
    hours: list[tuple[float, float, float | None]] = []
    begin_s, end_s = now_s, now_s + horizon_s
    while begin_s < end_s:
        next_s = min(end_s, (math.floor(begin_s / HOUR_S) + 1) * HOUR_S)
        is_now = begin_s == now_s and good.slowdown is not None
        hours.append((begin_s, next_s, good.slowdown if is_now else good.at(begin_s).slowdown))
        begin_s = next_s
    windows = []
    for slowdown, group in groupby(hours, key=lambda hour: hour[2]):
        same = list(group)
        begin_ns, end_ns = int(same[0][0] * NS_PER_S), int(same[-1][1] * NS_PER_S)
        windows.append(NetworkWindow(begin_ns, end_ns, usual if slowdown is None else slowdown, slowdown is not None))
    return tuple(windows)
