"""Rounds of traffic engineering: what makes weights change, how many, and what keeps them."""

from __future__ import annotations

import random
from collections.abc import Callable

import networkx as nx
import pytest
from msgspec.structs import replace

from controller.base_paths import next_hops
from controller.errors import PathError
from controller.intents import WeightedRoute
from controller.paths.engineering import program
from controller.paths.engineering.engineer import TrafficEngineer
from controller.paths.engineering.program import Solution
from controller.paths.engineering.settings import EngineeringSettings
from controller.tables.weighted_routes import onward, spreads_of
from dataplane.topology.file import load_topology
from dataplane.topology.values import LinkKey, Topology

MakeTopology = Callable[..., Topology]

S = 1_000_000_000
SETTINGS = EngineeringSettings(interval_ns=S, enough=0.0, smoothing=0.0)
LOADED = {("a", "d"): 8_000_000.0}


@pytest.fixture
def unequal(diamond_of: MakeTopology) -> Topology:
    """Return a diamond of 10 Mbit/s with one shortest way from a to d: by b."""
    return diamond_of((1000, 2000, 1000, 2000, 20_000))


def test_demands_that_fill_one_way_are_spread_over_both(unequal: Topology) -> None:
    engineer = TrafficEngineer(unequal, SETTINGS)
    done = engineer.step(LOADED, frozenset(), 0)
    assert done is not None
    assert (done.max_utilisation_before, done.max_utilisation_after) == pytest.approx((0.8, 0.4))
    assert done.destinations == ("d",)
    assert engineer.weighted == (WeightedRoute("a", "d", (("b", 1), ("c", 1))),)
    spreads_of(unequal, next_hops(unequal), engineer.weighted)
    assert "at a by b (1), c (1); last round: the busiest link goes from 80.0% to 40.0%" in engineer.explain("abd")


def test_nothing_changes_between_rounds_nor_for_a_small_gain(unequal: Topology) -> None:
    engineer = TrafficEngineer(unequal, SETTINGS)
    engineer.step(LOADED, frozenset(), 0)
    assert engineer.step({("a", "b"): 9_000_000.0}, frozenset(), S - 1) is None
    assert engineer.step({("a", "d"): 8_000_000.0, ("a", "b"): 200_000.0}, frozenset(), S) is None


def test_weights_in_force_stay_to_the_letter_where_others_gain_too_little(unequal: Topology) -> None:
    """15 to 1 is near 12 to 1: near enough for new shares, but no reason to change routes."""
    saved = (WeightedRoute("a", "d", (("b", 15), ("c", 1))),)
    engineer = TrafficEngineer(unequal, replace(SETTINGS, enough=0.9), saved)
    assert engineer.step({("a", "d"): 1_000_000.0}, frozenset(), 0) is None
    assert engineer.weighted == saved


def test_low_utilisation_is_left_on_the_shortest_way(unequal: Topology) -> None:
    engineer = TrafficEngineer(unequal, replace(SETTINGS, enough=0.9))
    assert engineer.step(LOADED, frozenset(), 0) is None
    assert engineer.weighted == ()


def test_a_round_changes_no_more_destinations_than_allowed(unequal: Topology) -> None:
    demands = {("a", "d"): 4_000_000.0, ("b", "c"): 4_000_000.0, ("d", "a"): 3_000_000.0}
    engineer = TrafficEngineer(unequal, replace(SETTINGS, max_destinations=1))
    for number in range(4):
        done = engineer.step(demands, frozenset(), number * S)
        assert done is None or len(done.destinations) == 1


def test_a_dead_link_starts_a_round_at_once_and_its_return_another(unequal: Topology) -> None:
    engineer = TrafficEngineer(unequal, SETTINGS)
    engineer.step(LOADED, frozenset(), 0)
    done = engineer.step(LOADED, frozenset({LinkKey("a", "b")}), 1)
    assert done is not None
    assert done.reason.startswith("dead: a->b; ")
    assert not any(peer == "b" for route in engineer.weighted if route.switch == "a" for peer, _ in route.next_hops)
    spreads_of(unequal, next_hops(unequal), engineer.weighted)
    back = engineer.step(LOADED, frozenset(), 2)
    assert back is not None
    assert back.reason.startswith("all links are back; ")
    assert engineer.weighted == (WeightedRoute("a", "d", (("b", 1), ("c", 1))),)


def test_beside_dead_links_whoever_has_no_weights_follows_its_base_route(unequal: Topology) -> None:
    """Not the shortest way that is alive: a sends by b, which goes around its dead link; a knows nothing of that."""
    saved = (WeightedRoute("b", "c", (("a", 1),)), WeightedRoute("b", "d", (("c", 1),)))
    dead = frozenset({LinkKey("b", "d")})
    engineer = TrafficEngineer(unequal, replace(SETTINGS, enough=0.9), saved)
    engineer._dead = dead
    assert engineer.step(LOADED, dead, 0) is None
    assert engineer.weighted == saved


@pytest.mark.parametrize("seed", range(2))
def test_whatever_dies_and_returns_all_that_can_arrive_goes_by_what_is_alive(seed: int) -> None:
    rng = random.Random(seed)
    topology = load_topology("abilene")
    hops = next_hops(topology)
    names = [node.name for node in topology.switches]
    links = [key for key in topology.directed_links if key.src in names and key.dst in names]
    engineer = TrafficEngineer(topology, replace(SETTINGS, max_destinations=2, min_gain=0.0))
    dead: frozenset[LinkKey] = frozenset()
    for number in range(8):
        if number % 3 == 1:
            dead = frozenset(rng.sample(links, rng.choice((1, 2, 6))))
        pairs = [(src, dst) for src in names for dst in names if src != dst and rng.random() < 0.4]
        engineer.step({pair: rng.random() ** 4 * 1e10 for pair in pairs}, dead, number * S)
        spreads = spreads_of(topology, hops, engineer.weighted)
        alive = nx.DiGraph([(key.dst, key.src) for key in links if key not in dead])
        for dst in names:
            reaching = nx.descendants(alive, dst) if dst in alive else set()
            for switch in reaching:
                for peer in onward(topology, hops, spreads, switch, dst):
                    assert LinkKey(switch, peer) not in dead
                    assert peer == dst or peer in reaching


def test_demands_that_dead_links_cut_off_do_not_stop_the_others(unequal: Topology) -> None:
    engineer = TrafficEngineer(unequal, SETTINGS)
    demands = {("a", "d"): 1_000_000.0, ("b", "c"): 9_000_000.0}
    alone = frozenset({LinkKey("a", "b"), LinkKey("a", "c")})
    done = engineer.step(demands, alone, 0)
    assert done is not None
    assert done.max_utilisation_after < 0.9


def test_demands_are_smoothed(unequal: Topology) -> None:
    engineer = TrafficEngineer(unequal, replace(SETTINGS, smoothing=0.5))
    engineer.step({("a", "d"): 1_000_000.0}, frozenset(), 0)
    engineer.step({("a", "d"): 9_000_000.0}, frozenset({LinkKey("b", "d")}), S)
    assert engineer.rounds[-1].max_utilisation_before == pytest.approx(0.5)


def test_a_program_that_is_not_solved_leaves_traffic_on_what_is_alive(
    unequal: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> Solution:
        raise PathError("the linear program is not solved: numbers")

    engineer = TrafficEngineer(unequal, SETTINGS)
    engineer.step(LOADED, frozenset(), 0)
    in_force = engineer.weighted
    monkeypatch.setattr(program, "solve", fails)
    assert engineer.step(LOADED, frozenset(), S) is None
    assert (engineer.weighted, engineer.failed_rounds) == (in_force, 1)
    assert engineer.last_problem == "the linear program is not solved: numbers"
    done = engineer.step(LOADED, frozenset({LinkKey("a", "b")}), S + 1)
    assert done is not None
    assert WeightedRoute("a", "d", (("c", 1),)) in engineer.weighted
    monkeypatch.undo()
    engineer.step(LOADED, frozenset(), 3 * S)
    assert engineer.weighted == in_force
