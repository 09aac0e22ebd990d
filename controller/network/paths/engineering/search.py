"""The search for better weights: destination by destination to a cheaper tree, until nothing improves.

Links have prices: the slopes of a smooth stand-in for the maximum utilisation (`potential`). A destination whose
traffic would be cheaper by another tree moves to it, entirely or in part, in weights that the tables can hold.
Increasingly sharp stand-ins follow each other; then, if it is small enough, the linear program over all trees seen
(`program`) finds their best mixture. Every intermediate result can be applied, so a search may end at any moment: more
time gives better weights, never wrong ones.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace

import numpy as np

from controller.network.paths.engineering.program import Columns, mixing
from controller.network.paths.engineering.splits import shares_of_flows
from controller.network.paths.engineering.trees import cheapest_trees
from controller.network.paths.engineering.values import FloatArray, IntArray, Splits, SwitchGraph
from controller.network.paths.engineering.weights import rounded_shares


@dataclass(frozen=True, slots=True)
class Potential:
    """The soft maximum of all utilisations over `scale`, plus delay; arrays are by link, loads in the rates' unit.

    soft maximum = 1 + log(sum of exp(sharpness * (utilisation / scale - 1))) / sharpness: the sharper, the nearer to
    the maximum itself, and the fewer links have a price.
    """

    rates: FloatArray
    delay_costs: FloatArray
    """Delay cost of a unit of load on each link."""
    sharpness: float
    scale: float

    def value(self, loads: FloatArray) -> float:
        """Return the potential of loads."""
        exponents = self.sharpness * (loads / self.rates / self.scale - 1.0)
        most = float(exponents.max())
        # The largest exponent is taken out first, so that exp cannot overflow.
        soft = 1.0 + (most + float(np.log(np.exp(exponents - most).sum()))) / self.sharpness
        return soft + float(loads @ self.delay_costs)

    def congestion_prices(self, loads: FloatArray) -> FloatArray:
        """Return how fast the soft maximum grows with each link's load."""
        exponents = self.sharpness * (loads / self.rates / self.scale)
        powers = np.exp(exponents - exponents.max())
        return np.asarray(powers / powers.sum() / self.rates / self.scale)

    def prices(self, loads: FloatArray) -> FloatArray:
        """Return how fast the potential grows with each link's load."""
        return self.congestion_prices(loads) + self.delay_costs


SHARPNESS = (10.0, 20.0, 40.0, 80.0, 160.0)
"""Sharpness of successive stand-ins: soft ones lead out of dead ends, sharp ones single out the busiest link."""
PARTS = (1.0, 0.5, 0.25, 0.125)
"""Shares of a destination's traffic that may move to a tree at once."""
MENDING_PARTS = (0.0625, 0.03125)
"""Parts that repair losses from rounding the linear program's mixture."""
DELAY_WEIGHT = 0.15
"""Weight of a doubled delay of all traffic, in shares of the maximum utilisation."""
_PROGRAM_DELAY_WEIGHT = 0.01
"""The same in the linear program, which can determine which changes lower the maximum."""
_MERIT_DELAY_WEIGHT = 0.03
"""The same for comparing splits with the best so far."""

_MOST_SWEEPS = 8
_LEAST_GAIN = 0.003
"""A sweep over all destinations that gains less than this share is the last with its stand-in."""
_GROUPS = 10
_MOST_IN_GROUP = 32
_MOST_ENTRIES = 150_000
"""Non-zero loads in all linear programs of a search: beyond that they take longer than a round should."""
_MOST_MIXTURES = 8
_MOST_MIXINGS = 3
"""Searches that may begin with the linear program, or one if the last was interrupted: it may exceed a round."""
_MOST_TREES = 14
"""Trees a destination has in the linear program: the cheapest."""
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
        loads = splits.loads_by_destination(self.destinations, self.entering_bps).sum(axis=0) + self.fixed_bps
        return float((loads / self.graph.rate_bps).max(initial=0.0))


@dataclass(slots=True)
class Progress:
    """Progress of a search, so that another one can continue from there."""

    stage: int = 0
    """The stand-in in use; after the last come the linear program, and the last stand-in once more."""
    sweeps: int = 0
    """Sweeps over all destinations with this stand-in."""
    group: int = 0
    """The next group of destinations in this sweep."""
    scale: float = 1.0
    """That of the potential when the sweep began."""
    before: float = 0.0
    """The potential then."""
    mixings: int = 0
    """Number of times that the linear program was started."""


@dataclass(frozen=True, slots=True)
class Draft:
    """Intermediate result of a search, from which another one can continue."""

    splits: Splits
    progress: Progress


class Search:
    """Lowers the maximum utilisation from the splits in force; `for _ in search` runs it in short steps."""

    def __init__(
        self,
        problem: Problem,
        present: Splits,
        *,
        draft: Draft | None = None,
        limit_s: float | None = None,
    ) -> None:
        """Begin at a draft, else at the splits in force; `limit_s` is the time limit of the linear program."""
        self.problem, self.present = problem, present
        start = present if draft is None else draft.splits
        self.progress = Progress() if draft is None else replace(draft.progress)
        graph = problem.graph
        self._limit_s = limit_s
        self._unit_bps = float(graph.rate_bps.max())
        self._rates = graph.rate_bps / self._unit_bps
        self._fixed = problem.fixed_bps / self._unit_bps
        self._entering = problem.entering_bps / self._unit_bps
        self._present_shares = present.shares[problem.destinations]
        self._present_loads = present.loads_by_destination(problem.destinations, self._entering)
        self._shares = start.shares[problem.destinations]
        self._loads = start.loads_by_destination(problem.destinations, self._entering)
        self._total = self._loads.sum(axis=0) + self._fixed
        self._delays = (graph.delay_ns + _HOP_NS) / self._least_delay()
        self._best = self._merit(), self._total, self._shares.copy(), self._loads.copy()
        self._met: list[dict[bytes, FloatArray]] = [{} for _ in problem.destinations]
        self._mixed: FloatArray | None = None
        """Result of the linear program that has not been turned into weights yet."""
        self._prices = np.ones_like(self._rates)
        self.bound = 0.0
        """The maximum utilisation is at least this, however traffic is split."""
        self.is_finished = False
        self._steps = self._run()

    def __iter__(self) -> Iterator[None]:
        """Return the remaining steps; an interrupted search continues."""
        return self._steps

    def could_gain(self, gain: float, prices: FloatArray | None = None) -> bool:
        """Return whether the maximum may be lowered by this share: not where the bound by prices excludes it.

        Without prices those of the present loads are taken.
        """
        before = self._maximum(self._present_loads.sum(axis=0) + self._fixed)
        if before <= self.problem.enough:
            return False
        if prices is not None and len(prices) == len(self._rates):
            self._raise_bound(prices)
        self._raise_bound(self._potential(SHARPNESS[-1]).congestion_prices(self._total))
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
        """Return the state of the search; one that is mixing continues with its current mixture."""
        has_mixed, progress = self._mixed is not None, replace(self.progress)
        self._take_mixture()
        if has_mixed:
            progress.stage = len(SHARPNESS) + 1
        return Draft(self._with(self._shares), progress)

    def result(self) -> Splits:
        """Return the best splits so far; destinations that need not change keep those in force."""
        self._take_mixture()
        self._keep_best()
        _, total, shares, loads = self._best
        shares = shares.copy()
        limit = max(self._maximum(total) * (1 + _SLACK), self.problem.enough)
        relief = (loads - self._present_loads) @ self._potential(SHARPNESS[-1]).congestion_prices(total)
        for row in np.argsort(-relief, kind="stable"):
            back = total - loads[row] + self._present_loads[row]
            if self._maximum(back) <= limit:
                total, shares[row] = back, self._present_shares[row]
        return self._with(shares)

    def _run(self) -> Iterator[None]:
        progress, last = self.progress, len(SHARPNESS)
        if len(self.problem.destinations):
            while progress.stage < last and not self._is_good():
                yield from self._sweep()
            if progress.stage == last and not self._is_good():
                # One more stage repairs the rounding of a mixture; without a mixture it is not needed.
                progress.stage += 1 if (yield from self._mix()) else 2
                yield
            while progress.stage == last + 1 and not self._is_good():
                yield from self._sweep()
        self._keep_best()
        self.is_finished = True

    def _is_good(self) -> bool:
        most = self._maximum(self._total)
        return most <= max(self.problem.enough, self.bound * (1 + _LEAST_GAIN))

    def _sweep(self) -> Iterator[None]:
        """Continue a sweep over all destinations; the last one with a stand-in is the one that gains little."""
        progress, groups = self.progress, self._groups()
        sharpness = SHARPNESS[min(progress.stage, len(SHARPNESS) - 1)]
        if progress.group == 0:
            progress.scale = self._scale()
            progress.before = self._potential(sharpness).value(self._total)
        while progress.group < len(groups):
            self._improve(groups[progress.group], self._potential(sharpness))
            progress.group += 1
            yield
        self._keep_best()
        after = self._potential(sharpness, progress.scale).value(self._total)
        progress.group, progress.sweeps = 0, progress.sweeps + 1
        if progress.before - after < _LEAST_GAIN or progress.sweeps == _MOST_SWEEPS:
            progress.stage, progress.sweeps = progress.stage + 1, 0
            self._raise_bound(self._potential(sharpness).congestion_prices(self._total))

    def _groups(self) -> list[IntArray]:
        """Return rows of destinations that are processed together, spread over the topology's order."""
        rows = len(self.problem.destinations)
        count = max(min(_GROUPS, rows), -(-rows // _MOST_IN_GROUP))
        return [np.arange(first, rows, count) for first in range(count)]

    def _improve(self, rows: IntArray, potential: Potential) -> None:
        """Move destinations to trees that are cheaper at present prices, wherever that lowers the potential."""
        prices = potential.prices(self._total)
        trees = cheapest_trees(self.problem.graph, prices, self.problem.destinations[rows])
        tree_loads = trees.loads(self.problem.graph, self._entering[rows])
        gains = (self._loads[rows] - tree_loads) @ prices
        rows, tree_loads = rows[gains > _NOISE], tree_loads[gains > _NOISE]
        if not len(rows):
            return
        for row, loads in zip(rows, tree_loads, strict=True):
            self._met[row][loads.tobytes()] = loads
        parts = self._parts(rows, tree_loads, potential)
        moving = parts > 0
        rows, flows = rows[moving], self._blend(rows, tree_loads, parts)[moving]
        self._move(rows, flows, potential)

    def _parts(self, rows: IntArray, tree_loads: FloatArray, potential: Potential) -> FloatArray:
        """Return the best part of each destination to move to its tree, one after the other; 0 for none."""
        total, value = self._total, potential.value(self._total)
        parts = PARTS if self.progress.stage < len(SHARPNESS) else PARTS + MENDING_PARTS
        best = np.zeros(len(rows))
        for index, row in enumerate(rows):
            change = tree_loads[index] - self._loads[row]
            options = [(potential.value(total + part * change), part) for part in parts]
            # On a tie the smaller part moves.
            least, part = min(options)
            if least < value - _NOISE:
                total, value, best[index] = total + part * change, least, part
        return best

    def _blend(self, rows: IntArray, tree_loads: FloatArray, parts: FloatArray) -> FloatArray:
        return self._loads[rows] + parts[:, None] * (tree_loads - self._loads[rows])

    def _move(self, rows: IntArray, flows: FloatArray, potential: Potential) -> None:
        """Apply flows as weights, one destination after the other, wherever they still lower the potential."""
        if not len(rows):
            return
        shares, loads = self._weighted(rows, flows)
        value = potential.value(self._total)
        for index, row in enumerate(rows):
            total = self._total - self._loads[row] + loads[index]
            after = potential.value(total)
            if after < value - _NOISE:
                self._total, value = total, after
                self._shares[row], self._loads[row] = shares[index], loads[index]

    def _weighted(self, rows: IntArray, flows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the shares of flows by whole weights, and the resulting loads."""
        graph, destinations = self.problem.graph, self.problem.destinations[rows]
        shares = rounded_shares(graph, shares_of_flows(graph, flows, destinations, self._present_shares[rows]))
        whole = np.zeros((len(graph.switches), len(graph.links)))
        whole[destinations] = shares
        return shares, Splits(graph, whole).loads_by_destination(destinations, self._entering[rows])

    def _mix(self) -> Generator[None, None, bool]:
        """Let the linear program mix the trees seen, and any cheaper ones that it finds; return whether it did."""
        entries, has_mixed = 0, False
        self.progress.mixings += 1
        if self.progress.mixings > _MOST_MIXINGS:
            return False
        costs = self._potential(SHARPNESS[-1]).prices(self._total)
        for _ in range(_MOST_MIXTURES):
            columns = self._columns(costs)
            entries += int(np.count_nonzero(columns.loads))
            if entries > _MOST_ENTRIES:
                break
            mixture = yield from mixing(
                columns,
                self._rates,
                self._fixed,
                self._total,
                scale=self._scale(),
                enough=self.problem.enough,
                limit_s=self._limit_s,
            )
            if mixture is None:
                break
            self._mixed, has_mixed = np.zeros_like(self._loads), True
            np.add.at(self._mixed, columns.owners, mixture.shares[:, None] * columns.loads)
            if mixture.prices.any():
                self._raise_bound(mixture.prices)
            costs = mixture.prices + self._delay_costs(_PROGRAM_DELAY_WEIGHT)
            if not self._meet(costs):
                break
            yield
        self._take_mixture()
        return has_mixed

    def _take_mixture(self) -> None:
        """Make weights of the newest mixture."""
        if self._mixed is None:
            return
        self._shares, self._loads = self._weighted(np.arange(len(self._mixed)), self._mixed)
        self._total, self._mixed = self._loads.sum(axis=0) + self._fixed, None
        self._keep_best()

    def _meet(self, costs: FloatArray) -> bool:
        """Add the cheapest trees of all destinations to those seen; return whether one of them is new."""
        trees = cheapest_trees(self.problem.graph, costs, self.problem.destinations)
        before = sum(map(len, self._met))
        for met, loads in zip(self._met, trees.loads(self.problem.graph, self._entering), strict=True):
            met[loads.tobytes()] = loads
        return sum(map(len, self._met)) > before

    def _columns(self, costs: FloatArray) -> Columns:
        """Return the trees in force for each destination, its current ones, and the cheapest of those seen."""
        columns = [
            np.stack([self._present_loads[row], self._loads[row], *sorted(met.values(), key=costs.dot)[:_MOST_TREES]])
            for row, met in enumerate(self._met)
        ]
        owners = np.repeat(np.arange(len(columns)), [len(loads) for loads in columns])
        loads = np.concatenate(columns)
        return Columns(owners, loads, loads @ self._delay_costs(_PROGRAM_DELAY_WEIGHT))

    def _raise_bound(self, prices: FloatArray) -> None:
        """Raise the bound to the one of prices: the least cost of all traffic over the cost of full links."""
        graph, whole = self.problem.graph, float(prices @ self._rates)
        # No price is 0, as costs must be positive; the bound accounts for the increase.
        costs = prices + whole * 1e-9
        distance = cheapest_trees(graph, costs, self.problem.destinations).distance
        least = float((self._entering * np.where(self._entering > 0, distance, 0.0)).sum()) + float(costs @ self._fixed)
        bound = least / float(costs @ self._rates)
        if bound > self.bound:
            self.bound, self._prices = bound, prices

    def _least_delay(self) -> float:
        """Return the delay of all traffic by shortest paths, in loads times ns."""
        graph = self.problem.graph
        distance = cheapest_trees(graph, graph.delay_ns + _HOP_NS, self.problem.destinations).distance
        least = float((self._entering * np.where(self._entering > 0, distance, 0.0)).sum())
        return least or 1.0

    def _potential(self, sharpness: float, scale: float | None = None) -> Potential:
        return Potential(self._rates, self._delay_costs(DELAY_WEIGHT), sharpness, scale or self._scale())

    def _delay_costs(self, weight: float) -> FloatArray:
        return weight * self._delays

    def _scale(self) -> float:
        return max(self._maximum(self._total), self.problem.enough) or 1.0

    def _maximum(self, loads: FloatArray) -> float:
        return float((loads / self._rates).max(initial=0.0))

    def _keep_best(self) -> None:
        merit = self._merit()
        if merit < self._best[0]:
            self._best = merit, self._total, self._shares.copy(), self._loads.copy()

    def _merit(self) -> float:
        """Return how good the present splits are (less is better): by one share of utilisation or of a lot of delay."""
        most = max(self._maximum(self._total), self.problem.enough, _NOISE)
        return float(np.log(most)) + _MERIT_DELAY_WEIGHT * float(self._total @ self._delays)

    def _with(self, shares: FloatArray) -> Splits:
        whole = self.present.shares.copy()
        whole[self.problem.destinations] = shares
        return Splits(self.present.graph, whole)
