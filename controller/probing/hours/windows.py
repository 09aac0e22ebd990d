"""Times in which a centre's network is forecast to be good, for a dispatcher to plan with."""

from __future__ import annotations

import math
from typing import Final

from controller.probing.hours.values import HOUR_S, HOURS, GoodHours, HourState
from dataplane.clock import NS_PER_S

_NETWORK_IS_GOOD: Final = frozenset({HourState.GOOD, HourState.SLOW_COMPUTE})


def good_windows(
    good: GoodHours, now_s: float, *, horizon_s: float = HOURS * HOUR_S
) -> tuple[tuple[int, int], ...] | None:
    """Return the intervals until the horizon in which the network is forecast good, in ns since 1970; None if unknown.

    The rest of the present hour goes by its current state. Hours of unknown state are not good ones, but if no hour at
    all is known there is no forecast.
    """
    if all(hour.state is HourState.UNKNOWN for hour in good.hours) and good.now is HourState.UNKNOWN:
        return None
    windows: list[tuple[float, float]] = []
    begin_s, end_s = now_s, now_s + horizon_s
    while begin_s < end_s:
        next_s = min(end_s, (math.floor(begin_s / HOUR_S) + 1) * HOUR_S)
        is_now = begin_s == now_s and good.now is not HourState.UNKNOWN
        state = good.now if is_now else good.at(begin_s).state
        if state in _NETWORK_IS_GOOD:
            if windows and windows[-1][1] == begin_s:
                windows[-1] = (windows[-1][0], next_s)
            else:
                windows.append((begin_s, next_s))
        begin_s = next_s
    return tuple((int(start * NS_PER_S), int(end * NS_PER_S)) for start, end in windows)
