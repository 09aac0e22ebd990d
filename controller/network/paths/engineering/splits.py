"""From traffic on links to shares of next hops, and the shares of shortest paths and of ECMP to compare with."""

from __future__ import annotations

import numpy as np

from controller.network.paths.engineering.trees import cheapest_trees
from controller.network.paths.engineering.values import FloatArray, IntArray, Splits, SwitchGraph

_LEAST_SHARE = 1e-6
"""A smaller share of a switch's traffic is the solver's noise."""


def shortest(graph: SwitchGraph, costs: FloatArray) -> Splits:
    """Return one path of least cost for every pair of switches: the first link of equally good ones."""
    even = ecmp(graph, costs)
    shares = np.zeros_like(even.shares)
    for destination in range(len(graph.switches)):
        for leaving in graph.leaving:
            good = leaving[even.shares[destination, leaving] > 0]
            if len(good):
                shares[destination, good[0]] = 1.0
    return Splits(graph, shares)


def ecmp(graph: SwitchGraph, costs: FloatArray) -> Splits:
    """Return equal shares for all links on paths of least cost, then of fewest hops.

    Costs are at least 0; whole numbers are compared exactly.
    """
    size = len(graph.switches)
    # One number for cost and hops: a path has fewer hops than there are switches.
    combined = costs * size + 1.0
    distance = cheapest_trees(graph, combined, np.arange(size)).distance
    beyond = distance[:, graph.heads] + combined
    is_good = (beyond == distance[:, graph.tails]) & np.isfinite(beyond)
    return Splits(graph, is_good / np.maximum(_by_tail(graph, is_good.astype(np.float64)), 1.0))


def by_flows(graph: SwitchGraph, flows_bps: FloatArray, destinations: tuple[int, ...], otherwise: Splits) -> Splits:
    """Return shares in proportion to flows; switches without traffic for a destination keep those of `otherwise`.

    `flows_bps[k, link]` goes towards `destinations[k]`. Cycles in the flows, which carry nothing anywhere, are removed.
    The result has no cycle: traffic that meets the flows stays with them.
    """
    shares = otherwise.shares.copy()
    if destinations:
        rows = np.array(destinations)
        shares[rows] = shares_of_flows(graph, flows_bps, rows, shares[rows])
    return Splits(graph, shares)


def shares_of_flows(graph: SwitchGraph, flows: FloatArray, destinations: IntArray, otherwise: FloatArray) -> FloatArray:
    """Return shares by (row, link) as `by_flows` does; `otherwise` has a row for each destination, too."""
    clean = _without_noise(graph, flows)
    # Most cycles are links used both ways.
    back = graph.link_between[graph.heads, graph.tails]
    both = np.where(back >= 0, np.minimum(clean, clean[:, back]), 0.0)
    clean = clean - both
    for row in np.flatnonzero(_has_circle(graph, clean)):
        clean[row] = _without_circles(graph, clean[row])
    clean = _without_ends(graph, clean, destinations)
    total = _by_tail(graph, clean)
    own = graph.tails == destinations[:, None]
    return np.where((total > 0) & ~own, clean / np.where(total > 0, total, 1.0), otherwise)


def _by_tail(graph: SwitchGraph, values: FloatArray) -> FloatArray:
    """Return, for each row and link, the sum over all links that leave the same switch."""
    padded = np.concatenate([values, np.zeros((len(values), 1))], axis=1)
    return np.asarray(padded[:, graph.leaving_padded].sum(axis=2)[:, graph.tails])


def _without_noise(graph: SwitchGraph, flows: FloatArray) -> FloatArray:
    """Drop trickles: a switch must not split traffic that it does not receive."""
    most = flows.max(axis=1, initial=0.0, keepdims=True)
    clean = np.where(flows < _LEAST_SHARE * _by_tail(graph, flows), 0.0, flows)
    return np.where(clean < _LEAST_SHARE * most, 0.0, clean)


def _has_circle(graph: SwitchGraph, flows: FloatArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which rows have a cycle of positive flow: switches that nothing leads to are taken away until none is."""
    used, rows, size = flows > 0, len(flows), len(graph.switches)
    while True:
        entered = np.zeros((rows, size), dtype=bool)
        row, link = np.nonzero(used)
        entered[row, graph.heads[link]] = True
        kept = used & entered[:, graph.tails]
        if np.count_nonzero(kept) == len(row):
            return np.asarray(kept.any(axis=1))
        used = kept


def _without_circles(graph: SwitchGraph, flows: FloatArray) -> FloatArray:
    """Take out the flow of each cycle, depth first; switches are done once no cycle can pass them any more."""
    left, tails, heads = flows.tolist(), graph.tails.tolist(), graph.heads.tolist()
    # Reversed, because links are popped from the end.
    open_links = [links.tolist()[::-1] for links in graph.leaving]
    done: set[int] = set()
    for start in range(len(graph.switches)):
        trail: list[int] = []
        depth = {start: 0}
        switch = start
        while start not in done:
            links = open_links[switch]
            while links and (left[links[-1]] <= 0 or heads[links[-1]] in done):
                links.pop()
            if not links:
                done.add(switch)
                del depth[switch]
                switch = tails[trail.pop()] if trail else switch
            elif heads[links[-1]] in depth:
                switch = heads[links[-1]]
                circle = [*trail[depth[switch] :], links[-1]]
                least = min(left[link] for link in circle)
                for link in circle:
                    left[link] -= least
                for link in trail[depth[switch] :]:
                    del depth[heads[link]]
                del trail[depth[switch] :]
            else:
                trail.append(links[-1])
                switch = heads[links[-1]]
                depth[switch] = len(trail)
    return np.array(left)


def _without_ends(graph: SwitchGraph, flows: FloatArray, destinations: IntArray) -> FloatArray:
    """Drop flows that end at intermediate switches, as noise: by the usual routes from there they might loop."""
    clean, rows = flows.copy(), np.arange(len(flows))
    while True:
        goes_on = np.zeros((len(rows), len(graph.switches)), dtype=bool)
        row, link = np.nonzero(clean > 0)
        goes_on[row, graph.tails[link]] = True
        goes_on[rows, destinations] = True
        ends = (clean > 0) & ~goes_on[:, graph.heads]
        if not ends.any():
            return clean
        clean[ends] = 0.0
