"""Victims of a pod of a higher priority, checked against every set of pods on small clusters."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.values import Snapshot as NetworkSnapshot
from controller.cluster.cost_map import CostMap
from controller.cluster.hardware import Cluster as Machines
from controller.cluster.hardware import DeviceRequest, Request
from controller.scheduling.containers.preemption import Cluster, Holder, make_room
from controller.scheduling.containers.reservations import Reservation, with_reservations
from controller.scheduling.pods import Peer, PendingPod, PodProfile, PodProfileSettings, Snapshot, decide, place_group
from dataplane.topology.families import from_text
from dataplane.topology.values import DeviceKind
from tests.controller.scheduling.pods.clusters import node

DEFAULT = PodProfile.of(PodProfileSettings())
GBPS = 10**9


def cluster_of(machines: Machines, *pods: tuple[str, str, Request, int, str]) -> Cluster:
    """Return a cluster in which pods (name, node, request, priority, group) hold their requests."""
    holders = []
    numbers = {name: number for number, name in enumerate(machines.nodes)}
    for name, where, request, priority, group in pods:
        shares = machines.choose(where, request)
        machines = machines.take(where, shares)
        holders.append(Holder(name, numbers[where], shares, priority, group))
    return Cluster(Snapshot.of(machines), tuple(holders))


def cores(count: int) -> Request:
    return Request(1000 * count)


def test_the_lowest_and_fewest_go() -> None:
    machines = Machines.of([node("a", cores=4), node("b", cores=4), node("c", cores=4)])
    cluster = cluster_of(
        machines,
        ("a1", "a", cores(2), 1, ""),
        ("a2", "a", cores(2), 1, ""),
        ("b1", "b", cores(4), 1, ""),
        ("c1", "c", cores(1), 3, ""),
        ("c2", "c", cores(3), 2, ""),
    )
    pod = PendingPod("p", cores(4))
    room = make_room(DEFAULT, [pod], cluster, 5)
    assert room is not None
    assert (room.victims, room.nodes) == (("b1",), (1,)), "one of priority 1, not two of it, nor one of 2"
    small = make_room(DEFAULT, [PendingPod("p", cores(2))], cluster, 5)
    assert small is not None
    assert len(small.victims) == 1
    assert make_room(DEFAULT, [pod], cluster, 1) is None, "no victims of equal priority"
    assert make_room(DEFAULT, [PendingPod("p", cores(9))], cluster, 5) is None, "it would not fit on an empty node"


def test_stopping_pods_are_waited_for() -> None:
    cluster = cluster_of(Machines.of([node("a", cores=4)]), ("a1", "a", cores(4), 9, ""))
    (holder,) = cluster.holders
    leaving = Cluster(cluster.snapshot, (Holder("a1", 0, holder.shares, 9, "", is_leaving=True),))
    room = make_room(DEFAULT, [PendingPod("p", cores(4))], leaving, 1)
    assert room is not None
    assert (room.victims, room.nodes) == ((), (0,))


def test_a_group_goes_whole_or_not_at_all() -> None:
    machines = Machines.of([node("a", cores=4), node("b", cores=4), node("c", cores=4)])
    pods = [("g1", "a", cores(4), 1, "g"), ("g2", "b", cores(4), 1, "g"), ("single", "c", cores(4), 2, "")]
    room = make_room(DEFAULT, [PendingPod("p", cores(4))], cluster_of(machines, *pods), 5)
    assert room is not None
    assert room.victims == ("g1", "g2"), "the lower priority counts before the number"
    pods[1] = ("g2", "b", cores(4), 7, "g")
    other = make_room(DEFAULT, [PendingPod("p", cores(4))], cluster_of(machines, *pods), 5)
    assert other is not None
    assert other.victims == ("single",), "one of the group is too high, so all of it stays"


def test_room_for_a_group() -> None:
    machines = Machines.of([node("a", cores=4), node("b", cores=4), node("c", cores=4)])
    cluster = cluster_of(
        machines, ("a1", "a", cores(4), 1, ""), ("b1", "b", cores(2), 1, ""), ("c1", "c", cores(4), 8, "")
    )
    pods = [PendingPod(f"w{number}", cores(2), group="w") for number in range(3)]
    room = make_room(DEFAULT, pods, cluster, 5)
    assert room is not None
    assert room.victims == ("a1",)
    assert sorted(room.nodes) in ([0, 0, 1], [0, 1, 1])


def test_a_device_is_freed() -> None:
    machines = Machines.of([node("a", gpus=["T4", "T4"])])
    half = Request(devices=(DeviceRequest(DeviceKind.GPU, 1, 500),))
    whole = Request(devices=(DeviceRequest(DeviceKind.GPU),))
    cluster = cluster_of(machines, ("h1", "a", half, 0, ""), ("h2", "a", half, 0, ""), ("w", "a", whole, 3, ""))
    room = make_room(DEFAULT, [PendingPod("p", half)], cluster, 5)
    assert room is not None
    assert room.victims in (("h1",), ("h2",))
    two = make_room(DEFAULT, [PendingPod("p", whole)], cluster, 5)
    assert two is not None
    assert two.victims == ("h1", "h2")


def test_bandwidth_is_freed_by_a_pod_elsewhere() -> None:
    """The path to the peer is reserved by another node's pod: that pod is evicted although no share is missing."""
    topology = from_text("leaf-spine:leaves=2,spines=1,hosts=2")
    names = [host.name for host in topology.hosts if host.name != "collector"]
    costs = CostMap.of(topology, NetworkSnapshot(0, {}, {}, {}))
    machines = Machines.of([node(name, cores=4) for name in names])
    rate_bps = costs.cost(names[0], names[2]).available_bps
    held = Reservation(names[1], Peer(names[2], 0, rate_bps), frozenset({"low", "x"}))
    shares = machines.choose(names[1], cores(1))
    machines = machines.take(names[1], shares)
    snapshot = Snapshot.of(machines, with_reservations(costs, [held]))
    holder = Holder("low", 1, shares, 0, "", reservations=(held,))
    cluster = Cluster(snapshot, (holder,), costs)
    pod = PendingPod("p", cores(1), locations=(names[0],), peers=(Peer(names[2], 0, GBPS),))
    assert not decide(DEFAULT, pod, snapshot).is_placed
    room = make_room(DEFAULT, [pod], cluster, 5)
    assert room is not None
    assert (room.victims, room.nodes) == (("low",), (0,))


@given(
    held=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.integers(0, 3), st.sampled_from(["", "", "g"]))),
    wanted=st.integers(1, 5),
    priority=st.integers(0, 4),
)
@settings(max_examples=150)
def test_no_better_set_exists(held: list[tuple[int, int, int, str]], wanted: int, priority: int) -> None:
    """No other set of whole lower-priority units that makes room on one node costs less."""
    machines = Machines.of([node(name, cores=4) for name in "abc"])
    pods = []
    for number, (where, size, of, group) in enumerate(held[:7]):
        if machines.fits("abc"[where], cores(size)) is None:
            machines = machines.take("abc"[where], machines.choose("abc"[where], cores(size)))
            pods.append((f"p{number}", "abc"[where], cores(size), of, group))
    cluster = cluster_of(Machines.of([node(name, cores=4) for name in "abc"]), *pods)
    pod = PendingPod("new", cores(wanted))
    room = make_room(DEFAULT, [pod], cluster, priority)
    units: dict[str, list[Holder]] = {}
    for holder in cluster.holders:
        units.setdefault(holder.group or holder.pod, []).append(holder)
    lower = [unit for unit in units.values() if max(holder.priority for holder in unit) < priority]
    ways = []
    for count in range(len(lower) + 1):
        for some in combinations(lower, count):
            gone = [holder for unit in some for holder in unit]
            if decide(DEFAULT, pod, cluster.without(frozenset(holder.pod for holder in gone))).is_placed:
                priorities = [holder.priority for holder in gone]
                ways.append((max(priorities, default=-1), len(priorities), sum(priorities)))
    assert (room is None) == (not ways)
    if room is not None:
        victim_priorities = [holder.priority for holder in cluster.holders if holder.pod in room.victims]
        assert max(victim_priorities, default=-1) == min(ways)[0], "the highest victim priority is minimal"
        # Sparing one by one does not always find the fewest of equal priority, but no victim could be spared.
        victims = frozenset(room.victims)
        assert decide(DEFAULT, pod, cluster.without(victims)).is_placed
        for unit in lower:
            names = frozenset(holder.pod for holder in unit)
            if names <= victims:
                assert not decide(DEFAULT, pod, cluster.without(victims - names)).is_placed or room.victims == ()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_fitting_group_needs_no_victims(size: int) -> None:
    cluster = cluster_of(Machines.of([node("a", cores=4)]), ("low", "a", cores(1), 0, ""))
    pods = [PendingPod(f"w{number}", cores(1), group="w") for number in range(size)]
    assert place_group(DEFAULT, pods, cluster.snapshot).is_placed
    room = make_room(DEFAULT, pods, cluster, 5)
    assert room is not None
    assert room.victims == ()
