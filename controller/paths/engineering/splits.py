"""From traffic on links to shares of next hops, and the shares of shortest paths and of ECMP to compare with."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np

from controller.paths.engineering.values import FloatArray, Splits, SwitchGraph

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
    """Return equal shares for all links on paths of least cost; costs (at least 0) are compared exactly, then hops."""
    shares = np.zeros((len(graph.switches), len(graph.links)))
    for destination in range(len(graph.switches)):
        far = _distances(graph, costs, destination)
        for place, leaving in enumerate(graph.leaving):
            if place == destination or place not in far:
                continue
            good = [int(link) for link in leaving if _through(graph, costs, far, int(link)) == far[place]]
            shares[destination, good] = 1.0 / len(good)
    return Splits(graph, shares)


def by_flows(graph: SwitchGraph, flows_bps: FloatArray, destinations: tuple[int, ...], otherwise: Splits) -> Splits:
    """Return shares in proportion to flows; switches without traffic for a destination keep those of `otherwise`.

    `flows_bps[k, link]` goes towards `destinations[k]`. Circles in the flows, which carry nothing anywhere, are taken
    out. The result has no cycle: traffic that meets the flows stays with them.
    """
    shares = otherwise.shares.copy()
    for row, destination in zip(flows_bps, destinations, strict=True):
        clean = _without_ends(graph, _without_circles(graph, _without_noise(graph, row)), destination)
        for place, leaving in enumerate(graph.leaving):
            total = clean[leaving].sum()
            if place != destination and total > 0:
                shares[destination, leaving] = clean[leaving] / total
    return Splits(graph, shares)


def _without_noise(graph: SwitchGraph, flows: FloatArray) -> FloatArray:
    """Drop trickles: a switch must not split traffic that it does not get."""
    clean = flows.copy()
    for leaving in graph.leaving:
        total = clean[leaving].sum()
        clean[leaving] = np.where(clean[leaving] < _LEAST_SHARE * total, 0.0, clean[leaving])
    return np.where(clean < _LEAST_SHARE * clean.max(initial=0.0), 0.0, clean)


def _without_circles(graph: SwitchGraph, flows: FloatArray) -> FloatArray:
    clean = flows.copy()
    while (circle := _circle(graph, clean)) is not None:
        clean[circle] -= clean[circle].min()
    return clean


def _without_ends(graph: SwitchGraph, flows: FloatArray, destination: int) -> FloatArray:
    """Drop what ends at switches on the way, where it was noise: with their usual ways it might come back."""
    clean = flows.copy()
    while True:
        goes_on = np.bincount(graph.tails, weights=clean, minlength=len(graph.switches)) > 0
        goes_on[destination] = True
        ends = (clean > 0) & ~goes_on[graph.heads]
        if not ends.any():
            return clean
        clean[ends] = 0.0


def _circle(graph: SwitchGraph, flows: FloatArray) -> list[int] | None:
    """Return the links of a cycle of positive flow, None if there is none (depth first, without recursion)."""
    done: set[int] = set()
    for start in range(len(graph.switches)):
        trail: list[int] = []
        on_trail = {start: 0}
        choices = [_used(graph, flows, start)]
        while choices and start not in done:
            link = next(choices[-1], None)
            if link is None:
                choices.pop()
                finished = int(graph.heads[trail.pop()]) if trail else start
                done.add(finished)
                on_trail.pop(finished, None)
                continue
            head = int(graph.heads[link])
            if head in on_trail:
                return [*trail[on_trail[head] :], link]
            if head not in done:
                trail.append(link)
                on_trail[head] = len(trail)
                choices.append(_used(graph, flows, head))
    return None


def _used(graph: SwitchGraph, flows: FloatArray, place: int) -> Iterator[int]:
    return (int(link) for link in graph.leaving[place] if flows[link] > 0)


def _distances(graph: SwitchGraph, costs: FloatArray, destination: int) -> dict[int, tuple[float, int]]:
    entering: list[list[int]] = [[] for _ in graph.switches]
    for link, head in enumerate(graph.heads):
        entering[head].append(link)
    far: dict[int, tuple[float, int]] = {}
    queue = [(0.0, 0, destination)]
    while queue:
        cost, hops, place = heapq.heappop(queue)
        if place in far:
            continue
        far[place] = cost, hops
        for link in entering[place]:
            tail = int(graph.tails[link])
            if tail not in far:
                heapq.heappush(queue, (cost + float(costs[link]), hops + 1, tail))
    return far


def _through(
    graph: SwitchGraph, costs: FloatArray, far: dict[int, tuple[float, int]], link: int
) -> tuple[float, int] | None:
    onward = far.get(int(graph.heads[link]))
    return None if onward is None else (onward[0] + float(costs[link]), onward[1] + 1)
