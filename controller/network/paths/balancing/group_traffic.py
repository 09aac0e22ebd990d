"""One group's traffic, and its load on links by each next hop that the group may use."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import permutations
from typing import Final

import numpy as np
import numpy.typing as npt

from controller.network.paths.balancing.forwarding import Forwarding
from controller.network.paths.balancing.values import GroupKey, LinkWeights, MeasuredFlow
from controller.network.paths.deciding.graph import Network, Rows
from controller.network.paths.engineering.weights import largest_remainder
from controller.network.paths.telemetry_load import TelemetryLoad
from controller.network.tables.routing import MAX_GROUP_SIZE

Weights = tuple[int, ...]


def weight_options(wanted: Sequence[float], *, by_ratio: bool, limit: int) -> list[Weights]:
    """Return up to `limit` ways of giving each of a group's next hops a weight of 0 or more, in order of preference.

    `wanted` are shares, not all 0. Weights of one ratio but different sums spread the hash values differently;
    `by_ratio` counts them as one, for traffic whose values are unknown.
    """
    total = sum(wanted)
    shares = [share / total for share in wanted]
    options = dict.fromkeys(_all_pairs() if len(wanted) == 2 else _near(shares))
    if by_ratio:
        options = dict.fromkeys(_reduced(weights) for weights in options)
    return sorted(options, key=lambda weights: (_distance(weights, shares), sum(weights), weights))[:limit]


def _all_pairs() -> Iterator[Weights]:
    for total in range(1, MAX_GROUP_SIZE + 1):
        yield from ((weight, total - weight) for weight in range(total + 1))


def _near(shares: Sequence[float]) -> Iterator[Weights]:
    """Yield for every sum the weights nearest to shares, and those that differ from them by one unit."""
    for total in range(1, MAX_GROUP_SIZE + 1):
        nearest = largest_remainder(shares, total)
        yield tuple(nearest)
        for giver, taker in permutations(range(len(shares)), 2):
            if nearest[giver]:
                other = list(nearest)
                other[giver] -= 1
                other[taker] += 1
                yield tuple(other)


def _reduced(weights: Weights) -> Weights:
    common = math.gcd(*weights)
    return tuple(weight // common for weight in weights)


def _distance(weights: Weights, shares: Iterable[float]) -> float:
    total = sum(weights)
    return round(max(abs(weight / total - share) for weight, share in zip(weights, shares, strict=True)), 6)


Footprint = tuple[tuple[int, float, float], ...]
"""(row, share of the flow's rate, additional bits per packet)."""


class Footprints:
    """Cache of the loads of paths, kept for one round."""

    def __init__(self, network: Network, watch: TelemetryLoad | None) -> None:
        self._network, self._watch = network, watch
        self.of = lru_cache(maxsize=65_536)(self._of)

    def _of(self, rows: Rows) -> Footprint:
        watch, table = self._watch, self._network.table
        if watch is None or not rows:
            return tuple((row, 1.0, 0.0) for row in rows)
        bits = {row: 8 * watch.carried_bytes(hop) for hop, row in enumerate(rows, 1)}
        switches = (int(table.tail[rows[0]]), *(int(table.head[row]) for row in rows))
        for switch, nbytes in watch.reports(switches):
            for row in self._network.report_rows(switch):
                bits[row] = bits.get(row, 0.0) + 8 * nbytes
        return tuple((row, float(row in rows), more) for row, more in bits.items())

    def loads(self, flow: MeasuredFlow, need_bps: float, rows: Rows) -> list[tuple[int, float]]:
        """Return the loads that a flow of a given need puts on links, in bit/s, when it takes a path."""
        pps = flow.packets_per_s
        return [(row, share * need_bps + bits * pps) for row, share, bits in self.of(rows)]


Floats = npt.NDArray[np.float64]

_CELLS: Final = 1_000_000
"""Most streams times weights that are tried."""
_MOST: Final = 512
_LEAST: Final = 16


@dataclass(frozen=True, slots=True)
class FlowPlacement:
    """A flow, its presumed links, its need, and whether its hash determines its path."""

    flow: MeasuredFlow
    rows: Rows
    need_bps: float
    exact: bool


class GroupTraffic:
    """A group with its `options` (links to leave by, in order of port) and the flows that pass it.

    `rows` are all links that its weights affect; `uncertain_bps` is one standard deviation of its rate.
    """

    def __init__(
        self,
        forwarding: Forwarding,
        footprints: Footprints,
        group: GroupKey,
        options: Rows,
        placements: Sequence[FlowPlacement],
    ) -> None:
        self._forwarding, self._footprints, self.group, self.options = forwarding, footprints, group, options
        self.exact = [placement for placement in placements if placement.exact]
        self.ids = {id(placement) for placement in placements}
        loads = [self._loads(placement) for placement in placements]
        present = [
            dict(footprints.loads(placement.flow, placement.need_bps, placement.rows)) for placement in placements
        ]
        rows = sorted(
            {row for each in loads for option in each for row in option} | {row for p in present for row in p}
        )
        self.rows = np.array(rows, np.int64)
        self._column = {row: column for column, row in enumerate(rows)}
        self._now: Floats = self._table(present).sum(axis=0)
        traffic = np.stack([self._table([each[option] for each in loads]) for option in range(len(options))])
        is_exact = np.array([placement.exact for placement in placements], np.bool_)
        self._exact: Floats = traffic[:, is_exact]
        self._shared: Floats = traffic[:, ~is_exact].sum(axis=1)
        switch = group[0]
        self._digests = np.array([forwarding.digest(switch, m.flow.hashed) for m in self.exact], np.int64)
        self.uncertain_bps = math.sqrt(
            sum(placement.need_bps**2 / max(placement.flow.packets, 1.0) for placement in placements)
        )

    @property
    def affordable(self) -> int:
        """Number of weights that may be tried."""
        return max(_LEAST, min(_MOST, _CELLS // max(1, len(self.exact))))

    def link_weights(self, weights: Weights) -> LinkWeights:
        """Return weights with the links that they are of."""
        return tuple((row, weight) for row, weight in zip(self.options, weights, strict=True) if weight)

    def predict(self, options: Sequence[Weights], load: Floats) -> tuple[Floats, Floats]:
        """Return the loads of `rows` by [weights, row]: of these flows, and of infinitely many."""
        weights = np.array(options, np.int64)
        shares = weights / weights.sum(axis=1, keepdims=True)
        others = load[self.rows] - self._now
        shared = shares @ self._shared
        chosen = self._choose(weights)
        laid = sum(
            ((chosen == option).astype(np.float64) @ self._exact[option] for option in range(len(self.options))),
            np.zeros((len(options), len(self.rows))),
        )
        expected = shares @ self._exact.sum(axis=1)
        return others + shared + laid, others + shared + expected

    def change(self, weights: Weights, load: Floats) -> dict[int, float]:
        """Return by how much each link's load changes with other weights."""
        after = self.predict([weights], load)[0][0]
        return dict(zip(self.rows.tolist(), (after - load[self.rows]).tolist(), strict=True))

    def room_bps(self, load: Floats, limit: Floats) -> list[float]:
        """Return how much of the group's traffic each option has room for, on all links that only it uses."""
        free = limit[self.rows] - (load[self.rows] - self._now)
        traffic = self._exact.sum(axis=1) + self._shared
        room = []
        for option in traffic:
            # One bit per second of tolerance absorbs rounding.
            own = (option > 0) & (option > traffic.min(axis=0) + 1.0)
            room.append(max(0.0, float(free[own].min(initial=np.inf))) if own.any() else 0.0)
        return room

    def moved(self, weights: Weights) -> dict[int, FlowPlacement]:
        """Return the flows of known hash, by the identity of the original flows, with the links they take now."""
        chosen = self._choose(np.array([weights], np.int64))[0].tolist()
        return {
            id(placement): replace(placement, rows=self._via(placement, self.options[option]))
            for placement, option in zip(self.exact, chosen, strict=True)
        }

    def _choose(self, weights: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the option of each flow of known hash, by [weights, flow]."""
        ends = np.cumsum(weights, axis=1)
        left = self._digests[None, :] % ends[:, -1:]
        choices: npt.NDArray[np.int64] = (left[:, :, None] >= ends[:, None, :]).sum(axis=2)
        return choices

    def _loads(self, placement: FlowPlacement) -> list[dict[int, float]]:
        """Return a flow's loads on links by each option."""
        return [self._by(placement, option) for option in self.options]

    def _by(self, placement: FlowPlacement, option: int) -> dict[int, float]:
        loads, head = self._footprints.loads, int(self._forwarding.table.head[option])
        if placement.exact:
            return dict(loads(placement.flow, placement.need_bps, self._via(placement, option)))
        load_of: dict[int, float] = {}
        for rest, share in self._forwarding.shares(head, self.group[1]):
            for row, bps in loads(placement.flow, placement.need_bps, (*self._before(placement), option, *rest)):
                load_of[row] = load_of.get(row, 0.0) + share * bps
        return load_of

    def _via(self, placement: FlowPlacement, option: int) -> Rows:
        head = int(self._forwarding.table.head[option])
        rest = self._forwarding.path(placement.flow.hashed, head, self.group[1])
        return (*self._before(placement), option, *(rest or ()))

    def _before(self, placement: FlowPlacement) -> Rows:
        """Return the links that a flow takes up to the group's switch."""
        tails = [int(self._forwarding.table.tail[row]) for row in placement.rows]
        return placement.rows[: tails.index(self.group[0])]

    def _table(self, loads: Sequence[dict[int, float]]) -> Floats:
        table = np.zeros((len(loads), len(self._column)))
        for number, each in enumerate(loads):
            for row, bps in each.items():
                table[number, self._column[row]] += bps
        return table
