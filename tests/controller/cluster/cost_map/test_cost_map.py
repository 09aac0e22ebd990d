"""The cost map agrees with its plain twin on random fabrics, telemetry and routes, however it was built."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.feed import links_pb2
from collectors.feed.snapshots import read_links, write_links
from collectors.values import LinkCondition, LinkStatus, Snapshot
from controller.cluster.cost_map import UNLIMITED_BPS, Basis, CostMap, CostModel, HostLinkState, Load
from controller.cluster.cost_map.values import PPB
from controller.common.errors import PathError
from controller.network.intents import FlowSpec, Route, RouteSet, WeightedRoute
from dataplane.topology.values import LinkKey
from tests.controller.cluster.cost_map.fabrics import FABRICS, fabric, host_links, link_state, route_set, snapshot
from tests.reference.pair_figures import pair_figures

IDLE = Snapshot(0, {}, {}, {})
MODELS = {name: CostModel(fabric(name)) for name in FABRICS}
SEEDS = st.integers(0, 2**32)


def assert_as_the_twin_says(costs: CostMap) -> None:
    hosts = costs.hosts
    for src in range(len(hosts)):
        for dst in range(len(hosts)):
            pair = costs.cost(hosts[src], hosts[dst])
            exact = pair_figures(costs.routing, costs.links, src, dst) if src != dst else None
            if src == dst:
                assert (pair.delay_ns, pair.available_bps, pair.loss_ppb) == (0, UNLIMITED_BPS, 0)
            elif exact is None:
                assert (pair.delay_ns, pair.available_bps, pair.loss_ppb, pair.paths) == (-1, 0, PPB, ())
            else:
                # Means are rounded once per hop.
                assert abs(pair.delay_ns - exact.delay_ns) < 8
                assert abs(Fraction(pair.loss_ppb, PPB) - exact.loss) < Fraction(20, PPB)
                assert pair.available_bps == exact.available_bps
                assert pair.age_ns == (None if exact.age_ns < 0 else exact.age_ns)
                for figure, basis in enumerate((pair.delay_basis, pair.available_basis, pair.loss_basis)):
                    bit = 1 << figure
                    whole, some = exact.measured & bit and exact.partly & bit, exact.partly & bit
                    assert basis is (Basis.MEASURED if whole else Basis.PARTLY_MEASURED if some else Basis.NOMINAL)
                assert pair.access_measured == exact.access
                assert sum(path.share for path in pair.paths) == pytest.approx(1.0)


@pytest.mark.parametrize("name", FABRICS)
@settings(max_examples=8)
@given(seed=SEEDS)
def test_it_agrees_with_the_plain_twin(name: str, seed: int) -> None:
    rng = random.Random(seed)
    model = MODELS[name]
    routes = route_set(model.topology, rng) if rng.random() < 0.7 else RouteSet(0, ())
    own = host_links(model.topology, rng)
    assert_as_the_twin_says(CostMap.of(model, snapshot(model.topology, rng), routes, host_links=own))


@pytest.mark.parametrize("name", FABRICS)
@settings(max_examples=4)
@given(seed=SEEDS)
def test_base_routes_go_around_dead_links(name: str, seed: int) -> None:
    rng = random.Random(seed)
    state = snapshot(MODELS[name].topology, rng, dead=1)
    costs = CostMap.of(MODELS[name], state)
    assert_as_the_twin_says(costs)
    [dead] = state.statuses
    crossed = {step for src in costs.hosts for dst in costs.hosts for step in steps(costs, src, dst)}
    assert (dead.src, dead.dst) not in crossed


def steps(costs: CostMap, src: str, dst: str) -> set[tuple[str, str]]:
    """Return the links between switches that a pair's packets cross."""
    paths = (path.switches for path in costs.cost(src, dst).paths)
    return {step for path in paths for step in pairwise(path)}


@pytest.mark.parametrize("name", FABRICS)
@settings(max_examples=6)
@given(seed=SEEDS)
def test_incremental_changes_equal_a_fresh_map(name: str, seed: int) -> None:
    rng = random.Random(seed)
    model = MODELS[name]
    routes = route_set(model.topology, rng)
    first, second = (snapshot(model.topology, rng) for _ in range(2))
    costs = CostMap.of(model, first, routes)
    assert_same(costs.changed(second), CostMap.of(model, second, routes))
    few = [replace(link_state(model.topology, key, rng), age_ns=3) for key in rng.sample(model.table.links, 2)]
    later = {**first.links, **{state.link: state for state in few}}
    own = host_links(model.topology, rng)
    assert_same(costs.with_host_links(own), CostMap.of(model, first, routes, host_links=own))
    assert_same(costs.changed(second, host_links=own), CostMap.of(model, second, routes, host_links=own))
    assert_same(costs.with_links(few), CostMap.of(model, replace(first, links=later), routes))


@pytest.mark.parametrize("name", FABRICS)
@settings(max_examples=4)
@given(seed=SEEDS)
def test_columns_of_links_give_the_map_that_single_states_give(name: str, seed: int) -> None:
    model = MODELS[name]
    state = snapshot(model.topology, random.Random(seed), dead=1)
    message = links_pb2.Links()
    write_links(message, state.links)
    assert_same(CostMap.of(model, replace(state, links=read_links(message))), CostMap.of(model, state))


def test_dead_link_stays_dead_whatever_is_measured() -> None:
    topology = fabric("ring:switches=4,hosts=1")
    route = RouteSet(1, (Route(FlowSpec("h1", "h2"), ("s1", "s2")),))
    key = LinkKey("s1", "s2")
    down = replace(IDLE, statuses={key: LinkStatus(LinkCondition.DOWN, 0)})
    costs = CostMap.of(topology, down, route)
    assert costs.cost("h1", "h2").loss_ppb == PPB
    fresh = replace(link_state(topology, key, random.Random(1)), age_ns=0, loss=0.0)
    assert costs.with_links([fresh]).cost("h1", "h2").loss_ppb == PPB


def assert_same(left: CostMap, right: CostMap) -> None:
    for name in ("delay_ns", "available_bps", "loss_ppb", "age_ns", "measured"):
        assert np.array_equal(getattr(left.pairs, name), getattr(right.pairs, name)), name


@pytest.mark.parametrize("name", FABRICS)
@settings(max_examples=6)
@given(seed=SEEDS)
def test_arrays_equal_the_pairs(name: str, seed: int) -> None:
    rng = random.Random(seed)
    costs = CostMap.of(MODELS[name], snapshot(MODELS[name].topology, rng), route_set(MODELS[name].topology, rng))
    for _ in range(20):
        src, dst = (rng.randrange(len(costs.hosts)) for _ in range(2))
        pair = costs.cost(costs.hosts[src], costs.hosts[dst])
        assert pair.delay_ns == costs.pairs.delay_ns[src, dst]
        assert pair.available_bps == costs.pairs.available_bps[src, dst]
        assert pair.loss_ppb == costs.pairs.loss_ppb[src, dst]


def test_load_takes_bandwidth_and_lengthens_queues_on_its_path() -> None:
    costs = CostMap.of(fabric("leaf-spine:spines=2,leaves=2,hosts=2"), IDLE)
    src, dst = "h1", "h3"
    before = costs.cost(src, dst)
    assert {path.switches for path in before.paths} == {("leaf1", "spine1", "leaf2"), ("leaf1", "spine2", "leaf2")}
    assert (before.available_bps, before.delay_basis) == (10_000_000_000, Basis.NOMINAL)
    after = costs.with_load(src, dst, 4_000_000_000).cost(src, dst)
    # The hosts' links carry all of it, each path over a spine half of it.
    assert after.available_bps == 6_000_000_000
    assert after.delay_ns > before.delay_ns
    more = costs.with_loads([Load("h2", "h4", 8_000_000_000)]).cost(src, dst)
    assert (more.available_bps, more.loss_ppb) == (6_000_000_000, 0)
    assert costs.cost(src, dst) == before


def test_excess_traffic_is_lost_behind_a_full_queue() -> None:
    topology = fabric("ring:switches=3,hosts=2")
    costs = CostMap.of(topology, IDLE)
    rate_bps = topology.directed_links[LinkKey("s1", "s2")].rate_bps
    over = costs.with_loads([Load("h1", "h3", rate_bps), Load("h2", "h4", rate_bps)]).cost("h1", "h3")
    assert over.available_bps == 0
    assert over.loss_ppb == pytest.approx(PPB // 2, abs=2)
    queue_ns = int(costs.links.queue_ns[costs.model.table.link_number[LinkKey("s1", "s2")]])
    assert over.delay_ns > costs.cost("h1", "h3").delay_ns + queue_ns // 2
    assert costs.with_load("h1", "h3", rate_bps).is_predicted


def test_pair_with_an_explicit_path_is_marked() -> None:
    topology = fabric("ring:switches=5,hosts=1")
    routes = RouteSet(3, (Route(FlowSpec("h1", "h2"), ("s1", "s5", "s4", "s3", "s2")),))
    costs = CostMap.of(topology, IDLE, routes)
    pair = costs.cost("h1", "h2")
    assert pair.explicit
    assert [path.switches for path in pair.paths] == [("s1", "s5", "s4", "s3", "s2")]
    assert not costs.cost("h2", "h1").explicit
    loaded = costs.with_load("h1", "h2", 1_000_000)
    assert loaded.cost("h4", "h3").available_bps == pair.available_bps - 1_000_000


def test_host_with_a_measured_link_limits_its_sending() -> None:
    topology = fabric("ring:switches=3,hosts=1")
    states = {key: replace(link_state(topology, key, random.Random(1)), age_ns=2) for key in topology.directed_links}
    told = {key: state for key, state in states.items() if key.src in topology.switch}
    costs = CostMap.of(topology, replace(IDLE, links=told))
    assert costs.cost("h1", "h2").available_basis is Basis.MEASURED
    assert not costs.cost("h1", "h2").access_measured
    rate_bps = topology.directed_links[LinkKey("h1", "s1")].rate_bps
    state = HostLinkState.of_counters("h1", rate_bps, sent_bytes=rate_bps // 8, interval_ns=10**9, age_ns=7)
    assert state.available_bps == 0
    own = costs.with_host_links([state])
    pair = own.cost("h1", "h2")
    assert (pair.available_bps, pair.age_ns, pair.access_measured) == (0, 7, True)
    assert own.cost("h2", "h1") == costs.cost("h2", "h1")
    later = own.changed(Snapshot(20, told, {}, {}))
    assert later.cost("h1", "h2").age_ns == 27
    gone = own.changed(Snapshot(own.stale_after_ns + 1, told, {}, {})).cost("h1", "h2")
    assert not gone.access_measured
    assert gone.available_bps == costs.cost("h1", "h2").available_bps


def test_received_load_is_measured_at_the_hosts_switch_port() -> None:
    topology = fabric("ring:switches=3,hosts=1")
    key = LinkKey("s1", "h1")
    rate_bps = topology.directed_links[key].rate_bps
    state = replace(link_state(topology, key, random.Random(1)), available_bps=rate_bps // 4, age_ns=2)
    costs = CostMap.of(topology, replace(IDLE, links={key: state}))
    received = costs.received("h1")
    assert (received.rate_bps, received.load_bps, received.age_ns, received.share) == (
        rate_bps,
        3 * rate_bps // 4,
        2,
        0.75,
    )
    sending = HostLinkState("h2", available_bps=0, age_ns=0)
    assert costs.with_host_links([sending]).received("h2").share is None
    with pytest.raises(PathError, match="has no host 'h9'"):
        costs.received("h9")


def test_impossible_measurements_of_a_host_are_refused() -> None:
    costs = CostMap.of(fabric("ring:switches=3,hosts=1"), IDLE)
    with pytest.raises(PathError, match="has no host 'h9'"):
        costs.with_host_links([HostLinkState("h9", 1, 0)])
    with pytest.raises(ValueError, match="host h1: -1 bytes sent in 5 ns"):
        HostLinkState.of_counters("h1", 10, -1, 5, 0)
    assert HostLinkState.of_counters("h1", 10, 10**12, 5, 0).available_bps == 0


def test_routes_that_lead_in_a_circle_let_nothing_arrive() -> None:
    topology = fabric("ring:switches=4,hosts=1")
    turned = (WeightedRoute("s1", "s2", (("s4", 1),)), WeightedRoute("s4", "s2", (("s1", 1),)))
    costs = CostMap.of(topology, IDLE, RouteSet(1, (), turned))
    assert not costs.cost("h1", "h2").is_reachable
    assert not costs.cost("h4", "h2").is_reachable
    assert costs.cost("h3", "h2").is_reachable


@pytest.mark.parametrize(
    ("routes", "problem"),
    [
        (RouteSet(1, (Route(FlowSpec("h1", "h2"), ("s1", "s3")),)), "does not lead from s1 to s2"),
        (RouteSet(1, (Route(FlowSpec("h1", "h3"), ("s1", "s3")),)), "there is no link s1->s3"),
        (RouteSet(1, (Route(FlowSpec("h1", "h99"), ("s1", "s3")),)), "has no host 'h99'"),
        (RouteSet(1, (), (WeightedRoute("s9", "s3", (("s2", 1),)),)), "no such switch"),
        (RouteSet(1, (), (WeightedRoute("s1", "s3", (("s3", 1),)),)), "there is no link s1->s3"),
    ],
)
def test_routes_that_the_topology_cannot_have_are_refused(routes: RouteSet, problem: str) -> None:
    with pytest.raises(PathError, match=problem):
        CostMap.of(fabric("ring:switches=4,hosts=1"), IDLE, routes)


def test_hosts_that_are_not_there_are_refused() -> None:
    costs = CostMap.of(fabric("ring:switches=4,hosts=1"), IDLE)
    with pytest.raises(PathError, match="has no host 'h7'"):
        costs.cost("h1", "h7")
    with pytest.raises(PathError, match="has no host 'h7'"):
        costs.with_load("h7", "h1", 1)
    with pytest.raises(ValueError, match="-1 bit/s"):
        costs.with_load("h1", "h2", -1)
