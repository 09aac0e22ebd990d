"""Base paths, which traffic follows by default: shortest by configured propagation delay, then hops.

Known dead links are left out, drained ones as far as possible.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from controller.network.algorithms.link_table import LinkTable
from controller.network.algorithms.trees import DestinationTrees
from dataplane.topology.values import DirectedLink, LinkKey, Topology

NextHops: TypeAlias = Mapping[str, Mapping[str, tuple[DirectedLink, ...]]]
"""By destination switch, then by switch: the equally good links to leave by, in order of port."""


def next_hops(topology: Topology, down: Set[LinkKey] = frozenset(), drained: Set[LinkKey] = frozenset()) -> BaseHops:
    """Return, for every destination switch, every other switch's equal-cost links; unreachable ones are absent.

    They exclude the links that are `down`, and use `drained` ones only where no other path exists.
    """
    table = LinkTable.of(topology)
    trees = DestinationTrees(table, table.costs_around(down, drained))
    return BaseHops(trees, [topology.directed_links[key] for key in table.links])


def base_paths(hops: NextHops, src: str, dst: str) -> Iterator[tuple[str, ...]]:
    """Yield every equal-cost path between two switches, both ends included, in order of ports; none if unreachable."""
    if src == dst:
        yield (dst,)
        return
    for link in hops[dst].get(src, ()):
        for rest in base_paths(hops, link.head.node, dst):
            yield (src, *rest)


class Arrows(NamedTuple):
    """Forwarding pairs for a destination: two columns of switch numbers, which are positions in the topology."""

    tails: NDArray[np.intp]
    heads: NDArray[np.intp]


class BaseHops(Mapping[str, Mapping[str, tuple[DirectedLink, ...]]]):
    """Next hops by destination, computed on first use: most switches have no hosts."""

    def __init__(self, trees: DestinationTrees, links: Sequence[DirectedLink]) -> None:
        self._trees, self._links = trees, links
        self._found: dict[str, Mapping[str, tuple[DirectedLink, ...]]] = {}
        self._port = np.array([link.tail.port for link in links], np.uint32)
        self._ports: dict[bytes, tuple[int, ...]] = {}

    def __getitem__(self, destination: str) -> Mapping[str, tuple[DirectedLink, ...]]:
        hops = self._found.get(destination)
        if hops is None:
            number = self._trees.table.switch_number[destination]
            hops = self._found[destination] = _towards(self._trees, self._links, number)
        return hops

    def ports(self, destination: str) -> dict[str, tuple[int, ...]]:
        """Return, by switch, the ports of `self[destination]`; equal ones are one object."""
        switches, ports = self._trees.table.switches, self._ports
        rows = self._trees.tight_links(self._trees.table.switch_number[destination])
        tails, packed = self._trees.table.tail[rows], self._port[rows].tobytes()
        starts = np.flatnonzero(np.append(True, tails[1:] != tails[:-1])) if rows.size else rows
        found: dict[str, tuple[int, ...]] = {}
        # The links of a switch follow each other, in order of port.
        for tail, start, end in zip(
            tails[starts].tolist(), starts.tolist(), [*starts[1:].tolist(), rows.size], strict=False
        ):
            name = packed[start * self._port.itemsize : end * self._port.itemsize]
            if name not in ports:
                ports[name] = tuple(self._port[rows[start:end]].tolist())
            found[switches[tail]] = ports[name]
        return found

    def arrows(self, destination: str) -> Arrows:
        """Return the next hops towards a destination as columns."""
        table = self._trees.table
        rows = self._trees.tight_links(table.switch_number[destination])
        return Arrows(table.tail[rows].astype(np.intp), table.head[rows].astype(np.intp))

    def __iter__(self) -> Iterator[str]:
        return iter(self._trees.table.switches)

    def __len__(self) -> int:
        return len(self._trees.table.switches)


def _towards(
    trees: DestinationTrees, links: Sequence[DirectedLink], destination: int
) -> dict[str, tuple[DirectedLink, ...]]:
    links_of: dict[str, list[DirectedLink]] = {}
    for row in trees.tight_links(destination).tolist():
        links_of.setdefault(links[row].tail.node, []).append(links[row])
    return {name: tuple(equal) for name, equal in links_of.items()}
