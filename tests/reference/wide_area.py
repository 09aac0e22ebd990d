"""Wide area networks of any size to try traffic engineering on: random graphs after Waxman, one for each seed."""

from __future__ import annotations

import numpy as np

from dataplane.topology.schema import DefaultsSpec, LinkDefaults, LinkSpec, SwitchSpec, TopologySpec, resolve_generated
from dataplane.topology.values import Topology

WIDTH_KM, HEIGHT_KM = 4000.0, 2500.0
NS_PER_KM = 5000.0
DEGREE = 4.0
"""Links of a switch in the mean."""
REACH = 0.08
"""Decay of link probability with length, as a share of the greatest distance (Waxman's alpha)."""


def wide_area_network(switches: int, seed: int, rates_gbps: tuple[int, ...] = (100,)) -> Topology:
    """Return switches at random places in a rectangle, joined by a shortest tree and by links that are mostly short.

    A link's delay is that of light in fibre on the straight line, its rate drawn from `rates_gbps`.
    """
    rng = np.random.default_rng(seed)
    places = rng.random((switches, 2)) * (WIDTH_KM, HEIGHT_KM)
    distance = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1))
    cables = _tree(distance)
    pairs = [(a, b) for a in range(switches) for b in range(a + 1, switches)]
    reach_km = REACH * distance.max()
    odds = np.exp([-distance[pair] / reach_km for pair in pairs])
    # Draws without replacement, in proportion to the odds (Efraimidis and Spirakis).
    for index in np.argsort(-np.log(rng.random(len(pairs))) / odds):
        if len(cables) >= DEGREE * switches / 2:
            break
        cables.add(pairs[index])
    links = [
        LinkSpec(
            a=f"s{a + 1}",
            b=f"s{b + 1}",
            rate=f"{rng.choice(rates_gbps)} Gbit/s",
            delay=f"{round(distance[a, b] * NS_PER_KM)} ns",
        )
        for a, b in sorted(cables)
    ]
    return resolve_generated(
        TopologySpec(
            millrace=1,
            name=f"wan-{switches}-{seed}",
            switches=[SwitchSpec(name=f"s{number + 1}") for number in range(switches)],
            links=links,
            defaults=DefaultsSpec(link=LinkDefaults(rate="100 Gbit/s", delay="1 ms")),
        )
    )


def _tree(distance: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> set[tuple[int, int]]:
    """Return the edges of a least spanning tree (Prim)."""
    edges: set[tuple[int, int]] = set()
    nearest, inside = np.zeros(len(distance), dtype=int), {0}
    while len(inside) < len(distance):
        outside = [index for index in range(len(distance)) if index not in inside]
        new = min(outside, key=lambda index: float(distance[index, nearest[index]]))
        edges.add((min(new, int(nearest[new])), max(new, int(nearest[new]))))
        inside.add(new)
        closer = distance[:, new] < distance[np.arange(len(distance)), nearest]
        nearest[closer] = new
    return edges
