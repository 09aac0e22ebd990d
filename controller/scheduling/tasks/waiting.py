"""Waiting for hours in which the network is better, for tasks that read over it, if it saves more than it costs."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from controller.probing.hours import NetworkWindow
from dataplane.clock import NS_PER_S

WAIT_COST: Final = 0.1
"""Unit-seconds that a second of waiting must save, if settings do not say otherwise."""


class Outlook:
    """The network between a host and a centre over the next hours; times are seconds from now.

    Windows follow one another without gaps. The last one is taken to go on.
    """

    def __init__(self, windows: Sequence[NetworkWindow], now_ns: int) -> None:
        self._begins = [(window.begin_ns - now_ns) / NS_PER_S for window in windows]
        self._slowdowns = [window.slowdown for window in windows]
        self._least = min(self._slowdowns)

    def slowdown(self, at_s: float) -> float:
        """Return the factor by which transfers take longer at a time than in good hours."""
        return self._slowdowns[self._index(at_s)]

    def transfer_s(self, start_s: float, good_s: float) -> float:
        """Return how long a transfer takes from its start on that takes `good_s` in good hours."""
        at_s = start_s
        for index in range(self._index(start_s), len(self._begins)):
            last = index + 1 == len(self._begins)
            end_s = math.inf if last else self._begins[index + 1]
            if at_s + good_s * self._slowdowns[index] <= end_s:
                return at_s + good_s * self._slowdowns[index] - start_s
            good_s -= (end_s - at_s) / self._slowdowns[index]
            at_s = end_s
        return math.inf  # a transfer of infinite length

    def best_start_s(
        self, start_s: float, good_s: float, *, units: int, run_s: float, latest_s: float, wait_cost: float
    ) -> float:
        """Return the start of a task that may begin from `start_s` on and must end by `latest_s`.

        It waits for the window in which a shorter transfer saves its units the most seconds beyond what waiting costs.
        """
        unwaited_s = self.transfer_s(start_s, good_s)
        best_s, best_gain = start_s, 0.0
        for at_s in self._begins[self._index(start_s) + 1 :]:
            cost = wait_cost * (at_s - start_s)
            # Costs only grow: stop where even the best network would not save more.
            if at_s > latest_s or units * (unwaited_s - good_s * self._least) - cost <= best_gain:
                break
            transfer_s = self.transfer_s(at_s, good_s)
            gain = units * (unwaited_s - transfer_s) - cost
            if gain > best_gain and at_s + transfer_s + run_s <= latest_s:
                best_s, best_gain = at_s, gain
        return best_s

    def _index(self, at_s: float) -> int:
        return max(bisect_right(self._begins, at_s) - 1, 0)


def known_share(windows: Sequence[NetworkWindow]) -> float:
    """Return the share of a forecast's time that measurements speak of."""
    known_ns = sum(window.end_ns - window.begin_ns for window in windows if window.is_known)
    return known_ns / max(windows[-1].end_ns - windows[0].begin_ns, 1)
