"""The backup of a path."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from controller.network.algorithms.costs import FORBIDDEN
from controller.network.algorithms.disjoint import disjoint_backup
from controller.network.algorithms.link_table import LinkTable
from controller.network.algorithms.search import PathSearch
from tests.controller.network.algorithms.graphs import digraph, fabric, tables


@given(table=tables(), data=st.data())
def test_backup_shares_least_and_then_costs_least(table: LinkTable, data: st.DataObject) -> None:
    src, dst = data.draw(st.permutations(range(len(table.switches))))[:2]
    graph, search = digraph(table, table.costs()), PathSearch(table)
    primary = search.path(table.costs(), src, dst)
    if primary is None:
        return
    inner = {int(table.head[row]) for row in primary.rows[:-1]}
    cables = {frozenset((int(table.tail[row]), int(table.head[row]))) for row in primary.rows}

    def rank(path: list[int]) -> tuple[int, int, int]:
        steps = list(pairwise(path))
        shared = sum(frozenset(step) in cables for step in steps)
        return shared, len(inner & set(path[1:-1])), sum(graph.edges[step]["weight"] for step in steps)

    own = [src, *(int(table.head[row]) for row in primary.rows)]
    best = min((rank(path) for path in nx.all_simple_paths(graph, src, dst) if path != own), default=None)
    backup = disjoint_backup(search, table.costs(), src, dst, primary.rows)
    if backup is None:
        assert best is None or best[0] == len(primary.rows)
    else:
        cost = sum(int(table.costs()[row]) for row in backup.rows)
        assert (backup.shared_cables, backup.shared_switches, cost) == best


def test_a_dead_link_is_in_no_backup() -> None:
    table = LinkTable.of(fabric(4, [(0, 1, 1), (1, 3, 1), (0, 2, 2), (2, 3, 2), (1, 2, 1)]))
    table.alive[table.link_number[table.links[table.rows(("s2", "s3"))[0]]]] = False
    backup = disjoint_backup(PathSearch(table), table.costs(), 0, 3, table.rows(("s0", "s1", "s3")))
    assert backup is not None
    assert table.path(0, backup.rows) == ("s0", "s2", "s1", "s3")
    assert (backup.shared_cables, backup.shared_switches, backup.disjoint) == (1, 1, False)


def test_large_delays_leave_room_for_the_penalties() -> None:
    table = LinkTable.of(fabric(3, [(0, 1, 1 << 31), (1, 2, 1 << 31), (0, 2, 1 << 31)]))
    assert (table.costs() != FORBIDDEN).all()
    backup = disjoint_backup(PathSearch(table), table.costs(), 0, 2, np.array([table.rows(("s0", "s2"))[0]]))
    assert backup is not None
    assert table.path(0, backup.rows) == ("s0", "s1", "s2")
