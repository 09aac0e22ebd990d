"""The whole linear program of traffic engineering: the optimum that searches and mixtures of trees are compared with.

It has traffic for every destination over every link, and takes seconds from a hundred switches on.

Stage one minimises the maximum utilisation U over all links: for each destination d and switch v other than d, what
leaves v for d less what enters v for d is the demand from v to d; for each link, the sum over all destinations is at
most U times its rate. Stage two keeps U (or a utilisation that is low enough anyway) as a bound and minimises the
propagation delay of all traffic, so that no packet makes a detour that lowers no maximum. Variables: destinations with
traffic times links; both stages are solved by HiGHS (scipy).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, sparse

from controller.common.errors import PathError
from controller.network.paths.engineering.values import FloatArray, SwitchGraph

_SLACK = 1e-6
"""Stage two may exceed stage one's utilisation by this share: solvers are exact to about 1e-7."""

_HOP_NS = 1.0
"""Cost of a link on top of its delay, so that links without delay are not used in loops."""


@dataclass(frozen=True, slots=True)
class Solution:
    """Traffic by (destination in question, link) in bit/s, and the least possible maximum utilisation."""

    destinations: tuple[int, ...]
    flows_bps: FloatArray
    max_utilisation: float


def solve(
    graph: SwitchGraph,
    demand_bps: FloatArray,
    destinations: Sequence[int],
    *,
    fixed_bps: FloatArray | None = None,
    enough: float = 0.0,
) -> Solution:
    """Return the flows towards `destinations` of least maximum utilisation and, among those, of least delay.

    `demand_bps[v, d]` is by switches; `fixed_bps` is load that stays on the links. Utilisation is not pressed below
    `enough` at the cost of delay. Raises PathError where a demand has no way.
    """
    wanted = tuple(map(int, destinations))
    links = len(graph.links)
    fixed = np.zeros(links) if fixed_bps is None else fixed_bps
    if not wanted or not demand_bps[:, wanted].any():
        flows = np.zeros((len(wanted), links))
        return Solution(wanted, flows, _utilisation(fixed, graph))
    # Bit/s of the fastest link are the unit: HiGHS's tolerances are absolute.
    unit_bps = float(graph.rate_bps.max())
    balance, wants = _balance(graph, demand_bps / unit_bps, wanted)
    carried = sparse.hstack([sparse.eye_array(links, format="csr")] * len(wanted), format="csr")
    rates = graph.rate_bps / unit_bps
    capacity = sparse.hstack([carried, sparse.csr_array(-rates.reshape(-1, 1))], format="csr")
    objective = np.zeros(len(wanted) * links + 1)
    objective[-1] = 1.0
    padded = sparse.hstack([balance, sparse.csr_array((balance.shape[0], 1))], format="csr")
    first = _run(objective, capacity, -fixed / unit_bps, padded, wants)
    least = float(first[-1])
    bound = max(least * (1 + _SLACK) + 1e-9, enough)
    room = np.maximum(bound * rates - fixed / unit_bps, 0.0)
    costs = np.tile(graph.delay_ns + _HOP_NS, len(wanted))
    second = _run(costs / costs.max(), carried, room, balance, wants)
    flows = second.reshape(len(wanted), links) * unit_bps
    return Solution(wanted, np.where(flows < 0, 0.0, flows), least)


def _balance(
    graph: SwitchGraph, demand: FloatArray, destinations: Sequence[int]
) -> tuple[sparse.csr_array, FloatArray]:
    """Return the rows "out less in is the demand" of each destination's own block, for all switches but itself."""
    switches, links = len(graph.switches), len(graph.links)
    number = np.arange(links)
    incidence = sparse.csr_array(
        (
            np.concatenate([np.ones(links), -np.ones(links)]),
            (np.concatenate([graph.tails, graph.heads]), np.concatenate([number, number])),
        ),
        shape=(switches, links),
    )
    others = [np.delete(np.arange(switches), destination) for destination in destinations]
    blocks = [incidence[rows] for rows in others]
    wants = np.concatenate([demand[rows, destination] for rows, destination in zip(others, destinations, strict=True)])
    return sparse.block_diag(blocks, format="csr"), wants


def _run(
    objective: FloatArray,
    at_most: sparse.csr_array,
    limits: FloatArray,
    equal: sparse.csr_array,
    values: FloatArray,
) -> FloatArray:
    solution = optimize.linprog(  # type: ignore[call-overload]  # scipy-stubs know dense matrices only
        objective, A_ub=at_most, b_ub=limits, A_eq=equal, b_eq=values, bounds=(0, None), method="highs"
    )
    if solution.status == 2:
        raise PathError("traffic engineering: a demand has no path to its destination")
    if solution.x is None:
        raise PathError(f"traffic engineering: the linear program is not solved: {solution.message}")
    return np.asarray(solution.x, dtype=np.float64)


def _utilisation(loads_bps: FloatArray, graph: SwitchGraph) -> float:
    return float((loads_bps / graph.rate_bps).max(initial=0.0))
