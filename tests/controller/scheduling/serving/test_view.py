"""A scheduler's view of resources: device load and free memory, images, peers, reservations, the workload."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from collectors.values import Snapshot as NetworkSnapshot
from controller.apiserver.resources import Metadata, Node, Pod, PodGroup
from controller.apiserver.resources.hardware import DeviceNeed, Hardware, Load, Request
from controller.apiserver.resources.node import DeviceLoad, Image, NodeStatus
from controller.apiserver.resources.pod import Container, Location, PeerNeed, Phase, PodSpec, PodStatus
from controller.apiserver.resources.pod_group import AllReduce, PodGroupSpec
from controller.cluster.cost_map import CostMap
from controller.scheduling.pods.values import Mate, Peer
from controller.scheduling.serving.decisions import is_measured
from controller.scheduling.serving.view import ClusterView
from dataplane.topology.families import from_text
from dataplane.topology.values import DeviceKind
from tests.controller.scheduling.pods.clusters import GIB, node

TOPOLOGY = from_text("leaf-spine:leaves=2,spines=1,hosts=2")
HOSTS = [host.name for host in TOPOLOGY.hosts if host.name != "collector"]
GBPS = 10**9


def node_of(name: str, revision: int = 1, **status: object) -> Node:
    hardware = Hardware.of(node(name, gpus=("T4", "T4")))
    made = NodeStatus(ready=True, hardware=hardware, **status)  # type: ignore[arg-type]
    return Node(metadata=Metadata(name=name, revision=revision), status=made)


def pod_of(name: str, where: str | None = None, revision: int = 1, **spec: object) -> Pod:
    made = PodSpec(containers=(Container(name="c", image="registry/image:1"),), **spec)  # type: ignore[arg-type]
    status = PodStatus() if where is None else PodStatus(phase=Phase.RUNNING, node=where, epoch=1)
    return Pod(metadata=Metadata(name=name, revision=revision), spec=made, status=status)


def view_of(*resources: Node | Pod | PodGroup) -> ClusterView:
    view = ClusterView()
    for resource in resources:
        assert view.take(resource)
    return view


def test_reported_devices_and_images_are_in_the_view() -> None:
    loads = (
        DeviceLoad(number=0, load=Load(busy=0.75, memory_free_bytes=3 * GIB)),
        DeviceLoad(number=9, load=Load(busy=1.0)),
    )
    images = (Image(digest="sha256:1", names=("registry/image:1",), nbytes=500),)
    snapshot = view_of(node_of("a", devices=loads, images=images), node_of("b")).snapshot(None)
    assert snapshot.device_busy is not None
    assert np.array_equal(snapshot.device_busy, [0.75, np.nan, np.nan, np.nan], equal_nan=True)
    assert snapshot.free.device_memory_bytes.tolist() == [3 * GIB, 16 * GIB, 16 * GIB, 16 * GIB]
    assert snapshot.images == {"sha256:1": {0: 500}, "registry/image:1": {0: 500}}
    assert view_of(node_of("a")).snapshot(None).device_busy is None


def test_statements_of_a_pod_reach_the_policies() -> None:
    group = PodGroup(
        metadata=Metadata(name="g", revision=1),
        spec=PodGroupSpec(size=1, template=pod_of("t").spec, allreduce=AllReduce()),
    )
    location = Location(node="a", device=1, device_kind=DeviceKind.GPU)
    view = view_of(node_of("a"), group)
    pending = view.pending(pod_of("p", group="g", location=location))
    assert (pending.locations, pending.device, pending.device_kind) == (("a",), 1, DeviceKind.GPU)
    assert (pending.images, pending.is_reduced, pending.group) == (("registry/image:1",), True, "g")


def test_peer_needs_hold_in_both_directions() -> None:
    need = PeerNeed(pod="other", min_bps=5)
    asking = pod_of("asking", HOSTS[0], peers=(PeerNeed(pod="new", min_bps=7, max_delay_ns=9),))
    mate = pod_of("mate", group="g")
    view = view_of(pod_of("other", HOSTS[1]), asking, mate)
    view.snapshot(None)
    pending = view.pending(pod_of("new", group="g", peers=(need, PeerNeed(pod="mate"), PeerNeed(pod="nowhere"))))
    assert set(pending.peers) == {Peer(HOSTS[1], 0, 5), Peer(HOSTS[0], 0, 7, 9)}
    assert pending.mates == (Mate("mate"),)


def test_pod_on_its_peers_node_needs_no_network_figures() -> None:
    costs = CostMap.of(TOPOLOGY, NetworkSnapshot(0, {}, {}, {}))
    view = view_of(*(node_of(name) for name in HOSTS))
    pending = view.pending(pod_of("p", peers=(PeerNeed(host=HOSTS[0], min_bps=GBPS),)))
    snapshot = view.snapshot(costs)
    assert is_measured(snapshot, pending, HOSTS[0]) is None
    assert is_measured(snapshot, pending, HOSTS[1]) is False


def test_bound_pod_is_reserved_until_released() -> None:
    costs = CostMap.of(TOPOLOGY, NetworkSnapshot(0, {}, {}, {}))
    view = view_of(*(node_of(name) for name in HOSTS), pod_of("p", peers=(PeerNeed(host=HOSTS[2], min_bps=GBPS),)))
    free_bps = costs.cost(HOSTS[0], HOSTS[2]).available_bps

    def seen_bps() -> int:
        reserved = view.snapshot(costs).costs
        assert reserved is not None
        return free_bps - reserved.cost(HOSTS[0], HOSTS[2]).available_bps

    assert seen_bps() == 0
    waiting = view.pods["p"]
    bound = replace(waiting, status=PodStatus(phase=Phase.BOUND, node=HOSTS[0], epoch=1))
    view.take(replace(bound, metadata=Metadata(name="p", revision=2)))
    assert seen_bps() == GBPS
    assert view.snapshot(costs).costs is view.snapshot(costs).costs
    view.take(replace(waiting, metadata=Metadata(name="p", revision=3)))
    assert seen_bps() == 0
    view.take(replace(bound, metadata=Metadata(name="p", revision=4)))
    view.remove(Pod, "p")
    assert seen_bps() == 0


def test_workload_is_rebuilt_when_a_tenth_of_the_pods_change() -> None:
    gpu = Request(cpu_milli=1, devices=(DeviceNeed(kind=DeviceKind.GPU, thousandths=500),))
    view = view_of(node_of("a"), *(pod_of(f"p{number}", request=gpu) for number in range(20)))
    before = view.snapshot(None).workload
    assert before is not None
    assert before.requests == ((gpu.value, 20),)
    for number in range(2):
        view.take(pod_of(f"q{number}"))
    assert view.snapshot(None).workload is before
    view.take(pod_of("q2"))
    after = view.snapshot(None).workload
    assert after is not None
    assert [count for _, count in after.requests] == [20, 3]
