"""Placing by the network: reservations, groups that contend for links, an exact solution, blind scores."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from collectors.values import Snapshot as NetworkSnapshot
from controller.cluster.cost_map import CostMap, Load
from controller.cluster.hardware import Cluster, Request
from controller.scheduling.pods import Peer, PendingPod, PodProfile, PodProfileSettings, Snapshot, explain, place_group
from controller.scheduling.pods.reservations import loads_of
from controller.scheduling.pods.searching import search_group, with_mates
from controller.scheduling.pods.values import Mate
from dataplane.topology.families import from_text
from tests.benchmarks.placing import network
from tests.controller.scheduling.pods.clusters import node

GBPS = 10**9
DEFAULT = PodProfile.of(PodProfileSettings())
COSTS = CostMap.of(from_text("fat-tree:k=4"), NetworkSnapshot(0, {}, {}, {}))
"""Links of 10 Gbit/s; h1 and h2 are at one switch, h1 to h4 in one pod with two paths to another pod."""


def snapshot(*names: str, costs: CostMap = COSTS, cores: int = 8) -> Snapshot:
    return Snapshot.of(Cluster.of(node(name, cores) for name in names), costs)


def pod(name: str, *peers: Peer, mates: tuple[Mate, ...] = (), cores: int = 1) -> PendingPod:
    return PendingPod(name, Request(cpu_milli=1000 * cores), peers=peers, mates=mates)


def test_a_reservation_is_on_every_link_that_the_hash_may_choose() -> None:
    reserved = COSTS.with_reservations([Load("h1", "h16", 4 * GBPS)])
    shares = COSTS.routing.shares(*(COSTS.model.number(host) for host in ("h1", "h16")))
    assert min(shares.values()) < 1  # several paths
    taken = COSTS.links.available_bps - reserved.links.available_bps
    assert set(taken[list(shares)].tolist()) == {4 * GBPS}
    assert np.count_nonzero(taken) == len(shares) + 2
    assert (reserved.cost("h1", "h16").available_bps, reserved.cost("h16", "h1").available_bps) == (6 * GBPS, 10 * GBPS)
    assert reserved.is_predicted
    # Delays result from the split load.
    loaded = COSTS.with_load("h1", "h16", 4 * GBPS)
    assert reserved.cost("h1", "h16").delay_ns == loaded.cost("h1", "h16").delay_ns


def test_reservations_add_up_and_unknown_hosts_have_none() -> None:
    both = COSTS.with_reservations([Load("h1", "h2", GBPS), Load("h1", "h2", 2 * GBPS), Load("x", "h2", GBPS)])
    assert both.cost("h1", "h2").available_bps == 7 * GBPS
    again = COSTS.with_reservations([Load("h1", "h2", GBPS)]).with_reservations([Load("h1", "h2", 2 * GBPS)])
    assert again.cost("h1", "h2").available_bps == 7 * GBPS
    assert loads_of("h1", (Peer("h1", min_bps=5), Peer("", min_bps=5), Peer("h2"))) == ()


def test_a_pod_that_is_placed_takes_bandwidth_from_the_next() -> None:
    state, reader = snapshot("h3", "h5"), pod("p", Peer("h1", min_bps=6 * GBPS))
    why = explain(DEFAULT, reader, state)
    assert why.passed == 2
    placed = state.columns.number[str(why.choice)]
    after = explain(DEFAULT, reader, state.taking(placed, DEFAULT.shares(reader, state, placed), peers=reader.peers))
    assert after.choice is None  # the link of h1 itself
    assert after.refused[0].reason.startswith("h1: 4000.0 Mbit/s are free")


def test_peers_that_share_a_link_are_looked_at_together() -> None:
    """Each of the two can be reached with 6 Gbit/s, but not both at the same time over the node's one link."""
    both = pod("p", Peer("h1", min_bps=6 * GBPS), Peer("h5", min_bps=6 * GBPS))
    why = explain(DEFAULT, both, snapshot("h1", "h9"))
    assert why.choice == "h1"  # at one of them
    assert [(refusal.name, refusal.policy, refusal.reason) for refusal in why.refused] == [
        ("h9", "network-need", "the link to h9: too little bandwidth is free for all its peers together")
    ]
    inner = pod("p", Peer("h9", min_bps=6 * GBPS), Peer("h13", min_bps=6 * GBPS))
    assert explain(DEFAULT, inner, snapshot("h1")).choice is None


def test_placed_mates_are_peers_whichever_pod_names_them() -> None:
    mates = (Mate("b", min_bps=1, max_delay_ns=5),)
    group = (pod("a", mates=mates), pod("b"))
    assert with_mates(group[0], group, {}).peers == ()
    assert with_mates(group[0], group, {"b": "h2"}).peers == (Peer("h2", min_bps=1, max_delay_ns=5),)
    assert with_mates(group[1], group, {"a": "h1"}).peers == (Peer("h1", min_bps=1, max_delay_ns=5),)


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_members_that_need_each_other_are_placed_near(order: tuple[str, str]) -> None:
    members = {
        "a": pod("a", Peer("h1", max_delay_ns=3_000), mates=(Mate("b", min_bps=GBPS, max_delay_ns=3_000),), cores=2),
        "b": pod("b", cores=2),
    }
    state = snapshot("h2", "h1", "h9", "h13", cores=2)
    placement = place_group(DEFAULT, [members[name] for name in order], state)
    assert placement.is_placed
    where = {choice.subject.name: state.columns.names[choice.candidate] for choice in placement.choices}
    assert [choice.subject.name for choice in placement.choices] == list(order)
    assert set(where.values()) == {"h1", "h2"}


def test_group_contending_for_a_link_is_placed_if_possible() -> None:
    """The first pod may run anywhere; on the node of the default order, the second gets no bandwidth."""
    modest = pod("a", Peer("h1", min_bps=GBPS), cores=8)
    greedy = pod("b", Peer("h1", min_bps=9 * GBPS), cores=8)
    state = snapshot("h1", "h2", "h3")
    for members in ([modest, greedy], [greedy, modest]):
        placement = place_group(DEFAULT, members, state)
        assert placement.is_placed
        assert [choice.subject.name for choice in placement.choices] == [member.name for member in members]
    # With one gigabit more than the link's rate, one of them must be on h1 itself.
    tight = [dataclasses.replace(modest, peers=(Peer("h1", min_bps=2 * GBPS),)), greedy]
    placement = place_group(DEFAULT, tight, state)
    assert placement.is_placed
    assert "h1" in {state.columns.names[choice.candidate] for choice in placement.choices}
    assert not place_group(DEFAULT, tight, snapshot("h2", "h3")).is_placed


def test_a_search_ends() -> None:
    """Twelve pods that cannot all be placed: bounded steps, and no placement."""
    members = [pod(f"p{number}", Peer("h1", min_bps=GBPS)) for number in range(12)]
    assert search_group(DEFAULT, members, snapshot("h2", "h3", "h5", "h7", "h9", "h11")) is None


def test_all_bounds_that_an_exact_solution_keeps_are_kept() -> None:
    """Mixed integer programs of 25 groups of 5 pods; a group that they cannot place is refused here, too."""
    ours, feasible = network.bounds_kept(25)
    assert feasible > 40
    assert ours == feasible


def test_network_scores_place_peers_nearer_than_others_do() -> None:
    assert network.delay_ratio((6,), 2) > 1.5
