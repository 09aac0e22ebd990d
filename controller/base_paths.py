"""Shortest paths by configured propagation delay, then hops: what traffic follows when nobody decides otherwise.

Dead links are left out, where they are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

from controller.algorithms.costs import FORBIDDEN
from controller.algorithms.link_table import LinkTable
from controller.algorithms.trees import DestinationTrees
from dataplane.topology.values import DirectedLink, LinkKey, Topology

NextHops = Mapping[str, Mapping[str, tuple[DirectedLink, ...]]]
"""By destination switch, then by switch: the equally good links to leave by, in order of port."""


def next_hops(topology: Topology, down: Set[LinkKey] = frozenset()) -> NextHops:
    """Return, for every destination switch, every other switch's equal-cost links; unreachable ones are absent.

    None of them is among the links that are `down`.
    """
    table = LinkTable.of(topology)
    costs = table.configured_costs()
    costs[[table.link_number[key] for key in down if key in table.link_number]] = FORBIDDEN
    trees = DestinationTrees(table, costs)
    links = [topology.directed_links[key] for key in table.links]
    return {name: _towards(trees, links, number) for name, number in table.switch_number.items()}


def base_paths(hops: NextHops, src: str, dst: str) -> Iterator[tuple[str, ...]]:
    """Yield every equal-cost path between two switches, both ends included, in order of ports; none if unreachable."""
    if src == dst:
        yield (dst,)
        return
    for link in hops[dst].get(src, ()):
        for rest in base_paths(hops, link.head.node, dst):
            yield (src, *rest)


def _towards(
    trees: DestinationTrees, links: Sequence[DirectedLink], destination: int
) -> dict[str, tuple[DirectedLink, ...]]:
    found: dict[str, list[DirectedLink]] = {}
    for row in trees.tight_links(destination).tolist():
        found.setdefault(links[row].tail.node, []).append(links[row])
    return {name: tuple(equal) for name, equal in found.items()}
