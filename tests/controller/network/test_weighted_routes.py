"""Weighted routes, from intent to packets: shares as requested, and no loss or loops during changes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.common.errors import ControllerError, SessionError
from controller.network.base_paths import next_hops
from controller.network.intents import FlowSpec, Route, RouteSet, WeightedRoute
from controller.network.owners.base import Verdict
from controller.network.tables.weighted_routes import spreads_of
from controller.network.virtual import VirtualController, WriteDelays
from dataplane.fabric.hosts import Receiver, flow_between
from dataplane.fabric.virtual.fabric import VirtualFabric
from dataplane.topology.values import Topology
from tests.controller.network.fabric_tables import WEIGHTS, World, weighted
from tests.controller.network.owners.test_flow_plan import networks

US = 1_000
MS = 1_000_000


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        (("a x b1",), "there is no switch 'x'"),
        (("a a b1",), "leads nowhere"),
        (("a d -",), "leads nowhere"),
        (("a b d1",), "there is no link a->d"),
        (("a d b0",), "weights must be at least 1"),
        (("a d b30c3",), "add up to more than 32"),
        (("a d b1b2",), "names a neighbour twice"),
        (("a d b1", "a d c1"), "requested twice"),
        (("b d a1", "a d b1"), "may loop"),
    ],
)
def test_routes_that_cannot_be_are_refused(diamond: Topology, texts: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ControllerError, match=problem):
        spreads_of(diamond, next_hops(diamond), weighted(texts))


@pytest.mark.parametrize(("old", "new"), list(product(WEIGHTS, WEIGHTS)), ids=str)
def test_weight_change_misleads_no_packet_at_any_step(
    diamond: Topology, old: tuple[str, ...], new: tuple[str, ...]
) -> None:
    """`World` checks the possible paths from every host after every single write."""
    world = World(diamond)
    for name in "abcd":
        world.connect(name)
    for version, texts in enumerate((old, new), start=1):
        world.features.want(RouteSet(version, (), weighted(texts)))
        while world.step():
            pass
        assert world.whole
        assert not world.coordinator.plan().pending


@st.composite
def random_weights(draw: st.DrawFn, topology: Topology) -> tuple[WeightedRoute, ...]:
    """Return loop-free weighted routes to f at every other switch: each sends only to switches closer to f."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    neighbours = {name: {end.node for end in ends.values()} for name, ends in topology.neighbours.items()}
    routes, reached = [], ["f"]
    while len(reached) < len(topology.switches):
        name = rng.choice([node.name for node in topology.switches if _is_next(node.name, reached, neighbours)])
        ahead = sorted(neighbours[name] & set(reached))
        chosen = sorted(rng.sample(ahead, rng.randint(1, len(ahead))))
        routes.append(WeightedRoute(name, "f", tuple((peer, rng.randint(1, 4)) for peer in chosen)))
        reached.append(name)
    return tuple(routes)


def _is_next(name: str, reached: list[str], neighbours: Mapping[str, set[str]]) -> bool:
    return name not in reached and bool(neighbours[name] & set(reached))


@settings(max_examples=60, deadline=None)
@given(network=networks(), data=st.data())
def test_random_weight_changes_mislead_no_packet(
    network: tuple[Topology, list[tuple[str, ...]]], data: st.DataObject
) -> None:
    """Some changes are abandoned halfway for the next ones."""
    topology, _ = network
    world = World(topology, packets=(("hs", "hd", 17),))
    for node in topology.switches:
        world.connect(node.name)
    for version in range(1, 4):
        world.features.want(RouteSet(version, (), data.draw(random_weights(topology))))
        for _ in range(data.draw(st.integers(0, 30))):
            world.step()
    while world.step():
        pass
    assert not world.coordinator.plan().pending


class Run:
    """A diamond under a virtual controller, with a receiving host."""

    def __init__(self, topology: Topology, delays: WriteDelays) -> None:
        self.fabric = VirtualFabric(topology, record_hops=True)
        self.controller = VirtualController.over(self.fabric, watches=(), delays=delays)
        self.controller.start()
        self.receiver = Receiver()
        self.fabric.host("hd").on_frame(self.receiver.receive)

    def send(self, number: int, rate_bps: int, start_ns: int, stop_ns: int) -> None:
        """Let ha send to hd at a constant rate."""
        flow = flow_between(self.fabric.topology, number, "ha", "hd", rate_bps, frame_bytes=100)
        self.fabric.start_flow("ha", replace(flow, start_ns=start_ns, stop_ns=stop_ns))

    def want(self, version: int, texts: tuple[str, ...], *routes: Route) -> None:
        """Submit weighted and explicit routes."""
        self.controller.submit(RouteSet(version, routes, weighted(texts)))


def test_flows_are_spread_in_proportion_to_weights(diamond: Topology) -> None:
    run = Run(diamond, WriteDelays(write_delay_ns=0))
    run.want(1, ("a d b1c3", "b d d1", "c d b1d1"))
    run.fabric.run_until(MS)
    for number in range(200):
        run.send(number, 100_000, MS + number * 200 * US, MS + number * 200 * US + 1)
    run.fabric.run_until(100 * MS)
    assert run.fabric.hops is not None
    taken = Counter(hop.switch for hop in run.fabric.hops.hops)
    assert taken["a"] == taken["d"] == 200
    assert taken["c"] == pytest.approx(150, abs=25)
    assert taken["b"] - 50 == pytest.approx(75, abs=30)  # half of c's traffic continues via b: c has another hash


def test_packets_in_flight_at_every_step_arrive_without_a_circle(diamond: Topology) -> None:
    run = Run(diamond, WriteDelays(write_delay_ns=300 * US))
    for number in range(8):
        run.send(number, 400_000, 0, 60 * MS)
    explicit = Route(FlowSpec("ha", "hd", 17), ("a", "c", "b", "d"))
    for version, texts in enumerate(WEIGHTS[:4] * 4, start=1):
        routes = (explicit,) if version % 3 == 0 else ()
        run.fabric.call_at(version * 3 * MS, lambda v=version, t=texts, r=routes: run.want(v, t, *r))  # type: ignore[misc]
    run.fabric.run_until(200 * MS)
    assert len(run.controller.applied) > 40
    assert run.fabric.hops is not None
    crossed = Counter((hop.flow_id, hop.sequence, hop.switch) for hop in run.fabric.hops.hops)
    assert max(crossed.values()) == 1
    for number in range(8):
        seen = run.receiver.measure(number, 0, 60 * MS)
        assert seen.packets >= 29
        assert seen.lost == 0


def test_no_longer_wanted_groups_are_removed(diamond: Topology) -> None:
    run = Run(diamond, WriteDelays(write_delay_ns=0))
    before = dict(run.controller.coordinator.held("a"))
    run.want(1, ("a d b1c3",))
    run.fabric.run_until(MS)
    during = dict(run.controller.coordinator.held("a"))
    run.want(2, ())
    run.fabric.run_until(2 * MS)
    assert during != before
    assert run.controller.coordinator.held("a").keys() == before.keys()
    assert run.controller.settled


def test_refused_group_leaves_its_routes_unchanged(diamond: Topology) -> None:
    world = World(diamond)
    for name in "abcd":
        world.connect(name)
    world.features.want(RouteSet(1, (), (WeightedRoute("a", "d", (("b", 1), ("c", 3))),)))
    for _ in range(2):
        step = world.coordinator.next_step()
        assert step is not None
        batch = step.updates["a"]
        error = SessionError("a", "write", "no room", code="RESOURCE_EXHAUSTED", refused=range(len(batch)))
        assert world.coordinator.refused("a", batch, error) is Verdict.SPARED
    assert world.coordinator.next_step() is None
    assert {key.table for key in world.coordinator.plan().pending} == {"ipv4_routes", "ipv6_routes"}
    world.coordinator.forgive()
    assert world.coordinator.next_step() is not None
