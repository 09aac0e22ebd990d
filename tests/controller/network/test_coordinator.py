"""Whichever switches die, return or restart and whatever routes arrive, the tables converge to the desired state."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.common.errors import ControllerError
from controller.network.aggregation.settings import AggregationSettings
from controller.network.features import Features
from controller.network.intents import FlowSpec, Route, RouteSet
from controller.network.owners.telemetry import Telemetry
from controller.network.reconcile import apply
from controller.network.tables.entities import Entities
from controller.network.tables.flow_paths import flow_path_entities
from controller.network.tables.routing import IPV4
from controller.network.tables.telemetry.int_watch import Watch
from dataplane.topology.values import Topology
from tests.controller.network.base_tables import base_entities
from tests.controller.network.fabric_tables import World, equal, fixed, route_sets, routes_of, weighted

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
        assert equal(tables, {**fixed(base_entities(diamond)[name]), **routes_of(diamond, last)[name], **flows[name]})
    assert world.coordinator.plan().pending == frozenset()


def test_routes_that_cannot_be_change_nothing(diamond: Topology) -> None:
    world = World(diamond)
    good = RouteSet(1, (Route(FlowSpec("ha", "hd"), ("a", "b", "d")),), weighted(("a d b1c3",)))
    world.happen(good)
    with pytest.raises(ControllerError, match="there is no link a->d"):
        world.features.want(RouteSet(9, (Route(FlowSpec("ha", "hd"), ("a", "d")),)))
    with pytest.raises(ControllerError, match=r"weighted routes to d: packets at . may loop"):
        world.features.want(RouteSet(9, (), weighted(("b d c1", "c d b1"))))
    assert world.features.route_set == good


def test_nothing_is_removed_before_routes_are_known(diamond: Topology) -> None:
    world = World(diamond)
    flows = flow_path_entities(diamond, RouteSet(1, (Route(FlowSpec("ha", "hd"), ("a", "b", "d")),)))
    world.tables.update({name: {**base_entities(diamond)[name], **flows[name]} for name in flows})
    for name in "abcd":
        assert world.coordinator.connected(name, world.tables[name]) == []
        world.coordinator.reconciled(name)
    assert world.coordinator.next_step() is None


def test_rules_of_watches_leave_room_for_those_that_spare_sums(diamond: Topology) -> None:
    watches = tuple(Watch(protocol=17, src_port=port) for port in range(1, 1022))
    with pytest.raises(ControllerError, match="ipv4_watchlist: 1025 entries needed, but a switch has room for 1024"):
        Features(diamond, Telemetry(watches), aggregation=AggregationSettings())
    features = Features(diamond, Telemetry(watches[1:]), aggregation=AggregationSettings())
    with pytest.raises(ControllerError, match="ipv4_watchlist: 1025 entries"):
        features.configure(Telemetry(watches))
    features.coordinator.connected("a", {})


def test_routes_to_switches_are_kept_with_those_to_hosts(diamond: Topology) -> None:
    """Route steps remove neither them nor members used only by them."""
    features = Features(diamond, aggregation=AggregationSettings())
    coordinator = features.coordinator
    tables: dict[str, Entities] = {}
    for name in "abcd":
        tables[name] = reduce(apply, coordinator.connected(name, {}), {})
        coordinator.acknowledged(name, [])
        coordinator._held[name] = tables[name]
        coordinator.reconciled(name)
    for weights in (("a d b1",), ("a d c1", "d a b1"), ()):
        features.want(RouteSet(1, (), weighted(weights)))
        while (step := coordinator.next_step()) is not None:
            for name, updates in step.updates.items():
                coordinator.acknowledged(name, updates)
        for name in "abcd":
            held = coordinator.held(name)
            assert coordinator.is_right(name)
            assert sum(key.table == IPV4.routes for key in held) == 4 + 3
            assert coordinator.connected(name, held) == []
