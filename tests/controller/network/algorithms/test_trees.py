"""Shortest path trees: whole, repaired, and the paths along them."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.network.algorithms.costs import FORBIDDEN, UNREACHABLE, delay_of, hops_of, link_cost
from controller.network.algorithms.link_table import LinkTable
from controller.network.algorithms.trees import DestinationTrees
from tests.controller.network.algorithms.graphs import digraph, fabric, tables
from tests.reference import path_search as reference

A_COST = st.one_of(st.just(FORBIDDEN), st.integers(0, 6).map(link_cost), st.integers(0, 1 << 31).map(link_cost))


@given(table=tables(), data=st.data())
def test_tree_distances_match_networkx_and_the_reference(table: LinkTable, data: st.DataObject) -> None:
    costs = np.array([data.draw(A_COST) for _ in table.links], np.uint64)
    trees = DestinationTrees(table, costs)
    backwards = digraph(table, costs).reverse()
    for dst in range(len(table.switches)):
        plain = nx.single_source_dijkstra_path_length(backwards, dst)
        assert trees.distance[dst].tolist() == [plain.get(src, UNREACHABLE) for src in range(len(table.switches))]
        assert trees.distance[dst].tolist() == reference.distances(table, costs, dst).tolist()


@given(table=tables(), data=st.data())
def test_repaired_trees_match_new_ones_and_report_changes(table: LinkTable, data: st.DataObject) -> None:
    trees = DestinationTrees(table, table.costs(), repair_share=1.0)
    rows = st.lists(st.integers(0, len(table.links) - 1), unique=True, max_size=4)
    for _ in range(data.draw(st.integers(1, 5))):
        before = trees.distance.copy()
        changed = data.draw(rows)
        pairs = trees.update(changed, [data.draw(A_COST) for _ in changed])
        for dst in range(len(table.switches)):
            assert trees.distance[dst].tolist() == reference.distances(table, trees.costs, dst).tolist()
        assert pairs.destination is not None
        assert pairs.switch is not None
        told = list(zip(pairs.destination.tolist(), pairs.switch.tolist(), strict=True))
        assert sorted(told) == list(map(tuple, np.argwhere(before != trees.distance).tolist()))


@given(table=tables(), data=st.data())
def test_tree_paths_cost_the_distance_and_take_lowest_ports(table: LinkTable, data: st.DataObject) -> None:
    trees = DestinationTrees(table, table.costs())
    src, dst = (data.draw(st.integers(0, len(table.switches) - 1)) for _ in range(2))
    rows, plain = trees.path(src, dst), reference.path(table, table.costs(), src, dst)
    assert (rows is None) == (plain is None) == (trees.cost(src, dst) is None)
    if rows is not None and plain is not None:
        assert (rows, trees.cost(src, dst)) == (plain.rows, plain.cost)
        assert sum(int(trees.costs[row]) for row in rows) == plain.cost
        assert all(table.head[near] == table.tail[far] for near, far in pairwise(rows))


def test_trees_are_rebuilt_when_too_much_changes() -> None:
    table = LinkTable.of(fabric(3, [(0, 1, 5), (1, 2, 5), (0, 2, 50)]))
    trees = DestinationTrees(table, table.costs(), repair_share=0.5)
    pairs = trees.update(range(len(table.links)), [link_cost(1)] * len(table.links))
    assert pairs.destination is None
    assert trees.cost(0, 2) == link_cost(1)


def test_threads_share_the_destinations() -> None:
    table = LinkTable.of(fabric(4, [(0, 1, 1), (1, 2, 1), (2, 3, 1), (0, 3, 9)]))
    trees = DestinationTrees(table, table.costs(), threads=3, repair_share=1.0)
    pairs = trees.update([0], [FORBIDDEN])
    alone = DestinationTrees(table, trees.costs)
    trees.close()
    assert (trees.distance == alone.distance).all()
    assert pairs.destination is not None
    assert len(pairs.destination) == 3


@pytest.mark.parametrize(("delay_ns", "hops"), [(0, 1), (7, 1), (1 << 31, 1)])
def test_a_cost_holds_delay_and_hops(delay_ns: int, hops: int) -> None:
    cost = link_cost(delay_ns)
    assert (delay_of(cost), hops_of(cost)) == (delay_ns, hops)
    assert (delay_of(3 * cost), hops_of(3 * cost)) == (3 * delay_ns, 3 * hops)
