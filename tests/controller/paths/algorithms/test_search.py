"""Single paths."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from controller.paths.algorithms import reference
from controller.paths.algorithms.costs import FORBIDDEN, link_cost
from controller.paths.algorithms.link_table import LinkTable
from controller.paths.algorithms.search import PathSearch
from tests.controller.paths.algorithms.graphs import tables

A_COST = st.one_of(st.just(FORBIDDEN), st.integers(0, 6).map(link_cost))


@given(table=tables(), data=st.data())
def test_a_path_costs_what_the_reference_says_with_and_without_an_estimate(
    table: LinkTable, data: st.DataObject
) -> None:
    costs = np.array([data.draw(A_COST) for _ in table.links], np.uint64)
    cheaper = np.array([link_cost(data.draw(st.integers(0, 2))) for _ in table.links], np.uint64)
    src, dst = (data.draw(st.integers(0, len(table.switches) - 1)) for _ in range(2))
    search, plain = PathSearch(table), reference.path(table, costs, src, dst)
    for estimate in (None, search.distances(np.minimum(costs, cheaper), dst)):
        found = search.path(costs, src, dst, estimate)
        assert (found is None) == (plain is None)
        if found is not None and plain is not None:
            assert found.cost == plain.cost == sum(int(costs[row]) for row in found.rows)
            names = table.path(src, found.rows)
            assert (names[-1], len(set(names))) == (table.switches[dst], len(names))
