"""State of a cluster's nodes and pods, ready for decisions.

Two modes. With a watch of the API server, all nodes and all bound pods are known, and whatever pods do not hold is
free. Without it, only the nodes of one request are known, and no pods: everything is free, because kube-scheduler has
already checked that the pod fits next to the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from controller.cluster.cost_map import CostMap
from controller.cluster.hardware import Cluster, Node, Request, Shares, choose
from controller.cluster.hardware.errors import HardwareError
from controller.common.errors import SchedulerError
from controller.scheduling.containers.reservations import Reservation, with_reservations
from controller.scheduling.extender import objects
from controller.scheduling.extender.annotations import NOTHING, PeerNeed, PodAnnotations, annotations_of, matches
from controller.scheduling.extender.hardware import KindOf, node_of, request_of
from controller.scheduling.pods import Peer, PendingPod, Snapshot
from controller.scheduling.pods.columns import FreeColumns, NodeColumns

_KEEPS_OFF = ("NoSchedule", "NoExecute")
_UNSCHEDULABLE = objects.Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")


@dataclass(frozen=True, slots=True)
class KnownNode:
    """A node: its hardware, its host in the topology, and the taints that keep pods off it."""

    value: Node
    host: str
    taints: tuple[objects.Taint, ...]
    version: str


@dataclass(frozen=True, slots=True)
class KnownPod:
    """A pod on a node, by its uid: what it holds there, and its annotations about peers."""

    uid: str
    name: str
    namespace: str
    node: str
    request: Request
    labels: Mapping[str, str]
    annotations: PodAnnotations
    problem: str = ""
    """Reason for ignoring its request or annotations; empty if they are used."""


@dataclass(slots=True)
class Books:
    """Nodes and pods by name and uid. `problems` gives the reason for those left out or only partly counted.

    `host_label` is the label that names a node's host. Not thread-safe; snapshots may be shared between threads.
    """

    kind_of: KindOf
    host_label: str | None = None
    nodes: dict[str, KnownNode] = field(default_factory=dict)
    pods: dict[str, KnownPod] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    _by_name: dict[str, str] = field(default_factory=dict)
    _on: defaultdict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    _shares: dict[str, Shares] = field(default_factory=dict)
    _reported: set[str] = field(default_factory=set)
    _assumed: dict[str, int] = field(default_factory=dict)
    _needy: dict[str, KnownPod] = field(default_factory=dict)
    _reserved: tuple[CostMap, tuple[Reservation, ...], CostMap] | None = None
    _columns: NodeColumns | None = None
    _free: FreeColumns | None = None
    _hosts: tuple[str, ...] = ()

    def take_node(self, node: objects.Node) -> None:
        """Add or update a node; an invalid one is left out."""
        name, version = node.metadata.name, node.metadata.resource_version
        before = self.nodes.get(name)
        # A new list repeats nodes that have not changed.
        if before is not None and version and before.version == version:
            return
        try:
            value = node_of(node, self.kind_of)
        except SchedulerError as error:
            self.problems[name] = str(error)
            if before is not None:
                self._forget_columns()
                del self.nodes[name]
            return
        self.problems.pop(name, None)
        taints = tuple(taint for taint in node.spec.taints or () if taint.effect in _KEEPS_OFF)
        # Kubernetes adds this taint itself, but a moment after it sets the field.
        if node.spec.unschedulable and all(taint.key != _UNSCHEDULABLE.key for taint in taints):
            taints = (*taints, _UNSCHEDULABLE)
        host = name if self.host_label is None else (node.metadata.labels or {}).get(self.host_label, "")
        if before is None or before.value != value or before.host != host:
            self._forget_columns()
        else:
            value = before.value
        self.nodes[name] = KnownNode(value, host, taints, version)

    def remove_node(self, name: str) -> None:
        """Remove a node."""
        self.problems.pop(name, None)
        if self.nodes.pop(name, None) is not None:
            self._forget_columns()

    def take_pod(self, pod: objects.Pod) -> None:
        """Add or update a pod; one without a node, or that has ended, holds nothing."""
        if not pod.holds:
            self.remove_pod(pod.metadata.uid)
            return
        record = self._known(pod)
        self._assumed.pop(record.uid, None)
        if record == self.pods.get(record.uid):
            return
        self.remove_pod(record.uid)
        self.pods[record.uid] = record
        if record.problem:
            self.problems[f"{record.namespace}/{record.name}"] = record.problem
        if record.annotations.peers:
            self._needy[record.uid] = record
        self._by_name[f"{record.namespace}/{record.name}"] = record.uid
        self._on[record.node][record.uid] = None
        self._hold(record)

    def assume(self, pod: objects.Pod, node: str, until_ns: int) -> None:
        """Treat a pod as bound to a node before the watch confirms it, which must happen by `until_ns`."""
        self.take_pod(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node)))
        self._assumed[pod.metadata.uid] = until_ns

    def expire(self, now_ns: int) -> None:
        """Remove assumed pods that no watch has confirmed in time."""
        for uid in [uid for uid, until_ns in self._assumed.items() if until_ns <= now_ns]:
            self.remove_pod(uid)

    def remove_pod(self, uid: str) -> None:
        """Remove a pod."""
        self._assumed.pop(uid, None)
        record = self.pods.pop(uid, None)
        self._needy.pop(uid, None)
        if record is None:
            return
        self.problems.pop(f"{record.namespace}/{record.name}", None)
        full_name = f"{record.namespace}/{record.name}"
        if self._by_name.get(full_name) == uid:
            del self._by_name[full_name]
        self._on[record.node].pop(uid, None)
        if not self._on[record.node]:
            del self._on[record.node]
        shares = self._shares.pop(uid, None)
        if shares is not None and self._free is not None and self._columns is not None:
            self._free.add(self._columns, self._columns.number[record.node], shares, 1)

    def keep_nodes(self, names: Iterable[str]) -> None:
        """Keep only these nodes: a list is complete."""
        kept = set(names)
        for name in [name for name in self.nodes if name not in kept]:
            self.remove_node(name)

    def keep_pods(self, uids: Iterable[str]) -> None:
        """Keep only these pods."""
        kept = set(uids)
        for uid in [uid for uid in self.pods if uid not in kept]:
            self.remove_pod(uid)

    def new_problems(self) -> list[str]:
        """Return problems that have not been returned before."""
        problems = [problem for problem in self.problems.values() if problem not in self._reported]
        self._reported = set(self.problems.values())
        return problems

    def host_of(self, node: str) -> str:
        """Return a node's host, empty if unknown."""
        record = self.nodes.get(node)
        return "" if record is None else record.host

    def pending(
        self, pod: objects.Pod, annotations: PodAnnotations, *, gone: frozenset[str] = frozenset()
    ) -> PendingPod:
        """Return a pod as policies see it; pods that have `gone`, by uid, are no peers.

        Peers that are pods count once they are on a node. A placed pod that names this one needs the path, too. No pod
        is its own peer.
        """
        without = gone | {pod.metadata.uid}
        own = [
            Peer(host, need.nbytes, need.min_bps, need.max_delay_ns)
            for need, host, _ in self._resolved_needs(annotations, without)
        ]
        theirs = [
            Peer(host, need.nbytes, need.min_bps, need.max_delay_ns)
            for other in self._needy.values()
            if other.uid not in without and (host := self.host_of(other.node))
            for need in other.annotations.peers
            if matches(need, pod)
        ]
        return PendingPod(
            pod.full_name,
            request_of(pod, self.kind_of),
            priority=pod.spec.priority or 0,
            locations=annotations.nodes,
            device_kind=annotations.device_kind,
            peers=(*own, *theirs),
            group=annotations.group,
        )

    def reservations(self, gone: frozenset[str] = frozenset()) -> tuple[Reservation, ...]:
        """Return the network needs of pods on nodes, except for those that have `gone`."""
        return tuple(
            Reservation(self.host_of(pod.node), Peer(host, 0, need.min_bps), frozenset((pod.uid, other)))
            for pod in self._needy.values()
            if pod.uid not in gone and self.host_of(pod.node)
            for need, host, other in self._resolved_needs(pod.annotations, gone | {pod.uid})
            if need.min_bps
        )

    def snapshot(self, costs: CostMap | None, *, gone: frozenset[str] = frozenset()) -> Snapshot:
        """Return the present state as policies see it; pods that have `gone`, by uid, hold nothing."""
        columns, free = self._made()
        free = free.copy()
        for uid in gone:
            if (shares := self._shares.get(uid)) is not None:
                free.add(columns, columns.number[self.pods[uid].node], shares, 1)
        ready = np.ones(len(columns.nodes), np.bool_)
        left = self._less_reservations(costs, self.reservations(gone))
        return Snapshot(columns, free, ready, left, self._groups(columns, gone), host_names=self._hosts)

    def emptied(self, snapshot: Snapshot, costs: CostMap | None) -> Snapshot:
        """Return a snapshot in which no pod holds resources or reserves bandwidth."""
        return replace(snapshot, free=FreeColumns.of(snapshot.columns, Cluster({})), costs=costs)

    def _less_reservations(self, costs: CostMap | None, held: tuple[Reservation, ...]) -> CostMap | None:
        """Return the cost map less the reservations; cached for the same arguments."""
        if costs is None or not held:
            return costs
        if self._reserved is None or self._reserved[0] is not costs or self._reserved[1] != held:
            self._reserved = costs, held, with_reservations(costs, held)
        return self._reserved[2]

    def _resolved_needs(
        self, annotations: PodAnnotations, without: frozenset[str]
    ) -> Iterator[tuple[PeerNeed, str, str]]:
        """Yield each need with its peer's host and identity, a pod's uid or the host; skip the pods of `without`."""
        for need in annotations.peers:
            if need.host:
                yield need, need.host, f"host/{need.host}"
                continue
            if need.pod:
                uid = self._by_name.get(need.pod)
                pods = [] if uid is None else [self.pods[uid]]
            else:
                pods = [pod for pod in self.pods.values() if _has_labels(pod, need)]
            for pod in pods:
                if pod.uid not in without and (host := self.host_of(pod.node)):
                    yield need, host, pod.uid

    def _known(self, pod: objects.Pod) -> KnownPod:
        full_name = pod.full_name
        annotations, request, problem = NOTHING, Request(), ""
        try:
            request = request_of(pod, self.kind_of)
            annotations = annotations_of(pod)
        except SchedulerError as error:
            problem = str(error)
        namespace, _, name = full_name.partition("/")
        return KnownPod(
            pod.metadata.uid or full_name,
            name,
            namespace,
            pod.spec.node_name,
            request,
            pod.metadata.labels or {},
            annotations,
            problem,
        )

    def _made(self) -> tuple[NodeColumns, FreeColumns]:
        """Return nodes as columns and their free resources, rebuilt after nodes have changed."""
        if self._columns is None or self._free is None:
            nodes = tuple(self.nodes.values())
            self._columns = NodeColumns.of(tuple(node.value for node in nodes))
            self._hosts = tuple(node.host for node in nodes)
            self._free = FreeColumns.of(self._columns, Cluster({}))
            self._shares.clear()
            for pod in self.pods.values():
                self._hold(pod)
        return self._columns, self._free

    def _hold(self, pod: KnownPod) -> None:
        """Count what a pod holds, if its node is known; of over-committed devices, only those left."""
        if self._columns is None or self._free is None or (row := self._columns.number.get(pod.node)) is None:
            return
        shares = Shares(pod.request.cpu_milli, pod.request.memory_bytes)
        for wanted in pod.request.devices:
            held = self._free.held_of(self._columns, row) + Shares(devices=shares.devices)
            try:
                more = choose(self._columns.nodes[row], Shares(devices=held.devices), Request(devices=(wanted,)))
            except HardwareError:
                name = f"{pod.namespace}/{pod.name}"
                self.problems[name] = f"pod {name}: node {pod.node} has too few {wanted} left"
                continue
            shares += more
        self._shares[pod.uid] = shares
        self._free.add(self._columns, row, shares, -1)

    def _groups(self, columns: NodeColumns, gone: frozenset[str]) -> dict[str, dict[int, int]]:
        counts: defaultdict[str, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
        for pod in self.pods.values():
            if pod.annotations.group and pod.uid not in gone and pod.node in columns.number:
                counts[pod.annotations.group][columns.number[pod.node]] += 1
        return {group: dict(nodes) for group, nodes in counts.items()}

    def _forget_columns(self) -> None:
        self._columns = self._free = None


def _has_labels(pod: KnownPod, need: PeerNeed) -> bool:
    return pod.namespace == need.namespace and all(pod.labels.get(name) == value for name, value in need.labels)
