"""The search for better weights: traffic moves from dear paths to cheap ones until all paths in use cost the same.

Links have prices: the slopes of a smooth stand-in for the maximum utilisation, plus a little for delay. Kernels move
the traffic of one destination after the other to its cheapest tree, as much as pays, and prices follow at once
(`kernels/shifting.py`). Increasingly sharp stand-ins follow each other; then the traffic of each destination becomes
weights that the tables can hold, and what rounding moved is made good by the destinations that follow. Any link prices
give a bound that no split is below, so that a search knows when it is done, and how far it may be from the optimum.
A search may end at any moment: more time gives better weights, never wrong ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from controller.network.paths.engineering.kernel_calls import UNIT, Longs, Traffic
from controller.network.paths.engineering.trees import cheapest_trees
from controller.network.paths.engineering.values import FloatArray, IntArray, Splits, SwitchGraph

SHARPNESS = (14, 29, 58, 115, 230)
"""Powers of two by which a price rises up to the scale, of successive stand-ins: soft ones lead out of dead ends, sharp
ones single out the busiest link."""
DELAY_WEIGHTS = (0.15, 0.1, 0.05, 0.02, 0.01)
"""Weight of a doubled delay of all traffic with each stand-in, in shares of the maximum utilisation: at the end, delay
only decides between splits that are equally good."""
_MERIT_DELAY_WEIGHT = 0.03
"""The same for comparing splits with the best so far."""

_MOST_SWEEPS = 8
_MOST_ROUNDINGS = 6
_LEAST_GAIN = 0.003
"""A sweep over all destinations that gains less than this share is the last with its stand-in."""
_GROUPS = 10
_MOST_IN_GROUP = 32
_NEAR = 4.0
"""Stand-ins are left out that cannot tell utilisations this near to the bound: the gap times the sharpness."""
_GOOD = 0.005
"""Splits within this share of the bound are not improved further."""
_LEAST_MENDED = 5e-4
"""The same share as `_LEAST_GAIN` for rounding all traffic once more."""
_NOISE = 1e-7
_SLACK = 1e-3
"""Routes that need not change may add this share to the maximum utilisation."""
_HOP_NS = 1.0
"""Cost of a link on top of its delay; prevents cycles of links without delay."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Traffic to route: `entering_bps[k, switch]` bit/s to `destinations[k]`; `fixed_bps` stays on the links."""

    graph: SwitchGraph
    destinations: IntArray
    entering_bps: FloatArray
    fixed_bps: FloatArray
    enough: float = 0.0
    """Utilisation need not be pressed below this."""

    @classmethod
    def of(cls, graph: SwitchGraph, demand_bps: FloatArray, fixed_bps: FloatArray, enough: float = 0.0) -> Problem:
        """Return the problem of demands by (source, destination)."""
        wanted = np.flatnonzero(demand_bps.sum(axis=0))
        return cls(graph, wanted, np.ascontiguousarray(demand_bps[:, wanted].T), fixed_bps, enough)

    def max_utilisation(self, splits: Splits) -> float:
        """Return the utilisation of the busiest link; raise PathError if a demand has no way."""
        return float(self.routed(splits).utilisation().max(initial=0.0))

    def routed(self, splits: Splits) -> Traffic:
        """Return the traffic as splits route it; raise PathError if a demand has no way."""
        traffic = Traffic(self.graph, self.destinations, self.entering_bps, self.fixed_bps)
        traffic.weigh(splits.shares[self.destinations])
        bad = traffic.spread()
        if bad < traffic.rows:
            # Raises the error with the switches' names.
            splits.loads_by_destination(self.destinations[bad : bad + 1], self.entering_bps[bad : bad + 1])
        return traffic


@dataclass(slots=True)
class Progress:
    """Progress of a search, so that another one can continue from there."""

    stage: int = 0
    """The stand-in in use; after the last comes rounding."""
    sweeps: int = 0
    """Sweeps over all destinations with this stand-in."""
    row: int = 0
    """The next destination in this sweep."""
    before: float = 0.0
    """The stand-in's value when the sweep began."""


@dataclass(frozen=True, slots=True)
class Draft:
    """Intermediate result of a search, from which another one can continue: shares that are no whole weights yet."""

    splits: Splits
    progress: Progress


class Search:
    """Lowers the maximum utilisation from the splits in force; `for _ in search` runs it in short steps."""

    def __init__(self, problem: Problem, present: Splits, *, draft: Draft | None = None) -> None:
        """Begin at a draft, else at the splits in force."""
        self.problem, self.present = problem, present
        self.progress = Progress() if draft is None else replace(draft.progress)
        graph = problem.graph
        self._traffic = traffic = problem.routed(present)
        self._present_shares = present.shares[problem.destinations]
        self._present_flows = traffic.flows.copy()
        self._present_loads = traffic.load.copy()
        self._delays = (graph.delay_ns + _HOP_NS)[traffic.layout.link] / self._least_delay() / UNIT
        self._best: tuple[float, Longs, Longs | None, Longs] = (
            self._merit(), traffic.load.copy(), None, self._present_flows,
        )  # fmt: skip
        """Merit, loads, weights (None: those in force) and traffic of the best splits so far."""
        if draft is not None:
            self._traffic = traffic = problem.routed(draft.splits)
        self._prices = np.ones(len(graph.links))
        self.bound = 0.0
        """The maximum utilisation is at least this, however traffic is split."""
        self.result_utilisation = 0.0
        """Maximum utilisation of the last `result`."""
        self.is_finished = False
        self._steps = self._run()

    def __iter__(self) -> Iterator[None]:
        """Return the remaining steps; an interrupted search continues."""
        return self._steps

    def could_gain(self, gain: float, prices: FloatArray | None = None) -> bool:
        """Return whether the maximum may be lowered by this share: not where the bound by prices excludes it.

        Without prices those of the present loads are taken.
        """
        before = self._maximum(self._present_loads)
        if before <= self.problem.enough:
            return False
        if prices is not None and len(prices) == len(self._prices):
            self._raise_bound(prices)
        self._raise_bound(self._congestion(SHARPNESS[-1]))
        return max(self.bound, self.problem.enough) < before * (1 - gain)

    @property
    def prices(self) -> FloatArray:
        """The prices of links that gave the best bound."""
        return self._prices

    @property
    def max_utilisation(self) -> float:
        """Maximum utilisation of the best splits so far."""
        return self._maximum(self._best[1])

    def draft(self) -> Draft:
        """Return the state of the search."""
        self._traffic.tidy()
        shares = self._traffic.shares(self._traffic.flows, self._present_shares)
        return Draft(self._with(shares), replace(self.progress))

    def result(self) -> Splits:
        """Return the best splits so far; destinations that need not change keep those in force."""
        self._keep_rounded()
        _, load, weights, flows = self._best
        self.result_utilisation = self._maximum(load)
        if weights is None:
            return self.present
        traffic = self._traffic
        shares = traffic.shares(weights, self._present_shares)
        load, rates = load.astype(np.float64), traffic.rates
        limit = max(float((load / rates).max()) * (1 + _SLACK), self.problem.enough) * rates
        costs = np.exp2(SHARPNESS[-1] * (load / rates / max(self._maximum(self._best[1]), _NOISE) - 1.0)) / rates
        relief = flows @ costs - self._present_flows @ costs
        for row in np.argsort(relief, kind="stable"):
            back = load - flows[row] + self._present_flows[row]
            if (back <= limit).all():
                load, shares[row] = back, self._present_shares[row]
        self.result_utilisation = float((load / rates).max())
        return self._with(shares)

    def _run(self) -> Iterator[None]:
        progress, last = self.progress, len(SHARPNESS)
        if self._traffic.rows:
            self._raise_bound(self._congestion(SHARPNESS[1]))
            self._skip_soft()
            while progress.stage < last and not self._is_good():
                yield from self._sweep()
            if progress.stage < last:
                progress.stage, progress.row, progress.sweeps = last, 0, 0
            while progress.stage == last:
                yield from self._round()
        self.is_finished = True

    def _skip_soft(self) -> None:
        """Leave out stand-ins that are too soft for a start that is nearly as good as the bound."""
        if self.progress == Progress() and self.bound:
            gap = self._maximum(self._traffic.load) / self.bound - 1
            soft = sum(sharpness * gap < _NEAR for sharpness in SHARPNESS[:-2])
            self.progress.stage = soft

    def _is_good(self) -> bool:
        most = self._maximum(self._traffic.load)
        return most <= max(self.problem.enough, self.bound * (1 + _GOOD))

    def _sweep(self) -> Iterator[None]:
        """Continue a sweep over all destinations; the last one with a stand-in is the one that gains little."""
        progress = self.progress
        sharpness = SHARPNESS[progress.stage]
        scale = self._price(sharpness)
        if progress.row == 0:
            progress.before = self._potential(sharpness, scale)
        while progress.row < self._traffic.rows:
            self._traffic.shift(progress.row, self._next_row())
            progress.row = self._next_row()
            if self._is_good():
                return
            yield
        gain = progress.before - self._potential(sharpness, scale)
        progress.row, progress.sweeps = 0, progress.sweeps + 1
        if gain < _LEAST_GAIN or progress.sweeps >= _MOST_SWEEPS:
            progress.stage, progress.sweeps = progress.stage + 1, 0
            # Sharper prices give the better bound where few links decide, as in large networks.
            for each in (sharpness, *SHARPNESS[progress.stage : progress.stage + 1]):
                self._raise_bound(self._congestion(each))
                yield

    def _round(self) -> Iterator[None]:
        """Continue to make weights of all traffic; the last time is the one that gains nothing."""
        progress, best = self.progress, self._best[0]
        self._price(SHARPNESS[-1])
        while progress.row < self._traffic.rows:
            # Weights that are good enough already only need to be rounded.
            self._traffic.round(progress.row, self._next_row(), moves=not self._is_good())
            progress.row = self._next_row()
            yield
        self._keep_best()
        progress.row, progress.sweeps = 0, progress.sweeps + 1
        if self._best[0] > best - _LEAST_MENDED or progress.sweeps >= _MOST_ROUNDINGS or self._is_good():
            progress.stage += 1

    def _next_row(self) -> int:
        rows = self._traffic.rows
        return min(rows, self.progress.row + min(_MOST_IN_GROUP, -(-rows // _GROUPS)))

    def _keep_rounded(self) -> None:
        """Make weights of the present traffic for comparison with the best, and continue as if it had not been."""
        if self.is_finished or not self._traffic.rows:
            return
        flows = self._traffic.flows.copy()
        self._price(SHARPNESS[-1])
        self._traffic.round(0, self._traffic.rows, moves=False)
        self._keep_best()
        self._traffic.take(flows)

    def _keep_best(self) -> None:
        merit, traffic = self._merit(), self._traffic
        if merit < self._best[0]:
            self._best = merit, traffic.load.copy(), traffic.weights.copy(), traffic.flows.copy()

    def _price(self, sharpness: int) -> float:
        """Set prices by a stand-in for the present loads; return its scale."""
        scale = self._scale()
        self._traffic.price(sharpness, scale, self._delay_costs(sharpness))
        return scale

    def _potential(self, sharpness: int, scale: float) -> float:
        """Return the stand-in for the maximum utilisation over the scale, plus delay: what sweeps lower."""
        exponents = sharpness * (self._traffic.utilisation() / scale - 1.0)
        most = float(exponents.max())
        soft = 1.0 + (most + float(np.log2(np.exp2(exponents - most).sum()))) / sharpness
        return soft + float(self._traffic.load @ self._delay_costs(sharpness))

    def _delay_costs(self, sharpness: int) -> FloatArray:
        return np.asarray(DELAY_WEIGHTS[SHARPNESS.index(sharpness)] * self._delays)

    def _congestion(self, sharpness: int) -> FloatArray:
        """Return the stand-in's slopes without delay, by the graph's links."""
        exponents = sharpness * (self._traffic.utilisation() / self._scale())
        slopes = np.exp2(exponents - exponents.max(initial=0.0)) / self._traffic.rates
        prices: FloatArray = np.empty(len(slopes))
        prices[self._traffic.layout.link] = slopes
        return prices

    def _raise_bound(self, prices: FloatArray) -> None:
        """Raise the bound to the one of prices by the graph's links."""
        bound = self._traffic.bound(prices[self._traffic.layout.link])
        if bound > self.bound:
            self.bound, self._prices = bound, prices

    def _least_delay(self) -> float:
        """Return the delay of all traffic by shortest paths, in rates of the fastest link times ns."""
        graph, entering = self.problem.graph, self.problem.entering_bps
        distance = cheapest_trees(graph, graph.delay_ns + _HOP_NS, self.problem.destinations).distance
        least = float((entering * np.where(entering > 0, distance, 0.0)).sum())
        return least / float(graph.rate_bps.max(initial=1.0)) or 1.0

    def _scale(self) -> float:
        return max(self._maximum(self._traffic.load), self.problem.enough) or 1.0

    def _maximum(self, load: Longs) -> float:
        return float((load / self._traffic.rates).max(initial=0.0))

    def _merit(self) -> float:
        """Return how good the present splits are (less is better): by one share of utilisation or of a lot of delay."""
        load = self._traffic.load
        most = max(self._maximum(load), self.problem.enough, _NOISE)
        return float(np.log(most)) + _MERIT_DELAY_WEIGHT * float(load @ self._delays)

    def _with(self, shares: FloatArray) -> Splits:
        whole = self.present.shares.copy()
        whole[self.problem.destinations] = shares
        return Splits(self.present.graph, whole)
