"""Weights from round to round: when they change, stay and revert."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import pytest
from msgspec.structs import replace

from controller.network.intents import WeightedRoute
from controller.network.paths.balancing.balancer import Balancer, weights_on
from controller.network.paths.balancing.forwarding import Forwarding
from controller.network.paths.balancing.values import MeasuredFlow, Rebalance
from controller.network.paths.deciding.beliefs import Beliefs
from controller.network.paths.deciding.graph import Network
from controller.network.paths.settings import BalanceSettings, DecideSettings
from dataplane.topology.values import LinkKey
from tests.controller.network.paths.balancing.small_fabrics import (
    MBPS,
    fabric,
    forwarding_of,
    loads,
    make_flow,
    make_flows,
    row,
)

MS = 1_000_000
S = 1000 * MS
SETTINGS = DecideSettings()
UPLINK = ("leaf1", "spine1")


class Rounds:
    """A balancer and its inputs: flows follow its weights at once, and overloads are visible."""

    def __init__(self, settings: DecideSettings = SETTINGS, weighted: Sequence[WeightedRoute] = ()) -> None:
        self.network = Network(fabric())
        self.balancer = Balancer(self.network, settings, weighted)
        self.beliefs = Beliefs(self.network.table, settings)
        self.flows: list[MeasuredFlow] = []
        self.other: dict[tuple[str, str], float] = {}
        self.now_ns, self.asked = 0, 0
        self.changes: list[Rebalance] = []

    def small_flows(self, counts: Mapping[str, int], rate_bps: float = 0.5 * MBPS) -> None:
        """Start flows from leaf1 to leaf2, with this many hashed to each spine."""
        self.flows = make_flows(self.network, "leaf1", "leaf2", counts, rate_bps)

    def step(self, *, confirming: bool = True, last_move_ns: int | None = None) -> list[Rebalance]:
        """Run a round, a tenth of a second after the last one."""
        self.now_ns += 100 * MS
        self.beliefs.load_bps = loads(self.network, self._now(), self.other)
        self.beliefs.crowded = self.beliefs.load_bps >= 0.9 * self.network.table.rate_bps
        changes = self.balancer.step(
            self.beliefs, self._measured_flows, self.now_ns, last_move_ns=last_move_ns, confirming=confirming
        )
        self.changes += changes
        return changes

    def until(self, end_ns: int) -> list[Rebalance]:
        """Run rounds up to a time; return the changes."""
        changes: list[Rebalance] = []
        while self.now_ns < end_ns:
            changes += self.step()
        return changes

    def _now(self) -> list[MeasuredFlow]:
        forwarding = forwarding_of(self.network, self.balancer._weights)
        return [make_flow(forwarding, self.network, f.hashed, ("leaf1", "leaf2"), f.rate_bps) for f in self.flows]

    def _measured_flows(self, _: Forwarding) -> list[MeasuredFlow]:
        self.asked += 1
        return self._now()


def test_rebalance_needs_a_confirmed_crowded_link() -> None:
    rounds = Rounds()
    rounds.small_flows({"spine1": 18, "spine2": 4})
    assert [len(rounds.step()) for _ in range(2)] == [0, 0]
    assert rounds.step(confirming=False) == []
    assert rounds.asked == 0
    [change] = rounds.step()
    assert (change.switch, change.destination) == ("leaf1", "leaf2")
    assert change.link in (LinkKey(*UPLINK), LinkKey("spine1", "leaf2"))
    assert change.old_weights == (("spine1", 1), ("spine2", 1))
    assert "is overloaded" in change.reason
    [route] = rounds.balancer.weighted
    assert (route.switch, route.destination, route.next_hops) == ("leaf1", "leaf2", change.new_weights)
    assert "at leaf1 by spine1" in weights_on(("leaf1", "spine1", "leaf2"), {("leaf1", "leaf2"): route.next_hops})


def test_streams_are_not_computed_without_crowded_links() -> None:
    rounds = Rounds()
    rounds.small_flows({"spine1": 8, "spine2": 8})
    assert rounds.until(5 * S) == []
    assert rounds.asked == 0


def test_bursts_shorter_than_that_change_nothing() -> None:
    rounds = Rounds()
    for number in range(60):
        rounds.small_flows({"spine1": 19 if number % 3 else 10, "spine2": 4})
        assert rounds.step() == []


def test_after_any_move_the_network_settles_first() -> None:
    rounds = Rounds()
    rounds.small_flows({"spine1": 18, "spine2": 4})
    moved_ns = 250 * MS
    while not rounds.changes:
        rounds.step(last_move_ns=moved_ns)
    assert rounds.now_ns == 1000 * MS  # the first round 0.7 s after the move


def test_changed_group_keeps_its_weights_for_the_hold_down() -> None:
    rounds = Rounds()
    rounds.small_flows({"spine1": 18, "spine2": 4})
    [first] = rounds.until(S)
    rounds.other = {UPLINK: 3.5 * MBPS}
    [second] = rounds.until(12 * S)
    assert second.time_ns - first.time_ns >= SETTINGS.hold_down_ns


def test_hopeless_link_is_not_reconsidered_every_round() -> None:
    rounds = Rounds()
    rounds.small_flows({"spine1": 20, "spine2": 16})
    assert rounds.until(10 * S) == []
    assert rounds.asked <= 2 + 10 * S // SETTINGS.settle_ns


def test_equal_weights_return_after_room_for_the_hold_down() -> None:
    rounds = Rounds()
    rounds.small_flows({"spine1": 18, "spine2": 4})
    rounds.until(S)
    assert rounds.until(20 * S) == []  # the hash would still place them as before
    rounds.flows = rounds.flows[:8]
    since_ns = rounds.now_ns
    [home] = rounds.until(40 * S)
    assert home.link is None
    assert home.new_weights == (("spine1", 1), ("spine2", 1))
    assert "equal weights suffice again" in home.reason
    assert SETTINGS.hold_down_ns <= home.time_ns - since_ns <= SETTINGS.hold_down_ns + 2 * S
    assert rounds.balancer.weighted == ()


def test_weights_stay_without_enough_room_for_long_enough() -> None:
    rounds = Rounds()
    rounds.small_flows({"spine1": 18, "spine2": 4})
    rounds.until(S)
    by_one, by_other = rounds.flows, rounds.flows[:6]
    for number in range(20):
        rounds.flows = by_other if number % 2 else by_one
        assert rounds.until(rounds.now_ns + 3 * S) == []
    rounds.small_flows(
        {"spine1": 15, "spine2": 2}
    )  # 7.5 of 10 Mbit/s with equal weights: below the headroom's limit, but not by enough
    assert rounds.until(rounds.now_ns + 30 * S) == []


def test_failed_return_doubles_the_hold_down_of_a_group() -> None:
    """Traffic that comes and goes every 8 s: its group keeps the weights longer each time, in the end for good."""
    rounds = Rounds()
    rounds.small_flows({"spine1": 18, "spine2": 4})
    crowd = rounds.flows
    for number in range(40):
        rounds.flows = crowd if number % 2 == 0 else crowd[:4]
        rounds.until((number + 1) * 8 * S)
    assert 1 <= len(rounds.changes) <= 4
    times = [change.time_ns for change in rounds.changes]
    assert all(later - earlier >= SETTINGS.hold_down_ns for earlier, later in pairwise(times))


def test_a_next_hop_that_is_dead_is_in_no_group() -> None:
    rounds = Rounds()
    rounds.small_flows({"spine1": 18, "spine2": 4})
    dead = row(rounds.network, "leaf1", "spine2")
    rounds.beliefs.table.alive[dead] = False
    assert rounds.until(3 * S) == []  # with one of two dead there is no choice


@pytest.mark.parametrize("down", [True, False])
def test_weights_over_a_dead_link_are_given_up_at_once(down: bool) -> None:
    rounds = Rounds()
    rounds.small_flows({"spine1": 18, "spine2": 4})
    rounds.until(S)
    dead = {LinkKey("leaf1", "spine2")}
    [change] = rounds.balancer.avoid(dead, dead if down else set(), rounds.now_ns)
    assert change.link == LinkKey("leaf1", "spine2")
    assert "is dead" in change.reason
    assert rounds.balancer.weighted == ()
    assert rounds.balancer.avoid(dead, dead, rounds.now_ns) == []


def test_weights_off_the_base_routes_are_dropped() -> None:
    """spine2's link to leaf2 is down: leaf1's base route to leaf2 is via spine1 only."""
    rounds = Rounds()
    rounds.small_flows({"spine1": 18, "spine2": 4})
    rounds.until(S)
    dead = {LinkKey("spine2", "leaf2")}
    [change] = rounds.balancer.avoid(dead, dead, rounds.now_ns)
    assert change.new_weights == (("spine1", 1),)
    assert "no longer lead" in change.reason


def test_saved_weights_are_restored_if_in_the_topology() -> None:
    saved = (
        WeightedRoute("leaf1", "leaf2", (("spine1", 1), ("spine2", 3))),
        WeightedRoute("leaf1", "leaf9", (("spine1", 1),)),
        WeightedRoute("spine1", "leaf1", (("leaf3", 1),)),
    )
    rounds = Rounds(weighted=saved)
    assert rounds.balancer.weighted == saved[:1]
    [home] = rounds.until(20 * S)
    assert home.old_weights == saved[0].next_hops


def test_confirming_rounds_are_a_setting() -> None:
    rounds = Rounds(replace(SETTINGS, balance=BalanceSettings(confirm_rounds=7)))
    rounds.small_flows({"spine1": 18, "spine2": 4})
    [change] = rounds.until(2 * S)
    assert change.time_ns == 700 * MS


def test_the_same_is_decided_again_from_the_same() -> None:
    changes = []
    for _ in range(2):
        rounds = Rounds()
        rounds.small_flows({"spine1": 18, "spine2": 4})
        rounds.other = {("leaf1", "spine2"): 1.5 * MBPS}
        changes.append(tuple(rounds.until(30 * S)))
    assert changes[0] == changes[1]
    assert np.isfinite([change.utilisation_after for change in changes[0]]).all()
