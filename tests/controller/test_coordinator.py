"""Whatever switches die, return or restart and whatever routes come meanwhile, the tables end up as they should be."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.coordinator import Coordinator
from controller.errors import ControllerError
from controller.intents import FlowSpec, Route, RouteSet
from controller.reconcile import apply
from controller.tables.entities import Entities, Update, Verb, same
from controller.tables.flow_paths import flow_path_entities
from dataplane.fabric.topology import Topology

PATHS = {
    FlowSpec("ha", "hd"): ("abd", "acd", "abcd", "acbd"),
    FlowSpec("ha", "hd", 17): ("abd", "acd"),
    FlowSpec("hd", "hb"): ("db", "dcb", "dcab"),
}


def route_sets() -> st.SearchStrategy[tuple[Route, ...]]:
    """Return sets of routes, each flow on one of its paths or not routed."""
    choices = [st.sampled_from([None, *(Route(flow, tuple(path)) for path in paths)]) for flow, paths in PATHS.items()]
    return st.tuples(*choices).map(lambda routes: tuple(route for route in routes if route is not None))


events = st.one_of(
    route_sets(),
    st.tuples(st.sampled_from(["leave", "restart", "return", "cut"]), st.sampled_from("abcd")),
    st.just("step"),
)


class World:
    """The real tables, which only acknowledged writes and restarts change."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.coordinator = Coordinator(topology)
        self.tables: dict[str, Entities] = {node.name: {} for node in topology.switches}
        self.version = 0

    def happen(self, event: object) -> None:
        match event:
            case "step":
                self.step()
            case ("return", str(name)):
                self.connect(name)
            case ("leave", str(name)):
                self.coordinator.lost(name)
            case ("restart", str(name)):
                self.tables[name] = {}
                self.coordinator.lost(name)
            case ("cut", str(name)):
                self.step(cut=name)
            case tuple(routes):
                self.version += 1
                self.coordinator.want(RouteSet(self.version, routes))

    def connect(self, name: str) -> None:
        for batch in self.coordinator.connected(name, self.tables[name]):
            self.write(name, batch)
        self.coordinator.reconciled(name)

    def step(self, cut: str | None = None) -> bool:
        """Send one step; a switch that is cut off takes the writes, but nobody learns of it."""
        step = self.coordinator.next_step()
        for name, updates in step.updates.items() if step else ():
            assert name in self.coordinator.live
            if name == cut:
                self.tables[name] = apply(self.tables[name], updates)
                self.coordinator.lost(name)
            else:
                self.write(name, updates)
        return step is not None

    def write(self, name: str, updates: tuple[Update, ...]) -> None:
        for update in updates:
            if update.verb is not Verb.MODIFY or update.key in self.tables[name]:
                assert (update.key in self.tables[name]) is (update.verb is not Verb.INSERT), f"{name}: {update}"
        self.tables[name] = apply(self.tables[name], updates)
        self.coordinator.acknowledged(name, updates)


def equal(left: Entities, right: Entities) -> bool:
    """Return whether two tables say the same."""
    return left.keys() == right.keys() and all(same(left[key], right[key]) for key in right)


@settings(max_examples=150, deadline=None)
@given(history=st.lists(events, max_size=25), last=route_sets())
def test_tables_converge_after_any_history(diamond: Topology, history: list[object], last: tuple[Route, ...]) -> None:
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
    flows = flow_path_entities(diamond, RouteSet(1, last))
    for name, tables in world.tables.items():
        assert equal(tables, {**world.coordinator.base[name], **flows[name]})
    assert world.coordinator.plan().pending == frozenset()


def test_routes_that_cannot_be_change_nothing(diamond: Topology) -> None:
    world = World(diamond)
    good = (Route(FlowSpec("ha", "hd"), ("a", "b", "d")),)
    world.happen(good)
    with pytest.raises(ControllerError, match="there is no link a->d"):
        world.coordinator.want(RouteSet(9, (Route(FlowSpec("ha", "hd"), ("a", "d")),)))
    assert world.coordinator.routes == RouteSet(1, good)


def test_nothing_is_removed_before_anybody_has_said_which_routes_are_wanted(diamond: Topology) -> None:
    world = World(diamond)
    flows = flow_path_entities(diamond, RouteSet(1, (Route(FlowSpec("ha", "hd"), ("a", "b", "d")),)))
    world.tables.update({name: {**world.coordinator.base[name], **flows[name]} for name in flows})
    for name in "abcd":
        assert world.coordinator.connected(name, world.tables[name]) == []
        world.coordinator.reconciled(name)
    assert world.coordinator.next_step() is None
