"""Traffic by destination in the kernels' memory, and the kernels as its methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from controller.network.algorithms.kernels.trees import grow_tree
from controller.network.algorithms.structures import NO_ENTRY, Buckets, Graph, Heap, Scratch
from controller.network.paths.engineering.kernels.rounding import round_rows, spread_rows
from controller.network.paths.engineering.kernels.shifting import grow_rows, reprice_all, shift_rows, tidy_rows
from controller.network.paths.engineering.structures import POWER_BITS, SLOPE_BITS, STEPS, TOP, Prices, Walk
from controller.network.paths.engineering.values import FloatArray, IntArray, SwitchGraph
from dataplane.native import Kernel, Library, kernel_library, pointer_to

Longs = npt.NDArray[np.uint64]

UNIT: Final = float(1 << 40)
"""The rate of the fastest link in the kernels' unit."""
_COST_BITS = 40
_SHARE_BITS = 19
"""Times a load, weights must stay below 2 ** 64."""
_POWERS = np.rint(2.0 ** (POWER_BITS + np.arange(1 << STEPS) / (1 << STEPS))).astype(np.uint64)


@cache
def _library() -> Library:
    return kernel_library(grow_tree, grow_rows, reprice_all, shift_rows, tidy_rows, round_rows, spread_rows)


@cache
def compiled(kernel: Kernel[..., Any]) -> Callable[..., Any]:
    """Return the function that calls a kernel, without the interpreter's lock."""
    return _library().bind(kernel)


@dataclass(frozen=True, slots=True)
class Layout:
    """A graph's links in the kernels' order, by tail: `link[k]` is the graph's number of link k."""

    link: IntArray
    graph: Graph
    place: npt.NDArray[np.uint32]
    """Position of each link among those that enter its head."""
    tail: IntArray
    start: IntArray
    """First link of each switch."""
    leaves: IntArray
    """Number of links that leave each switch."""

    @classmethod
    def of(cls, graph: SwitchGraph) -> Layout:
        """Return the layout of a graph."""
        link = np.argsort(graph.tails, kind="stable")
        tail, head = graph.tails[link].astype(np.uint32), graph.heads[link].astype(np.uint32)
        in_link = np.argsort(head, kind="stable").astype(np.uint32)
        size = len(graph.switches)
        starts = [np.append(0, np.cumsum(np.bincount(ends, minlength=size))).astype(np.uint32) for ends in (tail, head)]
        columns = {
            "tail": tail, "head": head, "out_start": starts[0], "in_start": starts[1],
            "in_link": in_link, "in_tail": tail[in_link],
        }  # fmt: skip
        native = Graph(switches=size, links=len(link), **{name: pointer_to(column) for name, column in columns.items()})
        return cls(
            link, native, np.argsort(in_link).astype(np.uint32),
            graph.tails[link], starts[0][:-1].astype(np.int64), np.bincount(graph.tails, minlength=size),
        )  # fmt: skip


class Traffic:
    """Traffic by (row of a destination, link) that kernels move; loads are in `UNIT` of the fastest link."""

    def __init__(
        self, graph: SwitchGraph, destinations: IntArray, entering_bps: FloatArray, fixed_bps: FloatArray
    ) -> None:
        self.layout = layout = Layout.of(graph)
        rows, links, size = len(destinations), len(graph.links), len(graph.switches)
        self.unit_bps = float(graph.rate_bps.max(initial=1.0)) / UNIT
        self.rates = graph.rate_bps[layout.link] / self.unit_bps
        self.fixed = np.rint(fixed_bps[layout.link] / self.unit_bps).astype(np.uint64)
        self.entering = np.rint(entering_bps / self.unit_bps).astype(np.uint64)
        self.flows = np.zeros((rows, links), np.uint64)
        self.weights = np.zeros((rows, links), np.uint64)
        self.load = self.fixed.copy()
        self.cost = np.zeros(links, np.uint64)
        self.destinations = destinations.astype(np.uint32)
        self._arrays = {name: np.zeros(links, np.uint64) for name in ("factor", "slope", "most", "delay", "entering")}
        self.prices = Prices(
            load=pointer_to(self.load),
            cost=pointer_to(self.cost),
            power=pointer_to(_POWERS),
            place=pointer_to(layout.place),
            **{name: pointer_to(each) for name, each in self._arrays.items()},
        )
        self._scratch = _scratch(size, links)
        self._walk = _walk(size, links)

    def take(self, flows: Longs) -> None:
        """Take traffic by (row, link) in place of what there is."""
        self.flows[:] = flows
        self.load[:] = self.flows.sum(axis=0) + self.fixed
        compiled(reprice_all)(self.layout.graph, self.prices)

    @property
    def rows(self) -> int:
        """Number of destinations."""
        return len(self.destinations)

    def utilisation(self) -> FloatArray:
        """Return each link's utilisation, in the kernels' order."""
        return np.asarray(self.load / self.rates)

    def price(self, sharpness: int, scale: float, delay: FloatArray) -> None:
        """Set prices: congestion's rises by `sharpness` powers of two from no load to the scale."""
        utilisation = self.utilisation() / scale
        powers = np.exp2(sharpness * np.minimum(utilisation - 1.0, 0.0))
        congestion = 1.0 / (powers.sum() * self.rates * scale)
        whole = (1 << _COST_BITS) / max(float(congestion.max()), float(delay.max(initial=0.0)))
        self.prices.sharpness = sharpness
        self._arrays["factor"][:] = np.rint(congestion * whole)
        self._arrays["slope"][:] = np.rint(sharpness * 2.0 ** (STEPS + SLOPE_BITS) / (self.rates * scale))
        self._arrays["most"][:] = np.floor(self.rates * scale * ((sharpness + TOP) / sharpness))
        self._arrays["delay"][:] = np.maximum(np.rint(delay * whole), 1)
        compiled(reprice_all)(self.layout.graph, self.prices)

    def shift(self, first: int, last: int) -> None:
        """Move traffic of rows to cheaper paths."""
        compiled(shift_rows)(
            self.layout.graph, self._scratch, self.prices, self._walk,
            pointer_to(self.destinations), first, last, pointer_to(self.flows.reshape(-1)),
        )  # fmt: skip

    def tidy(self) -> None:
        """Remove all traffic that goes in a cycle."""
        compiled(tidy_rows)(self.layout.graph, self.prices, self._walk, self.rows, pointer_to(self.flows.reshape(-1)))

    def round(self, first: int, last: int, *, moves: bool = True) -> None:
        """Move traffic of rows to cheaper paths, if it `moves`, and divide it by whole weights."""
        compiled(round_rows)(
            self.layout.graph, self._scratch, self.prices, self._walk,
            pointer_to(self.destinations), first, last, *self._tables(), moves,
        )  # fmt: skip

    def spread(self) -> int:
        """Let weights make all traffic; return the first row with a cycle or without a path, else their number."""
        bad = compiled(spread_rows)(
            self.layout.graph, self.prices, self._walk, pointer_to(self.destinations), 0, self.rows, *self._tables()
        )
        return int(bad)

    def bound(self, costs: FloatArray) -> float:
        """Return the bound that any costs of links give: what all traffic costs at least over the cost of full links.

        No split has a lower maximum utilisation (duality of the linear program).
        """
        whole = np.maximum(np.rint(costs * ((1 << _COST_BITS) / (float(costs.max(initial=0.0)) or 1.0))), 1.0)
        before = self._arrays["entering"].copy()
        self._arrays["entering"][self.layout.place] = whole
        distance = np.empty(self.entering.shape, np.uint64)
        compiled(grow_rows)(
            self.layout.graph, self._scratch, self.prices,
            pointer_to(self.destinations), self.rows, pointer_to(distance.reshape(-1)),
        )  # fmt: skip
        self._arrays["entering"][:] = before
        least = float(np.where(self.entering > 0, distance, 0.0).reshape(-1) @ self.entering.reshape(-1).astype(float))
        return (least + float(whole @ self.fixed)) / float(whole @ self.rates)

    def weigh(self, shares: FloatArray) -> None:
        """Take the weights of shares by (row, the graph's link)."""
        self.weights[:] = np.rint(shares[:, self.layout.link] * (1 << _SHARE_BITS))

    def shares(self, weights: Longs, otherwise: FloatArray) -> FloatArray:
        """Return shares by (row, the graph's link); a switch without weights keeps those of `otherwise`.

        `weights` may be traffic.
        """
        layout = self.layout
        padded = np.concatenate([weights, np.zeros((len(weights), 1), np.uint64)], axis=1)
        total = np.add.reduceat(padded, layout.start, axis=1) * (layout.leaves > 0)
        total = total[:, layout.tail].astype(np.float64)
        result = otherwise.copy()
        result[:, layout.link] = np.where(total > 0, weights / np.maximum(total, 1.0), otherwise[:, layout.link])
        return result

    def _tables(self) -> tuple[Any, ...]:
        return tuple(pointer_to(each.reshape(-1)) for each in (self.flows, self.entering, self.weights))


def _scratch(size: int, links: int) -> Scratch:
    places = 2 * links + size + 1
    longs = {name: pointer_to(np.zeros(places, np.uint64)) for name in ("keys",)}
    heap = Heap(switches=pointer_to(np.zeros(places, np.uint32)), **longs)
    queue = Buckets(
        first=pointer_to(np.full(64, NO_ENTRY, np.uint32)),
        key=pointer_to(np.zeros(places, np.uint64)),
        switch=pointer_to(np.zeros(places, np.uint32)),
        following=pointer_to(np.zeros(places, np.uint32)),
    )
    return Scratch(
        heap=heap,
        queue=queue,
        listed=pointer_to(np.zeros(size, np.uint32)),
        mark=pointer_to(np.zeros(size, np.uint32)),
        before=pointer_to(np.zeros(size, np.uint64)),
    )


def _walk(size: int, links: int) -> Walk:
    longs = {name: np.zeros(size, np.uint64) for name in ("distance", "dearest", "passing", "stamp")}
    longs["rest"] = np.zeros(links, np.uint64)
    words = {
        name: np.zeros(size + 1, np.uint32)
        for name in ("towards", "along", "order", "waiting", "position", "tree", "used")
    }
    return Walk(**{name: pointer_to(each) for name, each in (longs | words).items()})
