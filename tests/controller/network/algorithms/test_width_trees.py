"""Widest paths between all switches: whole and repaired."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from controller.network.algorithms.link_table import LinkTable
from controller.network.algorithms.width_trees import WidthTrees
from tests.controller.network.algorithms.graphs import fabric, tables
from tests.reference import path_search as reference


@given(table=tables(), data=st.data(), repair_share=st.sampled_from([0.0, 1.0]))
def test_widths_are_those_of_the_reference_after_every_change(
    table: LinkTable, data: st.DataObject, repair_share: float
) -> None:
    size = len(table.links)
    widths = np.array([data.draw(st.integers(0, 4)) for _ in range(size)], np.int64)
    usable = np.array([data.draw(st.booleans()) for _ in range(size)])
    trees = WidthTrees(table, widths, usable, repair_share=repair_share)
    for _ in range(data.draw(st.integers(1, 5))):
        for row in data.draw(st.lists(st.integers(0, size - 1), max_size=3)):
            widths[row] = data.draw(st.integers(0, 1 << 40))
            usable[row] = not usable[row]
        trees.update(widths, usable)
        for src in range(len(table.switches)):
            assert trees.width[src].tolist() == reference.widths(table, np.where(usable, widths, 0), src).tolist()


def test_subtree_below_a_narrowed_link_finds_another_path() -> None:
    table = LinkTable.of(fabric(4, [(0, 1, 1), (1, 2, 1), (2, 3, 1), (0, 2, 1)]))
    widths = np.full(len(table.links), 9, np.int64)
    widths[table.rows(("s0", "s2"))] = 7
    trees = WidthTrees(table, widths, table.alive, repair_share=1.0)
    assert trees.width[0, 1:].tolist() == [9, 9, 9]
    widths[table.rows(("s0", "s1"))] = 5
    trees.update(widths, table.alive)
    assert trees.width[0, 1:].tolist() == [7, 7, 7]
