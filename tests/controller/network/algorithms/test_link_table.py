"""The columns of a topology's links."""

from __future__ import annotations

import pytest
from hypothesis import given

from controller.common.errors import PathError
from controller.network.algorithms.costs import FORBIDDEN
from controller.network.algorithms.link_table import LinkTable
from dataplane.topology.values import LinkKey, Topology
from tests.controller.network.algorithms.graphs import tables


def test_link_table_orders_rows_and_omits_host_links(diamond: Topology) -> None:
    table = LinkTable.of(diamond)
    assert [str(key) for key in table.links[:5]] == ["a->b", "a->c", "b->a", "b->d", "b->c"]
    ports = [diamond.directed_links[key].tail.port for key in table.links[:5]]
    assert ports == [2, 3, 2, 3, 4]
    assert (len(table.links), table.switches) == (10, ("a", "b", "c", "d"))


@given(table=tables())
def test_every_link_leaves_its_tail_and_enters_its_head(table: LinkTable) -> None:
    leaving = [row for switch in range(len(table.switches)) for row in table.leaving(switch)]
    assert leaving == list(range(len(table.links)))
    for switch in range(len(table.switches)):
        assert all(table.tail[row] == switch for row in table.leaving(switch))
        assert table.entering(switch).tolist() == [row for row, head in enumerate(table.head) if head == switch]


def test_names_become_rows_and_rows_names(diamond: Topology) -> None:
    table = LinkTable.of(diamond)
    rows = table.rows(("a", "b", "d"))
    assert [table.links[row] for row in rows] == [LinkKey("a", "b"), LinkKey("b", "d")]
    assert table.path(0, rows) == ("a", "b", "d")
    with pytest.raises(PathError, match="there is no link a->d"):
        table.rows(("a", "d"))


def test_a_dead_link_is_forbidden_but_keeps_its_configured_cost(diamond: Topology) -> None:
    table = LinkTable.of(diamond)
    table.alive[0] = False
    assert table.costs()[0] == FORBIDDEN
    assert table.configured_costs()[0] != FORBIDDEN
