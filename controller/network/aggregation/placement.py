"""Placement of a job's sums: at the root closest to its children, over links that are not busy.

A switch that has room and at least two attached workers becomes a leaf and forwards one vector instead of many; the
other workers contribute to the root directly. The best root has the least sum, over its children, of the paths there
and back; each link counts with its mean delay over its free share. A root whose cells are all taken except the job's
own counts twice, so that jobs spread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from collectors.values import LinkState, Snapshot
from controller.common.errors import ControllerError
from controller.network.aggregation.cells import free_block
from controller.network.base_paths import NextHops
from controller.network.intents import AggregationTree, Leaf
from controller.network.tables.aggregation import CELLS, MAX_CHILDREN, MAX_JOBS, Block
from controller.network.tables.routing import port_towards, ports_towards
from dataplane.topology.values import Endpoint, LinkKey, Topology

_MOST_SHOWN = 4
_LEAST_FREE = 0.05
"""Smallest free share of a link that counts, so that a full one has 20 times its delay, not an infinite one."""


def place(
    topology: Topology,
    hops: NextHops,
    snapshot: Snapshot,
    hosts: Sequence[str],
    *,
    cells: int,
    taken: Mapping[str, Collection[Block]],
    banned: Collection[str] = (),
) -> AggregationTree:
    """Return the best tree over these workers, `cells` in each of its switches, and none that is banned (away).

    Raise ControllerError, with a reason for each of the first switches, if none has room or reaches all workers.
    """
    racks: dict[str, list[str]] = {}
    for host in hosts:
        if host not in topology.host:
            raise ControllerError(f"aggregation: there is no host {host!r}")
        racks.setdefault(topology.attachment[host].node, []).append(host)
    full = {node.name: _problem(node.name, taken.get(node.name, ()), cells, banned) for node in topology.switches}
    able = [switch for switch, problem in full.items() if problem is None]
    # A leaf with a single worker would add nothing up.
    leaves = {switch for switch in able if 2 <= len(racks.get(switch, ())) <= MAX_CHILDREN}
    trees = [
        (cost, topology.switch[root].node_id, tree)
        for root in able
        for tree in (_tree(root, racks, leaves),)
        if len(tree.children) <= MAX_CHILDREN and (cost := cost_of(topology, hops, snapshot, tree, taken)) is not None
    ]
    if not trees:
        far = f"has more than {MAX_CHILDREN} children, or does not reach all of {len(hosts)} workers"
        shown = [f"{switch} {problem or far}" for switch, problem in full.items()]
        rest = f", and {len(shown) - _MOST_SHOWN} more" if len(shown) > _MOST_SHOWN else ""
        raise ControllerError(f"aggregation: no switch can be a root: {', '.join(shown[:_MOST_SHOWN])}{rest}")
    # On a tie the lowest id wins; trees themselves cannot be compared.
    return min(trees, key=lambda ranked: ranked[:2])[2]


def _problem(switch: str, taken: Collection[Block], cells: int, banned: Collection[str]) -> str | None:
    """Return why a switch cannot have one more job of `cells` cells, None if it can."""
    if switch in banned:
        return "is unreachable"
    if len(taken) >= MAX_JOBS:
        return f"already has {MAX_JOBS} jobs"
    if free_block(taken, cells) is None:
        return f"has no {cells} contiguous cells free ({sum(block.cells for block in taken)} of {CELLS} are in use)"
    return None


def _tree(root: str, racks: Mapping[str, Sequence[str]], leaves: Collection[str]) -> AggregationTree:
    children: list[str | Leaf] = []
    for switch, workers in racks.items():
        if switch != root and switch in leaves:
            children.append(Leaf(switch, tuple(workers)))
        else:
            children.extend(workers)
    return AggregationTree(root, tuple(children))


def cost_of(
    topology: Topology,
    hops: NextHops,
    snapshot: Snapshot,
    tree: AggregationTree,
    taken: Mapping[str, Collection[Block]],
) -> float | None:
    """Return the cost of a tree (ns), None if a child cannot be reached."""
    cost = 0.0
    for child in tree.children:
        name = child.switch if isinstance(child, Leaf) else child
        for start, end in ((tree.root, name), (name, tree.root)):
            links = list(links_between(topology, hops, start, end))
            if not links or links[-1].dst != end:
                return None
            cost += sum(_link_cost(snapshot.links[link]) for link in links)
        if isinstance(child, Leaf):
            edges = [key for host in child.workers for key in (LinkKey(name, host), LinkKey(host, name))]
            cost += sum(_link_cost(snapshot.links[link]) for link in edges)
    used = sum(block.cells for block in taken.get(tree.root, ()))
    return cost * (1 + used / CELLS)


def links_between(topology: Topology, hops: NextHops, start: str, end: str) -> Iterator[LinkKey]:
    """Yield the links that packets cross, as far as there is a path."""
    at = start
    while at != end:
        peer = _next(topology, hops, at, end)
        if peer is None:
            return
        yield LinkKey(at, peer.node)
        at = peer.node


def _next(topology: Topology, hops: NextHops, at: str, end: str) -> Endpoint | None:
    if at in topology.host:
        return topology.attachment[at]
    if end in topology.host:
        ports = ports_towards(topology, hops, at, end)
        port = ports[0] if ports else None
    else:
        port = port_towards(topology, hops, at, end)
    return None if port is None else topology.neighbours[at][port]


def _link_cost(link: LinkState) -> float:
    return link.delay_mean_ns / max(1 - link.utilisation, _LEAST_FREE)
