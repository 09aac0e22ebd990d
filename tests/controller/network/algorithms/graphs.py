"""Small random fabrics for the tests of the path algorithms."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

import networkx as nx
from hypothesis import strategies as st

from controller.network.algorithms.costs import FORBIDDEN, Costs
from controller.network.algorithms.link_table import LinkTable
from dataplane.topology.values import Endpoint, Link, SwitchNode, Topology

Cable = tuple[int, int, int]
"""Two switches and the delay between them, ns."""

MAX_SWITCHES = 6


def fabric(switches: int, cables: Iterable[Cable], rate_bps: int = 10_000_000) -> Topology:
    """Return a fabric without hosts: switches s0, s1, .. and cables between them."""
    ports = [0] * switches
    links = []
    for a, b, delay_ns in cables:
        ports[a] += 1
        ports[b] += 1
        links.append(Link(Endpoint(f"s{a}", ports[a]), Endpoint(f"s{b}", ports[b]), rate_bps, delay_ns, 64))
    nodes = tuple(SwitchNode(f"s{number}", number + 1) for number in range(switches))
    return Topology("random", nodes, (), tuple(links))


@st.composite
def tables(draw: st.DrawFn, delays_ns: st.SearchStrategy[int] = st.integers(0, 4)) -> LinkTable:  # noqa: B008
    """Draw the links of a fabric, connected or not; few different delays make many ties."""
    switches = draw(st.integers(2, MAX_SWITCHES))
    pairs = draw(st.lists(st.sampled_from(list(combinations(range(switches), 2))), min_size=1, unique=True))
    return LinkTable.of(fabric(switches, [(a, b, draw(delays_ns)) for a, b in pairs]))


def digraph(table: LinkTable, costs: Costs) -> nx.DiGraph:
    """Return the usable links for networkx."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(table.switches)))
    for row, cost in enumerate(costs):
        if cost != FORBIDDEN:
            graph.add_edge(int(table.tail[row]), int(table.head[row]), weight=int(cost), row=row)
    return graph
