"""The best run of a whole input found by a search with full knowledge: a bound to measure others against.

It proves nothing: there may be better runs. Its first part searches for prices of engines and ports at which choosing
the cheapest node, as predicted by the environment, makes short runs. Its second part moves single tasks, by simulated
annealing: first with prices deciding on the rest, then with the rest fixed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from controller.learning.environment.kernels.playing import PRICE_ONE, Play
from controller.learning.environment.kernels.structures import NONE
from controller.learning.environment.pool import Pool
from controller.learning.environment.values import EngineKind
from controller.learning.errors import LearningError
from controller.learning.inputs.values import Graphs, Longs
from dataplane.native import pointer_to

Figures = npt.NDArray[np.float64]

_PRICES: Final = len(EngineKind) + 2
"""Prices of the time for which each kind of engine is held, and for which ports receive and send data."""
_MOST_PRICE: Final = 256.0
_WARM, _COLD = 0.01, 0.0003
"""Excess over the best run up to which the search continues from a run, as a fraction: at first and at last."""


@dataclass(frozen=True, slots=True)
class Found:
    """The best run found: the node of each task, by number, and the mean response of what was submitted, in ns."""

    nodes: tuple[int, ...]
    mean_response_ns: float
    plays: int


@dataclass(frozen=True, slots=True)
class Plays:
    """Number of runs per part of a search."""

    prices: int = 2000
    priced: int = 2000
    fixed: int = 20_000

    def __post_init__(self) -> None:
        if min(self.prices, self.priced, self.fixed) < 0:
            raise LearningError(f"invalid numbers of runs: {self}")


def improve(pool: Pool, starts: Sequence[Sequence[int]], plays: Plays, seed: int, homes: int = 0) -> Found:
    """Return the best run found from several starts, each with a node for every task; homes are those of a seed.

    Prices need no start. Raise LearningError if no run decides on every task.
    """
    generator = np.random.default_rng(seed)
    runs = _Runs.of(pool, homes)
    none = np.full(len(pool.model.workload), NONE, np.int64)
    best = _Run(math.inf, none, np.zeros(_PRICES), none)
    for nodes in starts:
        best = min(best, runs.fixed(best, np.array(nodes, np.int64)), key=_cost)
    priced = _priced(runs, plays.prices, generator)
    priced = _annealed(runs, priced, plays.priced, generator, is_fixed=False)
    best = min(best, priced, key=_cost)
    best = _annealed(runs, runs.fixed(best, best.taken), plays.fixed, generator, is_fixed=True)
    if not math.isfinite(best.cost_ns):
        raise LearningError("no run found that decides on every task")
    return Found(tuple(best.taken.tolist()), best.cost_ns, runs.count)


def nodes_of(pool: Pool, actions: dict[int, int]) -> tuple[int, ...]:
    """Return the node of each task of a run, NONE for undecided ones."""
    return tuple(actions.get(task, NONE) for task in range(len(pool.model.workload)))


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """A run that was played: by prices where `given` is NONE; `taken` is the node of every task."""

    cost_ns: float
    given: Longs
    prices: Figures
    taken: Longs


def _cost(run: _Run) -> float:
    return run.cost_ns


@dataclass(slots=True, eq=False)
class _Runs:
    """Plays runs, and counts them."""

    pool: Pool
    homes: int
    graphs: Graphs
    kinds: npt.NDArray[np.int64]
    count: int = 0

    @classmethod
    def of(cls, pool: Pool, homes: int) -> Self:
        kinds = [tuple(EngineKind).index(engine.kind) for node in pool.model.system.nodes for engine in node.engines]
        return cls(pool, homes, Graphs.of(pool.model.workload), np.array(kinds, np.int64))

    def play(self, given: Longs, prices: Figures) -> _Run:
        """Return the result of given nodes of tasks, and of prices for the rest."""
        whole = np.minimum(prices * PRICE_ONE, _MOST_PRICE * PRICE_ONE).astype(np.int64)
        engine_prices, taken, ends = whole[self.kinds], np.full(len(given), NONE, np.int64), np.zeros_like(given)
        told = Play(
            given=pointer_to(given),
            taken=pointer_to(taken),
            end_ns=pointer_to(ends),
            engine_prices=pointer_to(engine_prices),
            arriving_price=int(whole[-2]),
            leaving_price=int(whole[-1]),
        )
        self.count += 1
        if not self.pool.play(told, self.homes) or (taken == NONE).any():
            return _Run(math.inf, given, prices, taken)
        last = np.zeros_like(self.graphs.submitted_ns)
        np.maximum.at(last, self.graphs.of_task, ends)
        return _Run(float((last - self.graphs.submitted_ns).mean()), given, prices, taken)

    def fixed(self, run: _Run, nodes: Longs) -> _Run:
        """Return the result of a node for every task."""
        return self.play(nodes.copy(), run.prices)


def _priced(runs: _Runs, plays: int, generator: np.random.Generator) -> _Run:
    """Return the best run by prices: fresh draws, or near the best ones so far."""
    free = np.full(len(runs.pool.model.workload), NONE, np.int64)
    best = runs.play(free, np.zeros(_PRICES))
    for _ in range(plays):
        if generator.random() < 0.3:
            prices = np.exp(generator.normal(-1, 2, len(best.prices))) * (generator.random(len(best.prices)) < 0.7)
        else:
            prices = best.prices * np.exp(generator.normal(0, 0.3, len(best.prices)))
        best = min(best, runs.play(free, prices), key=_cost)
    return best


def _annealed(runs: _Runs, start: _Run, plays: int, generator: np.random.Generator, *, is_fixed: bool) -> _Run:
    """Return the best run found by moving single tasks to other nodes, one to four of them at a time."""
    best = now = start
    for number in range(plays):
        given = now.given.copy()
        changed = generator.integers(len(given), size=int(generator.choice([1, 1, 2, 4])))
        given[changed] = generator.integers(runs.pool.actions, size=len(changed))
        if not is_fixed and generator.random() < 0.3:
            given[changed] = NONE
        tried = runs.play(given, now.prices)
        # Geometric cooling, in proportion to the best cost.
        heat = best.cost_ns * _WARM * (_COLD / _WARM) ** (number / plays) if math.isfinite(best.cost_ns) else 1.0
        if tried.cost_ns <= now.cost_ns or generator.random() < math.exp((now.cost_ns - tried.cost_ns) / heat):
            now = tried
        best = min(best, now, key=_cost)
    return best
