"""Single paths."""

from __future__ import annotations

import networkx as nx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from controller.network.algorithms.costs import FORBIDDEN, Costs, delay_of, link_cost
from controller.network.algorithms.k_shortest import k_shortest
from controller.network.algorithms.link_table import LinkTable
from controller.network.algorithms.search import FoundPath, PathSearch
from tests.controller.network.algorithms.graphs import digraph, fabric, tables
from tests.reference import path_search as reference

A_COST = st.one_of(st.just(FORBIDDEN), st.integers(0, 6).map(link_cost))


@given(table=tables(), data=st.data())
def test_path_cost_matches_the_reference_with_any_estimate(table: LinkTable, data: st.DataObject) -> None:
    costs = np.array([data.draw(A_COST) for _ in table.links], np.uint64)
    cheaper = np.array([link_cost(data.draw(st.integers(0, 2))) for _ in table.links], np.uint64)
    src, dst = (data.draw(st.integers(0, len(table.switches) - 1)) for _ in range(2))
    search, plain = PathSearch(table), reference.path(table, costs, src, dst)
    for estimate in (None, search.distances(np.minimum(costs, cheaper), dst)):
        path = search.path(costs, src, dst, estimate)
        assert (path is None) == (plain is None)
        if path is not None and plain is not None:
            assert path.cost == plain.cost == sum(int(costs[row]) for row in path.rows)
            names = table.path(src, path.rows)
            assert (names[-1], len(set(names))) == (table.switches[dst], len(names))


def ends(table: LinkTable, data: st.DataObject) -> tuple[int, int]:
    """Draw two different switches."""
    src, dst = data.draw(st.permutations(range(len(table.switches))))[:2]
    return src, dst


def every_path(table: LinkTable, costs: Costs, src: int, dst: int) -> list[tuple[int, ...]]:
    """Return the rows of every simple path over usable links."""
    graph = digraph(table, costs)
    edges = nx.all_simple_edge_paths(graph, src, dst)
    return [tuple(graph.edges[edge]["row"] for edge in path) for path in edges]


@given(table=tables(), data=st.data())
def test_bounded_search_finds_the_best_path_within_its_bounds(table: LinkTable, data: st.DataObject) -> None:
    costs = np.array([data.draw(A_COST) for _ in table.links], np.uint64)
    width = np.array([data.draw(st.integers(0, 3)) for _ in table.links], np.int64)
    bound_ns, floor_bps = data.draw(st.integers(0, 12)), data.draw(st.integers(0, 3))
    src, dst = ends(table, data)
    search = PathSearch(table)

    def figures(rows: tuple[int, ...]) -> tuple[int, int]:
        return -int(min(width[row] for row in rows)), sum(int(costs[row]) for row in rows)

    def shown(path: FoundPath | None) -> tuple[int, int] | None:
        return None if path is None else (figures(path.rows)[0], path.cost)

    every = [figures(rows) for rows in every_path(table, costs, src, dst)]
    assert shown(search.widest(costs, width, src, dst)) == min(every, default=None)
    quick = [figure for figure in every if delay_of(figure[1]) <= bound_ns]
    assert shown(search.widest_within(costs, width, src, dst, bound_ns)) == min(quick, default=None)
    wide = search.within_width(costs, width, src, dst, floor_bps)
    assert (None if wide is None else wide.cost) == min((c for w, c in every if -w >= floor_bps), default=None)
    assert search.widths(width, costs != FORBIDDEN, src)[dst] == max((-w for w, _ in every), default=0)


@given(table=tables(), data=st.data())
def test_the_k_shortest_paths_are_all_simple_paths_in_order(table: LinkTable, data: st.DataObject) -> None:
    costs = np.array([data.draw(A_COST) for _ in table.links], np.uint64)
    src, dst = ends(table, data)
    paths = k_shortest(PathSearch(table), costs, src, dst, 30)
    every = sorted(sum(int(costs[row]) for row in rows) for rows in every_path(table, costs, src, dst))
    assert [path.cost for path in paths] == every[:30]
    assert len({path.rows for path in paths}) == len(paths)
    assert {path.rows for path in paths} <= set(every_path(table, costs, src, dst))


def test_path_to_itself_is_empty_and_unlimited() -> None:
    table = LinkTable.of(fabric(2, [(0, 1, 5)]))
    search = PathSearch(table)
    assert k_shortest(search, table.costs(), 0, 0, 3) == (FoundPath((), 0),)
    assert search.widths(table.available_bps, table.alive, 0).tolist() == [(1 << 63) - 1, 10_000_000]
