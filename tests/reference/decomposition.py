"""Bounds of the least maximum utilisation where the whole linear program takes too long: column generation.

The program over trees is solved again and again, each time with the trees that were cheapest at its last prices. Its
value is that of some split; what all traffic costs at its prices, over what full links would cost, is a bound that no
split is below. Both close in on the optimum; minutes for 300 switches.
"""

from __future__ import annotations

import numpy as np

from controller.network.paths.engineering.program import Columns, Mixture, mixing
from controller.network.paths.engineering.search import Potential
from controller.network.paths.engineering.trees import cheapest_trees
from controller.network.paths.engineering.values import FloatArray, SwitchGraph

_SOFT = (40.0, 100.0)
"""Sharpness of substitute prices that give trees as well: the program's own lead back and forth."""


def optimum_between(
    graph: SwitchGraph, demand_bps: FloatArray, start_bps: FloatArray, *, within: float = 0.01, most: int = 12
) -> tuple[float, float]:
    """Return a bound of the least maximum utilisation and what a split reaches, nearer than `within` if `most` allow.

    `start_bps[k]` are the loads that some splits make of the traffic for the k-th destination with traffic.
    """
    unit = float(graph.rate_bps.max())
    rates, demand, nothing = graph.rate_bps / unit, demand_bps / unit, np.zeros(len(graph.links))
    wanted = np.flatnonzero(demand.sum(axis=0))
    entering = demand[:, wanted].T
    owners, loads = np.arange(len(wanted)), start_bps / unit
    total = loads.sum(axis=0)
    bound, reached = 0.0, float((total / rates).max())
    prices = [Potential(rates, nothing, sharpness, reached).congestion_prices(total) for sharpness in _SOFT]
    for _ in range(most):
        for each in prices:
            trees = cheapest_trees(graph, each + 1e-9 * each.max(), wanted)
            bound = max(bound, float((entering * trees.distance).sum() / ((each + 1e-9 * each.max()) @ rates)))
            owners = np.concatenate([owners, np.arange(len(wanted))])
            loads = np.concatenate([loads, trees.loads(graph, entering)])
        if reached <= bound * (1 + within):
            break
        columns = Columns(owners, loads, np.zeros(len(owners)))
        mixture = _mixture(columns, rates, total, reached)
        if mixture is None:
            break
        total = mixture.shares @ loads
        reached = min(reached, float((total / rates).max()))
        soft = [Potential(rates, nothing, sharpness, reached).congestion_prices(total) for sharpness in _SOFT]
        prices = [mixture.prices, *soft]
    return bound, reached


def _mixture(columns: Columns, rates: FloatArray, total: FloatArray, scale: float) -> Mixture | None:
    """Return the best mixture of columns."""
    passes = mixing(columns, rates, np.zeros_like(total), total, scale=scale, enough=0.0, limit_s=None)
    while True:
        try:
            next(passes)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
