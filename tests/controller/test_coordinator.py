"""Whatever switches die, return or restart and whatever routes come meanwhile, the tables end up as they should be."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.errors import ControllerError
from controller.intents import FlowSpec, Route, RouteSet
from controller.tables.flow_paths import flow_path_entities
from dataplane.fabric.topology import Topology
from tests.controller.worlds import World, equal, fixed, route_sets, routes_of, weighted

events = st.one_of(
    route_sets(),
    st.tuples(st.sampled_from(["leave", "restart", "return", "cut"]), st.sampled_from("abcd")),
    st.just("step"),
)


@settings(max_examples=60, deadline=None)
@given(history=st.lists(events, max_size=25), last=route_sets())
def test_tables_converge_after_any_history(diamond: Topology, history: list[object], last: RouteSet) -> None:
    world = World(diamond)
    for event in history:
        world.happen(event)
    world.happen(last)
    for name in "abcd":
        if name not in world.coordinator.live:
            world.connect(name)
    for _ in range(40):
        if not world.step():
            break
    flows = flow_path_entities(diamond, last)
    for name, tables in world.tables.items():
        assert equal(tables, {**fixed(world.coordinator.base[name]), **routes_of(diamond, last)[name], **flows[name]})
    assert world.coordinator.plan().pending == frozenset()


def test_routes_that_cannot_be_change_nothing(diamond: Topology) -> None:
    world = World(diamond)
    good = RouteSet(1, (Route(FlowSpec("ha", "hd"), ("a", "b", "d")),), weighted(("a d b1c3",)))
    world.happen(good)
    with pytest.raises(ControllerError, match="there is no link a->d"):
        world.coordinator.want(RouteSet(9, (Route(FlowSpec("ha", "hd"), ("a", "d")),)))
    with pytest.raises(ControllerError, match=r"weighted routes to d: packets at . may never arrive"):
        world.coordinator.want(RouteSet(9, (), weighted(("b d c1", "c d b1"))))
    assert world.coordinator.routes == good


def test_nothing_is_removed_before_anybody_has_said_which_routes_are_wanted(diamond: Topology) -> None:
    world = World(diamond)
    flows = flow_path_entities(diamond, RouteSet(1, (Route(FlowSpec("ha", "hd"), ("a", "b", "d")),)))
    world.tables.update({name: {**world.coordinator.base[name], **flows[name]} for name in flows})
    for name in "abcd":
        assert world.coordinator.connected(name, world.tables[name]) == []
        world.coordinator.reconciled(name)
    assert world.coordinator.next_step() is None
