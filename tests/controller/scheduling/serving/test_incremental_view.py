"""Columns updated by watch events equal freshly built columns, after any events and bindings."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import fields
from itertools import count

import numpy as np
import pytest
from msgspec.structs import replace

from collectors.values import Snapshot as NetworkSnapshot
from controller.apiserver.registry.placements import Binding, BindingRequest, State, bind
from controller.apiserver.resources import Metadata, Node, Pod
from controller.apiserver.resources.hardware import DeviceShare, Hardware, Load, Request
from controller.apiserver.resources.node import DeviceLoad, Image, NodeSpec, NodeStatus, PoolShare, Share
from controller.apiserver.resources.pod import Container, PeerNeed, Phase, PodSpec, PodStatus
from controller.cluster.cost_map import CostMap
from controller.common.errors import StaleError
from controller.scheduling.pods import Snapshot
from controller.scheduling.pods.columns import FreeColumns
from controller.scheduling.serving.assumptions import Assumption
from controller.scheduling.serving.view import ClusterView
from dataplane.topology.families import from_text
from tests.controller.scheduling.pods.clusters import GIB, node

TOPOLOGY = from_text("leaf-spine:leaves=3,spines=2,hosts=3")
HOSTS = [host.name for host in TOPOLOGY.hosts if host.name != "collector"]
PODS = [f"pod-{number}" for number in range(14)]


class Events:
    """Random resource changes, as a view gets them from watches."""

    def __init__(self, seed: int) -> None:
        self.rng, self.view, self.revisions = random.Random(seed), ClusterView(), count(1)
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.sent: list[Assumption] = []

    def step(self) -> None:
        happen = (self.report, self.report, self.change_pod, self.change_pod, self.remove, self.list_again)
        self.rng.choice((*happen, self.send, self.send, self.answer))()

    def report(self) -> None:
        """Let a node report for the first time, or change its report."""
        name, rng = self.rng.choice(HOSTS), self.rng
        gpus = rng.choice((("T4", "T4"), ("T4", "T4"), ("T4", "T4"), ("T4",), ()))
        hardware = None if rng.random() < 0.1 else Hardware.of(node(name, cores=8, gpus=gpus))
        before = self.nodes.get(name)
        if before is not None and rng.random() < 0.8:
            hardware = before.status.hardware
        number = 0 if hardware is None else len(hardware.devices)
        loads = [DeviceLoad(number=index, load=self.load()) for index in range(number) if rng.random() < 0.5]
        images = tuple(
            Image(digest=f"d{index}", names=(f"i{index}",), nbytes=100 + index) for index in range(rng.randrange(3))
        )
        status = NodeStatus(
            ready=rng.random() < 0.8,
            hardware=hardware,
            devices=tuple(loads) if rng.random() < 0.3 else (),
            images=images,
        )
        spec, shares = NodeSpec(unschedulable=rng.random() < 0.1), self.shares(number)
        pool = PoolShare(pool="p", devices=(DeviceShare(number=0, thousandths=100),))
        pools = (pool,) if number and not shares else ()
        self.node(Node(metadata=self.metadata(name), spec=spec, status=status, shares=shares, pools=pools))

    def load(self) -> Load:
        return Load(busy=self.rng.choice((None, 0.25, 1.0)), memory_free_bytes=self.rng.choice((None, GIB, 64 * GIB)))

    def shares(self, devices: int) -> tuple[Share, ...]:
        held = tuple(DeviceShare(number=number, thousandths=300, memory_bytes=GIB) for number in range(devices))
        return tuple(
            Share(pod=f"held-{index}", uid=f"held-{index}", epoch=1, cpu_milli=500, memory_bytes=GIB, devices=held)
            for index in range(self.rng.randrange(3))
        )

    def change_pod(self) -> None:
        name, rng = self.rng.choice(PODS), self.rng
        before = self.pods.get(name)
        peers = (PeerNeed(host=rng.choice(HOSTS), min_bps=10**6), PeerNeed(pod=rng.choice(PODS), min_bps=10**6))
        spec = PodSpec(
            containers=(Container(name="c", image="i"),),
            request=Request(cpu_milli=1000),
            group=rng.choice((None, None, "g", "h")),
            peers=peers[: rng.choice((0, 0, 1, 2))],
        )
        where = rng.choice((None, *HOSTS)) if rng.random() < 0.7 else None
        phase = Phase.PENDING if where is None else rng.choice((Phase.BOUND, Phase.STARTING, Phase.RUNNING))
        epoch = (0 if before is None else before.status.epoch) + (where is not None)
        made = Pod(metadata=self.metadata(name), spec=spec, status=PodStatus(phase=phase, node=where, epoch=epoch))
        self.pods[name] = made
        self.view.take(made)

    def remove(self) -> None:
        kind, table = self.rng.choice(((Node, self.nodes), (Pod, self.pods)))
        if table:
            name = self.rng.choice(sorted(table))
            del table[name]
            self.view.remove(kind, name)

    def list_again(self) -> None:
        self.view.take_all(Node, self.nodes.values())
        self.view.take_all(Pod, self.pods.values())

    def send(self) -> None:
        """Bind a pending pod: assumed now, answered later."""
        waiting = [pod for pod in self.view.waiting() if pod.spec.group is None]
        nodes = {name: node for name, node in self.view.nodes.items() if node.value is not None}
        if not waiting or not nodes:
            return
        pod, name = self.rng.choice(waiting), self.rng.choice(sorted(nodes))
        state = State({pod.metadata.name: pod}, {name: nodes[name]})
        binding = Binding(pod=pod.metadata.name, node=name, shares_version=nodes[name].shares_version)
        with suppress(StaleError):  # a node that is full or closed: nothing is sent
            self.sent.append(self.view.assume(bind(state, BindingRequest(bindings=(binding,)), 1)))

    def answer(self) -> None:
        if not self.sent:
            return
        sent = self.sent.pop(0)
        if self.rng.random() < 0.4:
            self.view.withdraw(sent)
            return
        revision = next(self.revisions)
        # Its events come before the answer, after it, or never, if a newer list comes first.
        before_answer = self.rng.random() < 0.5
        if not before_answer:
            self.view.confirm(sent, revision)
        self.written(sent, revision)
        if before_answer:
            self.view.confirm(sent, revision)

    def written(self, sent: Assumption, revision: int) -> None:
        """Make the server's resources match the assumptions."""
        for name, shares in sent.shares.items():
            if name in self.nodes:
                old = self.nodes[name]
                metadata = replace(old.metadata, revision=revision)
                made = replace(old, metadata=metadata, shares=(*old.shares, *shares))
                self.node(replace(made, shares_version=old.shares_version + 1))

    def node(self, made: Node) -> None:
        self.nodes[made.metadata.name] = made
        self.view.take(made)

    def metadata(self, name: str) -> Metadata:
        return Metadata(name=name, uid=name, revision=next(self.revisions))


def rebuilt(view: ClusterView, costs: CostMap | None) -> Snapshot:
    """Return the snapshot of a new view of the same resources, with freshly built columns."""
    fresh = ClusterView()
    fresh.take_all(Node, view.nodes.values())
    fresh.take_all(Pod, view.pods.values())
    return fresh.snapshot(costs)


def assert_same(snapshot: Snapshot, expected: Snapshot) -> None:
    assert snapshot.columns.names == expected.columns.names
    for column in ("cpu_milli", "memory_bytes", "device_node", "device_start", "device_memory_bytes"):
        assert np.array_equal(getattr(snapshot.columns, column), getattr(expected.columns, column)), column
    for field in fields(FreeColumns):
        assert np.array_equal(getattr(snapshot.free, field.name), getattr(expected.free, field.name)), field.name
    for column in ("ready", "pods", "starting"):
        assert np.array_equal(getattr(snapshot, column), getattr(expected, column)), column
    assert (snapshot.device_busy is None) == (expected.device_busy is None)
    if snapshot.device_busy is not None and expected.device_busy is not None:
        assert np.array_equal(snapshot.device_busy, expected.device_busy, equal_nan=True)
    assert snapshot.groups == expected.groups
    assert snapshot.images == expected.images
    assert (snapshot.costs is None) == (expected.costs is None)
    if snapshot.costs is not None and expected.costs is not None:
        assert np.array_equal(snapshot.costs.pairs.available_bps, expected.costs.pairs.available_bps)


@pytest.mark.parametrize("seed", range(12))
def test_incremental_columns_equal_rebuilt_ones(seed: int) -> None:
    events, costs = Events(seed), CostMap.of(TOPOLOGY, NetworkSnapshot(0, {}, {}, {}))
    for number in range(150):
        for _ in range(events.rng.randrange(1, 4)):
            events.step()
        shown = costs if number % 3 else None
        assert_same(events.view.snapshot(shown), rebuilt(events.view, shown))
    while events.sent:
        events.view.withdraw(events.sent.pop())
    events.list_again()
    assert dict(events.view.nodes) == events.nodes


def test_a_snapshot_stays_as_it_was() -> None:
    events = Events(1)
    for _ in range(40):
        events.step()
    before = events.view.snapshot(None)
    copies = [column.copy() for column in (before.free.cpu_milli, before.free.device_milli, before.ready)]
    for _ in range(60):
        events.step()
        events.view.snapshot(None)
    after = (before.free.cpu_milli, before.free.device_milli, before.ready)
    assert all(np.array_equal(copy, other) for copy, other in zip(copies, after, strict=True))


def test_assumed_binding_survives_a_heartbeat_until_the_event() -> None:
    view = ClusterView()

    def where() -> str | None:
        return view.pods["p"].status.node

    hardware = Hardware.of(node("h1", cores=4))
    seen = Node(metadata=Metadata(name="h1", revision=1), status=NodeStatus(ready=True, hardware=hardware))
    spec = PodSpec(containers=(Container(name="c", image="i"),), request=Request(cpu_milli=1000))
    pod = Pod(metadata=Metadata(name="p", uid="u", revision=2), spec=spec)
    for version in (seen, pod):
        view.take(version)
    request = BindingRequest(bindings=(Binding(pod="p", node="h1", pod_revision=2, shares_version=0),))
    made = bind(State({"p": pod}, {"h1": seen}), request, 5)
    assumption = view.assume(made)
    assert view.snapshot(None).free.cpu_milli.tolist() == [3000]
    assert not view.take(replace(pod, metadata=replace(pod.metadata, revision=3)))  # later writes to it follow
    assert view.take(replace(seen, metadata=replace(seen.metadata, revision=4), spec=NodeSpec(unschedulable=True)))
    assert (view.nodes["h1"].shares_version, len(view.nodes["h1"].shares)) == (1, 1)
    assert view.snapshot(None).ready.tolist() == [False]
    view.confirm(assumption, 6)
    assert where() == "h1"
    written = replace(made.nodes["h1"], metadata=replace(seen.metadata, revision=6))
    assert view.take(written)
    assert view.nodes["h1"] is written
    assert view.take(replace(pod, metadata=replace(pod.metadata, revision=7)))  # released again
    assert where() is None
    view.withdraw(assumption)  # too late to change anything
    assert view.nodes["h1"] is written


def test_late_answer_after_a_seen_release() -> None:
    view = ClusterView()
    hardware = Hardware.of(node("h1", cores=1))
    seen = Node(metadata=Metadata(name="h1", revision=1), status=NodeStatus(ready=True, hardware=hardware))
    spec = PodSpec(containers=(Container(name="c", image="i"),), request=Request(cpu_milli=1000))
    pod = Pod(metadata=Metadata(name="p", uid="u", revision=2), spec=spec)
    for version in (seen, pod):
        view.take(version)
    request = BindingRequest(bindings=(Binding(pod="p", node="h1", pod_revision=2, shares_version=0),))
    assumption = view.assume(bind(State({"p": pod}, {"h1": seen}), request, 5))
    assert view.take(replace(seen, metadata=replace(seen.metadata, revision=8), shares_version=2))
    assert view.snapshot(None).free.cpu_milli.tolist() == [0], "the answer is still out"
    assert view.confirm(assumption, 6)
    assert view.snapshot(None).free.cpu_milli.tolist() == [1000]
