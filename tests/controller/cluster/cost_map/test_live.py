"""The current map is that of the newest snapshot and routes; it is refused when it is too old."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from collectors.values import Snapshot
from controller.cluster.cost_map import CostMap, CostModel, HostLinkState
from controller.cluster.cost_map.live import CostMapKeeper
from controller.common.errors import CostMapError, PathError
from controller.network.intents import FlowSpec, Route, RouteSet
from tests.controller.cluster.cost_map.fabrics import fabric, link_state, route_set, snapshot

S = 1_000_000_000
RING = CostModel(fabric("ring:switches=5,hosts=2"))
IDLE = Snapshot(0, {}, {}, {})


def test_no_map_before_all_inputs_have_arrived() -> None:
    keeper = CostMapKeeper(RING, wants_routes=True)
    with pytest.raises(CostMapError, match="the collector has sent nothing yet"):
        keeper.current(0)
    keeper.observe(IDLE, 0)
    with pytest.raises(CostMapError, match="the path server has sent no routes yet"):
        keeper.current(0)
    keeper.take_routes(RouteSet(1, ()))
    assert keeper.current(0).version == 1


def test_it_is_the_map_of_the_newest_snapshot_and_routes() -> None:
    rng = random.Random(5)
    keeper = CostMapKeeper(RING, wants_routes=True)
    for second in range(6):
        taken, routes = snapshot(RING.topology, rng, dead=second % 2), route_set(RING.topology, rng)
        keeper.observe(taken, second * S)
        keeper.take_routes(routes)
        live, expected = keeper.current(second * S), CostMap.of(RING, taken, routes)
        for name in ("delay_ns", "available_bps", "loss_ppb", "age_ns", "measured"):
            assert np.array_equal(getattr(live.costs.pairs, name), getattr(expected.pairs, name)), name


def test_it_grows_old_and_is_refused_then() -> None:
    keeper = CostMapKeeper(RING, wants_routes=False, stale_after_ns=3 * S)
    keeper.observe(IDLE, 10 * S)
    live = keeper.current(13 * S)
    assert live.age_ns(13 * S) == 3 * S
    with pytest.raises(CostMapError, match=r"the network's state is 3\.5 s old, 3\.0 s at most"):
        keeper.current(13 * S + S // 2)
    keeper.observe(IDLE, 14 * S)
    assert keeper.current(14 * S).version == 2


def test_another_networks_figures_are_refused() -> None:
    other = fabric("leaf-spine:spines=2,leaves=2,hosts=2")
    states = [link_state(other, key, random.Random(1)) for key in other.directed_links]
    keeper = CostMapKeeper(RING, wants_routes=False)
    keeper.observe(Snapshot(0, {state.link: state for state in states}, {}, {}), 0)
    with pytest.raises(CostMapError, match=r"measures another network: topology ring.* has no link"):
        keeper.current(0)
    keeper.observe(IDLE, 0)
    assert keeper.current(0).version == 1


def test_the_same_network_with_other_rates_is_refused() -> None:
    states = [link_state(RING.topology, key, random.Random(1)) for key in RING.topology.directed_links]
    states[3] = replace(states[3], rate_bps=states[3].rate_bps // 12_000)
    keeper = CostMapKeeper(RING, wants_routes=False)
    keeper.observe(Snapshot(0, {state.link: state for state in states}, {}, {}), 0)
    problem = rf"another network: {states[3].link} has {states[3].rate_bps} bit/s there, \d+ bit/s in topology ring"
    with pytest.raises(CostMapError, match=problem):
        keeper.current(0)


def test_routes_of_another_network_are_refused_until_replaced() -> None:
    keeper = CostMapKeeper(RING, wants_routes=True)
    keeper.observe(IDLE, 0)
    right = RouteSet(1, (Route(FlowSpec("h1", "h3"), ("s1", "s2")),))
    keeper.take_routes(right)
    keeper.take_routes(replace(right, version=2, routes=(Route(FlowSpec("h1", "h99"), ("s1", "s2")),)))
    with pytest.raises(CostMapError, match=r"the path server's routes do not fit: .* no host 'h99'"):
        keeper.current(0)
    keeper.take_routes(right)
    assert keeper.current(0).costs.cost("h1", "h3").explicit


def test_host_link_measurements_age_with_the_map() -> None:
    keeper = CostMapKeeper(RING, wants_routes=False, stale_after_ns=3 * S)
    keeper.take_host_links([HostLinkState("h1", 5, S)], 10 * S)
    keeper.observe(IDLE, 11 * S)
    pair = keeper.current(11 * S).costs.cost("h1", "h3")
    assert (pair.available_bps, pair.age_ns, pair.access_measured) == (5, 2 * S, True)
    keeper.observe(IDLE, 13 * S)
    assert not keeper.current(13 * S).costs.cost("h1", "h3").access_measured
    with pytest.raises(PathError, match="has no host 'h99'"):
        keeper.take_host_links([HostLinkState("h99", 5, S)], 0)
