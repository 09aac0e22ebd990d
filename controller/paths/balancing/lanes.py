"""One group's traffic, and what it puts on links by each way that the group may send it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from controller.paths.balancing.candidates import Weights
from controller.paths.balancing.footprints import Footprints
from controller.paths.balancing.values import Group, Spread, Stream
from controller.paths.balancing.ways import Ways
from controller.paths.deciding.graph import Rows

Floats = npt.NDArray[np.float64]

_CELLS: Final = 1_000_000
"""Streams times weights that are tried at most."""
_MOST: Final = 512
_LEAST: Final = 16


@dataclass(frozen=True, slots=True)
class Member:
    """A stream, the links that it is thought to take, what it needs, and whether its hash tells where it goes."""

    stream: Stream
    rows: Rows
    need_bps: float
    exact: bool


class Lanes:
    """A group with its `options` (links to leave by, in order of port) and the streams that pass it.

    `rows` are all links that its weights concern; `uncertain_bps` is one standard deviation of what it sends.
    """

    def __init__(
        self, ways: Ways, footprints: Footprints, group: Group, options: Rows, members: Sequence[Member]
    ) -> None:
        self._ways, self._footprints, self.group, self.options = ways, footprints, group, options
        self.exact = [member for member in members if member.exact]
        self.ids = {id(member) for member in members}
        loads = [self._loads(member) for member in members]
        present = [dict(footprints.loads(member.stream, member.need_bps, member.rows)) for member in members]
        places = sorted({row for each in loads for lane in each for row in lane} | {row for p in present for row in p})
        self.rows = np.array(places, np.int64)
        self._place = {row: place for place, row in enumerate(places)}
        self._now: Floats = self._table(present).sum(axis=0)
        lanes = np.stack([self._table([each[lane] for each in loads]) for lane in range(len(options))])
        is_exact = np.array([member.exact for member in members], np.bool_)
        self._exact: Floats = lanes[:, is_exact]
        self._shared: Floats = lanes[:, ~is_exact].sum(axis=1)
        switch = group[0]
        self._digests = np.array([ways.digest(switch, m.stream.hashed) for m in self.exact], np.int64)
        self.uncertain_bps = math.sqrt(sum(member.need_bps**2 / max(member.stream.packets, 1.0) for member in members))

    @property
    def affordable(self) -> int:
        """How many weights may be tried."""
        return max(_LEAST, min(_MOST, _CELLS // max(1, len(self.exact))))

    def spread(self, weights: Weights) -> Spread:
        """Return weights with the links that they are of."""
        return tuple((row, weight) for row, weight in zip(self.options, weights, strict=True) if weight)

    def predict(self, options: Sequence[Weights], load: Floats) -> tuple[Floats, Floats]:
        """Return the loads of `rows` by [weights, row]: of these streams, and were they without number."""
        weights = np.array(options, np.int64)
        shares = weights / weights.sum(axis=1, keepdims=True)
        others = load[self.rows] - self._now
        shared = shares @ self._shared
        chosen = self._choose(weights)
        laid = sum(
            ((chosen == lane).astype(np.float64) @ self._exact[lane] for lane in range(len(self.options))),
            np.zeros((len(options), len(self.rows))),
        )
        expected = shares @ self._exact.sum(axis=1)
        return others + shared + laid, others + shared + expected

    def change(self, weights: Weights, load: Floats) -> dict[int, float]:
        """Return by how much each link's load changes with other weights."""
        after = self.predict([weights], load)[0][0]
        return dict(zip(self.rows.tolist(), (after - load[self.rows]).tolist(), strict=True))

    def room_bps(self, load: Floats, limit: Floats) -> list[float]:
        """Return how much of the group's traffic each option has room for, on all links that only it leads over."""
        free = limit[self.rows] - (load[self.rows] - self._now)
        lanes = self._exact.sum(axis=1) + self._shared
        room = []
        for lane in lanes:
            own = (lane > 0) & (lane > lanes.min(axis=0) + 1.0)
            room.append(max(0.0, float(free[own].min(initial=np.inf))) if own.any() else 0.0)
        return room

    def moved(self, weights: Weights) -> dict[int, Member]:
        """Return the streams of known hash, by the identity of what they were before, with the links they take now."""
        chosen = self._choose(np.array([weights], np.int64))[0].tolist()
        return {
            id(member): replace(member, rows=self._via(member, self.options[lane]))
            for member, lane in zip(self.exact, chosen, strict=True)
        }

    def _choose(self, weights: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the option of each stream of known hash, by [weights, stream]."""
        ends = np.cumsum(weights, axis=1)
        left = self._digests[None, :] % ends[:, -1:]
        found: npt.NDArray[np.int64] = (left[:, :, None] >= ends[:, None, :]).sum(axis=2)
        return found

    def _loads(self, member: Member) -> list[dict[int, float]]:
        """Return what a stream puts on links by each option."""
        return [self._by(member, option) for option in self.options]

    def _by(self, member: Member, option: int) -> dict[int, float]:
        loads, head = self._footprints.loads, int(self._ways.table.head[option])
        if member.exact:
            return dict(loads(member.stream, member.need_bps, self._via(member, option)))
        found: dict[int, float] = {}
        for rest, share in self._ways.shares(head, self.group[1]):
            for row, bps in loads(member.stream, member.need_bps, (*self._before(member), option, *rest)):
                found[row] = found.get(row, 0.0) + share * bps
        return found

    def _via(self, member: Member, option: int) -> Rows:
        head = int(self._ways.table.head[option])
        rest = self._ways.path(member.stream.hashed, head, self.group[1])
        return (*self._before(member), option, *(rest or ()))

    def _before(self, member: Member) -> Rows:
        """Return the links that a stream takes up to the group's switch."""
        tails = [int(self._ways.table.tail[row]) for row in member.rows]
        return member.rows[: tails.index(self.group[0])]

    def _table(self, loads: Sequence[dict[int, float]]) -> Floats:
        found = np.zeros((len(loads), len(self._place)))
        for number, each in enumerate(loads):
            for row, bps in each.items():
                found[number, self._place[row]] += bps
        return found
