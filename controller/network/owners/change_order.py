"""The order in which switches may change their routes to one destination, as arrays: a fabric has many of both."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from controller.network.base_paths import Arrows

_Rows: TypeAlias = NDArray[np.intp]
_Mask: TypeAlias = NDArray[np.bool_]


class ChangeOrder:
    """The switches that reach a destination, each after all that it sends to."""

    def __init__(self, arrows: Arrows, destination: int, count: int) -> None:
        """`arrows` are where each of `count` switches sends to for a destination; they have no circle."""
        onward = arrows.tails != destination
        by_tail = np.argsort(arrows.tails[onward], kind="stable")
        tails, heads = arrows.tails[onward][by_tail], arrows.heads[onward][by_tail]
        degree = np.bincount(tails, minlength=count)
        # Row `count` stands in where a switch sends to fewer others than the widest of its level.
        heads, first = np.append(heads, count), np.cumsum(degree) - degree
        self._levels: list[tuple[_Rows, _Rows]] = []
        waiting, level = degree.copy(), np.array([destination], dtype=np.intp)
        while level.size:
            columns = np.arange(max(1, degree[level].max()))
            places = np.where(columns < degree[level][:, None], first[level][:, None] + columns, -1)
            self._levels.append((level, heads[places]))
            reached = np.isin(heads[:-1], level)
            waiting -= np.bincount(tails[reached], minlength=count)
            level = np.unique(tails[reached])
            level = level[waiting[level] == 0]
        self.rows: _Rows = np.concatenate([rows for rows, _ in self._levels])
        self.reaching: _Mask = np.zeros(count, dtype=bool)
        self.reaching[self.rows] = True

    def waves(self, due: _Mask, stuck: _Mask) -> NDArray[np.int64]:
        """Return by row the wave, counted from 1, in which each switch may change at the earliest.

        0 stands for a switch that is not `due`, with no due one ahead of it; -1 for one that has to wait, being due and
        `stuck`, or sending to one that waits; and for one that does not reach the destination.
        """
        found = np.full(len(due) + 1, -1, dtype=np.int64)
        found[-1] = 0
        for rows, peers in self._levels:
            ahead = found[peers]
            waits = (ahead.min(axis=1) < 0) | (due[rows] & stuck[rows])
            found[rows] = np.where(waits, -1, ahead.max(axis=1) + due[rows])
        return found[:-1]
