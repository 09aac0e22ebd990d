"""Rounds of traffic engineering: when weights change, when they stay, and the duration of a step."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import networkx as nx
import pytest
from msgspec.structs import replace

from controller.common.errors import PathError
from controller.network.base_paths import next_hops
from controller.network.intents import WeightedRoute
from controller.network.paths.engineering.engineer import TURN_NS, TrafficEngineer
from controller.network.paths.engineering.search import Search
from controller.network.paths.engineering.settings import EngineeringSettings
from controller.network.tables.weighted_routes import onward, spreads_of
from dataplane.topology.demands import gravity
from dataplane.topology.file import load_topology
from dataplane.topology.values import LinkKey, Topology

MakeTopology = Callable[..., Topology]

S = 1_000_000_000
SETTINGS = EngineeringSettings(interval_ns=S, enough=0.0, smoothing=0.0)
MS = 1_000_000
LOADED = {("a", "d"): 8_000_000.0}


@dataclass
class SlowClock:
    """A clock that advances by a fixed time on each reading, like a machine of that speed."""

    tick_ns: int
    time_ns: int = 0

    def now_ns(self) -> int:
        """Return the time and advance it."""
        self.time_ns += self.tick_ns
        return self.time_ns


@pytest.fixture
def unequal(diamond_of: MakeTopology) -> Topology:
    """Return a diamond of 10 Mbit/s with one shortest path from a to d: via b."""
    return diamond_of((1000, 2000, 1000, 2000, 20_000))


def test_engineer_spreads_a_full_path_over_two(unequal: Topology) -> None:
    engineer = TrafficEngineer(unequal, SETTINGS)
    done = engineer.step(LOADED, frozenset(), 0)
    assert done is not None
    assert (done.max_utilisation_before, done.max_utilisation_after) == pytest.approx((0.8, 0.4))
    assert done.destinations == ("d",)
    assert engineer.weighted == (WeightedRoute("a", "d", (("b", 1), ("c", 1))),)
    spreads_of(unequal, next_hops(unequal), engineer.weighted)
    assert "at a by b (1), c (1); last round: the busiest link goes from 80.0% to 40.0%" in engineer.explain("abd")


def test_engineer_keeps_weights_for_small_gains_till_the_round(unequal: Topology) -> None:
    engineer = TrafficEngineer(unequal, SETTINGS)
    engineer.step(LOADED, frozenset(), 0)
    assert engineer.step({("a", "b"): 9_000_000.0}, frozenset(), S - 1) is None
    assert engineer.step({("a", "d"): 8_000_000.0, ("a", "b"): 200_000.0}, frozenset(), S) is None


def test_engineer_keeps_exact_weights_without_enough_gain(unequal: Topology) -> None:
    """15 to 1 is close to 12 to 1: fine for new shares, but no reason to change routes."""
    saved = (WeightedRoute("a", "d", (("b", 15), ("c", 1))),)
    engineer = TrafficEngineer(unequal, replace(SETTINGS, enough=0.9), saved)
    assert engineer.step({("a", "d"): 1_000_000.0}, frozenset(), 0) is None
    assert engineer.weighted == saved


def test_engineer_leaves_low_utilisation_on_shortest_paths(unequal: Topology) -> None:
    engineer = TrafficEngineer(unequal, replace(SETTINGS, enough=0.9))
    assert engineer.step(LOADED, frozenset(), 0) is None
    assert engineer.weighted == ()


def test_engineer_changes_only_destinations_that_matter(unequal: Topology) -> None:
    demands = {("a", "d"): 8_000_000.0, ("b", "c"): 4000.0, ("d", "a"): 1_000_000.0}
    done = TrafficEngineer(unequal, SETTINGS).step(demands, frozenset(), 0)
    assert done is not None
    assert done.destinations == ("d",)


def test_engineer_leaves_a_dead_link_at_once_and_returns(unequal: Topology) -> None:
    engineer = TrafficEngineer(unequal, SETTINGS)
    engineer.step(LOADED, frozenset(), 0)
    in_force = engineer.weighted
    done = engineer.step(LOADED, frozenset({LinkKey("a", "b")}), 1)
    assert done is not None
    assert done.reason.startswith("dead: a->b; ")
    assert not any(peer == "b" for route in engineer.weighted if route.switch == "a" for peer, _ in route.next_hops)
    spreads_of(unequal, next_hops(unequal), engineer.weighted)
    back = engineer.step(LOADED, frozenset(), 2)
    assert back is not None
    assert engineer.weighted == in_force


def test_engineer_drops_a_detour_when_the_link_returns(unequal: Topology) -> None:
    engineer = TrafficEngineer(unequal, replace(SETTINGS, enough=0.9))
    assert engineer.step(LOADED, frozenset({LinkKey("a", "b")}), 0) is not None
    around = {("a", "b"): "c", ("a", "d"): "c", ("c", "b"): "d"}
    assert engineer.weighted == tuple(WeightedRoute(*pair, ((peer, 1),)) for pair, peer in around.items())
    assert engineer.step(LOADED, frozenset(), 1) is not None
    assert engineer.weighted == ()


def test_engineer_keeps_other_weights_when_a_link_dies(unequal: Topology) -> None:
    """A link without traffic to a destination does not change its weights: the load would return to the full path."""
    engineer = TrafficEngineer(unequal, SETTINGS)
    engineer.step(LOADED, frozenset(), 0)
    engineer.step(LOADED, frozenset({LinkKey("b", "a")}), 1)
    assert WeightedRoute("a", "d", (("b", 1), ("c", 1))) in engineer.weighted


def test_engineer_with_dead_links_starts_from_base_routes(unequal: Topology) -> None:
    """Without weights a switch follows its base route: a sends via b, which avoids the dead link."""
    saved = (WeightedRoute("b", "c", (("a", 1),)), WeightedRoute("b", "d", (("c", 1),)))
    engineer = TrafficEngineer(unequal, replace(SETTINGS, enough=0.9), saved)
    dead = frozenset({LinkKey("b", "d")})
    assert engineer.step(LOADED, dead, 0) is None
    assert engineer.weighted == saved


@pytest.mark.parametrize("seed", range(2))
def test_engineer_routes_over_live_links_only(seed: int) -> None:
    rng = random.Random(seed)
    topology = load_topology("abilene")
    hops = next_hops(topology)
    names = [node.name for node in topology.switches]
    links = [key for key in topology.directed_links if key.src in names and key.dst in names]
    engineer = TrafficEngineer(topology, replace(SETTINGS, min_gain=0.0))
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


def test_engineer_serves_others_when_a_demand_is_cut_off(unequal: Topology) -> None:
    engineer = TrafficEngineer(unequal, SETTINGS)
    demands = {("a", "d"): 1_000_000.0, ("b", "c"): 9_000_000.0}
    alone = frozenset({LinkKey("a", "b"), LinkKey("a", "c")})
    engineer.step(demands, alone, 0)
    done = engineer.step(demands, alone, 1)
    assert done is not None
    assert done.max_utilisation_after < 0.9


def test_engineer_smooths_demands(unequal: Topology) -> None:
    engineer = TrafficEngineer(unequal, replace(SETTINGS, smoothing=0.5))
    engineer.step({("a", "d"): 1_000_000.0}, frozenset(), 0)
    done = engineer.step({("b", "d"): 9_000_000.0}, frozenset(), S)
    assert done is not None
    assert done.max_utilisation_before == pytest.approx((4.5 + 0.25) / 10)


def test_engineer_keeps_weights_when_a_round_fails(unequal: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Search) -> Iterator[None]:
        raise PathError("the splits towards d form a cycle")

    engineer = TrafficEngineer(unequal, SETTINGS)
    engineer.step(LOADED, frozenset(), 0)
    in_force = engineer.weighted
    more = {**LOADED, ("c", "d"): 6_000_000.0}
    with monkeypatch.context() as patched:
        patched.setattr(Search, "__iter__", fails)
        assert engineer.step(more, frozenset(), S) is None
        assert (engineer.weighted, engineer.failed_rounds) == (in_force, 1)
        assert engineer.last_problem == "the splits towards d form a cycle"
        assert engineer.step(more, frozenset({LinkKey("a", "b")}), S + 1) is not None
        assert WeightedRoute("a", "d", (("c", 1),)) in engineer.weighted
    engineer.step(more, frozenset(), 3 * S)
    assert engineer.weighted != in_force


@pytest.fixture(scope="module")
def geant() -> Topology:
    """Return GEANT."""
    return load_topology("geant")


def geant_demands(geant: Topology) -> dict[tuple[str, str], float]:
    """Return demands slightly above the capacity of the base routes' busiest link."""
    return gravity(geant, 200e9)


def test_engineer_computes_a_turn_at_most_in_each_step(geant: Topology) -> None:
    """Every clock reading takes 60 ms: four steps of the search fill a turn of 200 ms."""
    clock = SlowClock(60 * MS)
    engineer = TrafficEngineer(geant, SETTINGS, clock=clock)
    demands, started = geant_demands(geant), 0
    for number in range(5):
        started = clock.time_ns
        assert engineer.step(demands, frozenset(), number) is None
        assert clock.time_ns - started <= TURN_NS + 2 * 60 * MS


def test_engineer_leaves_dead_links_without_a_search(geant: Topology) -> None:
    """Every clock reading takes an hour: rerouting around a dead link does not read it."""
    clock = SlowClock(3600 * S)
    engineer = TrafficEngineer(geant, SETTINGS, clock=clock)
    dead = frozenset({next(key for key in geant.directed_links if key.src in geant.switch and key.dst in geant.switch)})
    done = engineer.step(geant_demands(geant), dead, 0)
    assert done is not None
    assert done.reason.startswith("dead: ")
    assert clock.time_ns == 0


@pytest.mark.parametrize(("tick_ms", "steps"), [(20, 40), (400, 150), (5000, 150)])
def test_engineer_converges_on_machines_of_any_speed(tick_ms: int, steps: int) -> None:
    """A slow machine needs more rounds: each leaves complete weights, and the last ones are as good."""
    topology = load_topology("abilene")
    demands, hops = gravity(topology, 20e9), next_hops(topology)
    engineer = TrafficEngineer(topology, SETTINGS, clock=SlowClock(tick_ms * MS))
    for number in range(steps):
        if engineer.step(demands, frozenset(), number * S) is not None:
            spreads_of(topology, hops, engineer.weighted)
    quick = TrafficEngineer(topology, SETTINGS)
    quick.step(demands, frozenset(), 0)
    assert len(engineer.rounds) >= 1 + (tick_ms >= 5000)
    assert engineer.rounds[-1].max_utilisation_after <= 1.06 * quick.rounds[-1].max_utilisation_after


def test_engineer_is_calm_under_noise(geant: Topology) -> None:
    """Demands that vary by a tenth around a constant mean change no weights."""
    rng = random.Random(1)
    engineer = TrafficEngineer(geant, replace(SETTINGS, smoothing=0.5))
    demands = geant_demands(geant)
    engineer.step(demands, frozenset(), 0)
    changes = [
        engineer.step({pair: rate * rng.uniform(0.9, 1.1) for pair, rate in demands.items()}, frozenset(), number * S)
        for number in range(1, 20)
    ]
    assert not any(changes)
