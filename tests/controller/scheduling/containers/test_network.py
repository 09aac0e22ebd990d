"""Reserved bandwidth of bound pods, demands that share links, and groups with traffic between members."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.values import FlowKey, PathState
from collectors.values import Snapshot as NetworkSnapshot
from controller.cluster.cost_map import CostMap, Load
from controller.cluster.hardware import Cluster, Request
from controller.scheduling.containers.reservations import Reservation, reserved, with_reservations
from controller.scheduling.pods import Peer, PendingPod, PodProfile, PodProfileSettings, Snapshot, explain, place_group
from controller.scheduling.pods.filters import overloaded
from controller.scheduling.pods.values import Mate
from dataplane.topology.families import from_text
from dataplane.topology.values import Topology
from tests.controller.cluster.cost_map.fabrics import link_state
from tests.controller.scheduling.pods.clusters import node

DEFAULT = PodProfile.of(PodProfileSettings())
GBPS = 10**9


@pytest.fixture(scope="module")
def fabric() -> Topology:
    return from_text("leaf-spine:leaves=2,spines=1,hosts=2")


def hosts_of(topology: Topology) -> list[str]:
    return [host.name for host in topology.hosts if host.name != "collector"]


def nominal(topology: Topology) -> CostMap:
    return CostMap.of(topology, NetworkSnapshot(0, {}, {}, {}))


def reservation(host: str, peer: str, rate_bps: int, *names: str) -> Reservation:
    return Reservation(host, Peer(peer, 0, rate_bps), frozenset(names or (host, peer)))


def test_need_is_reserved_in_both_directions_until_the_pod_goes(fabric: Topology) -> None:
    costs, (host, other, *_) = nominal(fabric), hosts_of(fabric)
    held = [reservation(host, other, GBPS)]
    less = with_reservations(costs, held)
    for ends in ((host, other), (other, host)):
        assert costs.cost(*ends).available_bps - less.cost(*ends).available_bps == GBPS
    assert with_reservations(costs, []) is costs


def test_two_ends_that_need_each_other_need_it_once(fabric: Topology) -> None:
    costs, (host, other, *_) = nominal(fabric), hosts_of(fabric)
    held = [reservation(host, other, GBPS, "a", "b"), reservation(other, host, 2 * GBPS, "a", "b")]
    assert reserved(held, costs) == (Load(host, other, 2 * GBPS), Load(other, host, 2 * GBPS))
    others = [*held, reservation(host, other, GBPS, "c", "d"), reservation(host, host, GBPS, "e", "f")]
    assert reserved(others, costs)[0].rate_bps == 3 * GBPS
    assert reserved([reservation("elsewhere", host, GBPS)], costs) == ()


def measured(topology: Topology, src: str, dst: str, rate_bps: int) -> CostMap:
    """Return a map with telemetry of all switch links, and of one flow."""
    by_name = {host.name: host for host in topology.hosts}
    flow = FlowKey(by_name[src].ipv4, by_name[dst].ipv4, 17, 1, 2)
    path = PathState(flow, ("s1",), 0, 0, 0, rate_bps=rate_bps)
    rng = random.Random(1)
    links = {
        key: replace(link_state(topology, key, rng), age_ns=0)
        for key in topology.directed_links
        if key.src in topology.switch
    }
    return CostMap.of(topology, NetworkSnapshot(0, links, {flow: path}, {}))


def test_traffic_already_measured_is_not_reserved_again(fabric: Topology) -> None:
    host, other, third, *_ = hosts_of(fabric)
    held = [reservation(host, other, GBPS), reservation(host, third, GBPS)]
    costs = measured(fabric, host, other, GBPS // 4)
    assert costs.sent_bps(host, other) == GBPS // 4
    assert reserved(held, costs) == (
        Load(host, other, GBPS * 3 // 4),
        Load(host, third, GBPS),
        Load(other, host, GBPS),
        Load(third, host, GBPS),
    )
    full = measured(fabric, host, other, 2 * GBPS)
    assert reserved(held[:1], full) == (Load(other, host, GBPS),)
    unseen = replace(nominal(fabric), flows=costs.flows)
    assert reserved(held[:1], unseen)[0] == Load(host, other, GBPS), "no link's load was measured, so nothing is in it"


def test_needs_that_share_a_link_are_met_together_or_refused(fabric: Topology) -> None:
    """Two peers in the other rack: the link between the racks must carry both demands, else the node is refused."""
    costs, names = nominal(fabric), hosts_of(fabric)
    snapshot = Snapshot.of(Cluster.of([node(name) for name in names]), costs)
    between = costs.cost(names[0], names[2]).available_bps
    pod = PendingPod("p", peers=(Peer(names[2], 0, between * 2 // 3), Peer(names[3], 0, between * 2 // 3)))
    why = explain(DEFAULT, pod, snapshot)
    assert why.choice is None or why.choice in names[2:]
    refused = {refusal.name: refusal.reason for refusal in why.refused}
    assert "too little bandwidth is free for all its peers together" in refused[names[0]]


@given(rates=st.lists(st.integers(1, 4 * GBPS), min_size=1, max_size=3))
@settings(max_examples=30, deadline=None)
def test_fitting_demands_exceed_no_link(rates: list[int]) -> None:
    topology = from_text("leaf-spine:leaves=2,spines=2,hosts=2")
    costs, names = nominal(topology), hosts_of(topology)
    snapshot = Snapshot.of(Cluster.of([node(name) for name in names]), costs)
    pod = PendingPod("p", peers=tuple(Peer(name, 0, rate) for name, rate in zip(names[1:], rates, strict=False)))
    loads = [Load(*ends, peer.min_bps) for peer in pod.peers for ends in ((names[0], peer.host), (peer.host, names[0]))]
    after = costs.with_loads(loads)
    fits = bool((after.links.load_bps <= after.links.rate_bps + 1).all())
    assert (overloaded(pod, snapshot, 0) is None) == fits


def test_members_that_talk_are_placed_as_they_need_it(fabric: Topology) -> None:
    costs, names = nominal(fabric), hosts_of(fabric)
    snapshot = Snapshot.of(Cluster.of([node(name, cores=1) for name in names]), costs)
    near_ns = costs.cost(names[0], names[1]).delay_ns
    pods = [
        PendingPod("a", Request(1000), group="g", mates=(Mate("b", 0, GBPS, near_ns),)),
        PendingPod("b", Request(1000), group="g"),
    ]
    placement = place_group(DEFAULT, pods, snapshot)
    assert placement.is_placed
    racks = {costs.model.host_switch[costs.model.host_number[names[choice.candidate]]] for choice in placement.choices}
    assert len(racks) == 1


def test_a_groups_own_bandwidth_is_not_given_twice(fabric: Topology) -> None:
    """Three members that each need most of an access link to the first one: only two fit, so none is placed."""
    costs, names = nominal(fabric), hosts_of(fabric)
    snapshot = Snapshot.of(Cluster.of([node(name, cores=1) for name in names]), costs)
    access = costs.cost(names[0], names[1]).available_bps
    hub = PendingPod("hub", Request(1000), group="g", locations=(names[0],))
    spokes = [
        PendingPod(f"s{number}", Request(1000), group="g", mates=(Mate("hub", 0, access * 2 // 5),))
        for number in range(3)
    ]
    assert not place_group(DEFAULT, [hub, *spokes], snapshot).is_placed
    assert place_group(DEFAULT, [hub, *spokes[:2]], snapshot).is_placed


def test_another_order_is_tried_if_the_first_fails() -> None:
    """The small one would take the only node that fits the large one, unless the large one goes first."""
    cluster = Cluster.of([node("large", cores=4), node("small", cores=1)])
    pods = [PendingPod("a", Request(1000), group="g"), PendingPod("b", Request(4000), group="g")]
    packed = replace(DEFAULT, scores=())
    placement = place_group(packed, pods, Snapshot.of(cluster))
    assert placement.is_placed
    assert [(choice.subject.name, cluster_name(cluster, choice.candidate)) for choice in placement.choices] == [
        ("a", "small"),
        ("b", "large"),
    ]
    assert [share.cpu_milli for share in placement.shares] == [1000, 4000]


def cluster_name(cluster: Cluster, number: int) -> str:
    return list(cluster.nodes)[number]
