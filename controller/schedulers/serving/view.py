"""What a scheduler knows of the cluster: nodes, pods and groups as watches tell them, ready to be decided by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from controller.api.resources import Node, Pod, PodGroup
from controller.api.resources.base import Resource
from controller.api.resources.pod import PeerNeed, Phase
from controller.cluster.cost_map import CostMap
from controller.cluster.hardware import Cluster, values
from controller.cluster.hardware.errors import HardwareError
from controller.cluster.hardware.values import NOTHING
from controller.schedulers.containers.reservations import Reservation, with_reservations
from controller.schedulers.framework import Peer, PendingPod, Snapshot
from controller.schedulers.framework.columns import FreeColumns, Ids, NodeColumns
from controller.schedulers.framework.values import Mate
from controller.schedulers.framework.workload import Workload
from controller.schedulers.serving.reports import images_of, measured_devices

R = TypeVar("R", bound=Resource)
_STARTING = (Phase.BOUND, Phase.STARTING)


@dataclass(frozen=True, slots=True)
class _Known:
    """A node's resource, and what schedulers see of it; without a value it is left out, for the `problem`."""

    node: Node
    value: values.Node | None
    held: values.Shares
    problem: str = ""


class ClusterView:
    """Resources by name; older versions of what is known are not taken.

    `problems` are nodes that are left out, and why.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.groups: dict[str, PodGroup] = {}
        self.problems: dict[str, str] = {}
        self._snapshot: Snapshot | None = None
        self._known: dict[str, _Known] = {}
        self._columns: NodeColumns | None = None
        self._made_of: Workload | None = None
        self._unreserved: CostMap | None = None
        self._reserved: tuple[CostMap, tuple[Reservation, ...], CostMap] | None = None
        self._named_by: dict[str, list[tuple[Pod, PeerNeed]]] = {}
        self._reckoned = 0
        self._others = 0
        self._talking: dict[str, Pod] = {}
        self._promised: dict[str, Pod] = {}

    def take_all(self, kind: type[R], resources: Iterable[R]) -> None:
        """Take all resources of a kind, in place of those known."""
        known = self._of(kind)
        known.clear()
        known.update((one.metadata.name, one) for one in resources)
        if kind is Pod:
            self._talking.clear()
            self._promised.clear()
            for pod in self.pods.values():
                self._note(pod)
        self._snapshot = None

    def take(self, resource: Resource) -> bool:
        """Take a resource as it is now; return whether it is newer than what was known."""
        known = self._of(type(resource))
        before = known.get(resource.metadata.name)
        if before is not None and before.metadata.revision >= resource.metadata.revision:
            return False
        known[resource.metadata.name] = resource
        if isinstance(resource, Pod):
            self._note(resource)
            self._others += before is None
        if not isinstance(resource, PodGroup):
            self._snapshot = None
        return True

    def remove(self, kind: type[Resource], name: str) -> None:
        """Take a resource out."""
        self._of(kind).pop(name, None)
        if kind is Pod:
            self._talking.pop(name, None)
            self._promised.pop(name, None)
            self._others += 1
        self._snapshot = None

    def _note(self, pod: Pod) -> None:
        """Keep those pods at hand of which only few are looked at each time: with peers, and with a promise."""
        name = pod.metadata.name
        for kept, holds in ((self._talking, bool(pod.spec.peers)), (self._promised, pod.status.nominated is not None)):
            if holds:
                kept[name] = pod
            else:
                kept.pop(name, None)

    def waiting(self) -> Iterable[Pod]:
        """Return pods that are to be placed."""
        return (pod for pod in self.pods.values() if is_waiting(pod))

    def members(self, group: str) -> tuple[Pod, ...]:
        """Return pods of a group that are to be placed, in order of name."""
        found = (pod for pod in self.waiting() if pod.spec.group == group)
        return tuple(sorted(found, key=lambda pod: pod.metadata.name))

    def nominated(self) -> Iterable[Pod]:
        """Return pods that room on a node is promised to."""
        return tuple(self._promised.values())

    def snapshot(self, costs: CostMap | None) -> Snapshot:
        """Return the present state as policies see it."""
        if self._snapshot is None or self._unreserved is not costs:
            self._unreserved = costs
            self._snapshot = self._made(costs)
        return self._snapshot

    def reservations(self) -> Iterator[tuple[Pod, Reservation]]:
        """Yield what bound pods need of the network, with the pods."""
        for pod in self._talking.values():
            if pod.status.node is None:
                continue
            for peer in pod.spec.peers:
                other = None if peer.pod is None else self.pods.get(peer.pod)
                host = peer.host if peer.pod is None else None if other is None else other.status.node
                if host is not None and peer.min_bps:
                    between = frozenset((f"pod/{pod.metadata.name}", f"pod/{peer.pod}" if peer.pod else f"host/{host}"))
                    yield pod, Reservation(pod.status.node, Peer(host, 0, peer.min_bps), between)

    def _with_reservations(self, costs: CostMap | None) -> CostMap | None:
        """Return what lies between nodes less what is reserved; it is not worked out again for the same."""
        self._named_by = self._names()
        held = () if costs is None else tuple(one for _, one in self.reservations())
        if costs is None or not held:
            return costs
        if self._reserved is None or self._reserved[0] is not costs or self._reserved[1] != held:
            self._reserved = costs, held, with_reservations(costs, held)
        return self._reserved[2]

    def _names(self) -> dict[str, list[tuple[Pod, PeerNeed]]]:
        found: defaultdict[str, list[tuple[Pod, PeerNeed]]] = defaultdict(list)
        for pod in self._talking.values():
            for peer in pod.spec.peers:
                if peer.pod is not None:
                    found[peer.pod].append((pod, peer))
        return dict(found)

    def pending(self, pod: Pod) -> PendingPod:
        """Return a pod as policies see it; peers that are pods count where they are, and not while they are nowhere."""
        spec, location = pod.spec, pod.spec.location
        peers, mates = [], []
        for peer in spec.peers:
            other = None if peer.pod is None else self.pods.get(peer.pod)
            host = peer.host if peer.pod is None else None if other is None else other.status.node
            if host is not None:
                peers.append(Peer(host, 0, peer.min_bps, peer.max_delay_ns))
            elif other is not None and spec.group is not None and other.spec.group == spec.group:
                mates.append(Mate(other.metadata.name, 0, peer.min_bps, peer.max_delay_ns))
        for asking, need in self._named_by.get(pod.metadata.name, ()):
            # Who is bound and names this pod needs the way, too: in both directions it is the same.
            if asking.status.node is not None:
                peers.append(Peer(asking.status.node, 0, need.min_bps, need.max_delay_ns))
        return PendingPod(
            pod.metadata.name,
            spec.request.value,
            spec.priority,
            locations=(location.node,) if location is not None and location.node is not None else (),
            labels=tuple(spec.node_labels.items()),
            device_kind=None if location is None else location.device_kind,
            peers=tuple(peers),
            group=spec.group or "",
            device=None if location is None else location.device,
            mates=tuple(mates),
            images=tuple(container.image for container in spec.containers if container.image is not None),
            is_reduced=self._is_reduced(spec.group),
            operators=spec.operators,
        )

    def _is_reduced(self, group: str | None) -> bool:
        found = None if group is None else self.groups.get(group)
        return found is not None and found.spec.allreduce is not None

    def _made(self, costs: CostMap | None) -> Snapshot:
        self._known = {name: self._known_of(node) for name, node in self.nodes.items()}
        self.problems = {name: one.problem for name, one in self._known.items() if one.problem}
        good = {name: one for name, one in self._known.items() if one.value is not None}
        found = tuple(one.value for one in good.values() if one.value is not None)
        if self._columns is None or not _are_same(found, self._columns.nodes):
            self._columns = NodeColumns.of(found)
        columns = self._columns
        cluster = Cluster({value.name: value for value in found}, {name: one.held for name, one in good.items()})
        ready = np.array([is_ready(self.nodes[name]) for name in columns.names], np.bool_)
        free = FreeColumns.of(columns, cluster)
        busy = measured_devices(columns, [self.nodes[name] for name in columns.names], free)
        return Snapshot(
            columns,
            free,
            ready,
            self._with_reservations(costs),
            self._groups_of(columns.number),
            device_busy=busy,
            images=images_of([self.nodes[name] for name in columns.names]),
            workload=self._workload(),
            pods=np.array([len(self.nodes[name].shares) for name in columns.names], np.int64),
            starting=self._starting(columns.number),
        )

    def _starting(self, numbers: Mapping[str, int]) -> Ids:
        """Return how many pods of each node have not started yet."""
        found = np.zeros(len(numbers), np.int64)
        for pod in self.pods.values():
            if pod.status.phase in _STARTING and pod.status.node in numbers:
                found[numbers[str(pod.status.node)]] += 1
        return found

    def _workload(self) -> Workload:
        """Return what pods ask for: made anew once a tenth of them are others than when it was made.

        Policies compute much from it, and a distribution does not change by one pod.
        """
        if self._made_of is None or self._others * 10 > self._reckoned:
            self._made_of = Workload.of(pod.spec.request.value for pod in self.pods.values())
            self._reckoned, self._others = len(self.pods), 0
        return self._made_of

    def _known_of(self, node: Node) -> _Known:
        """Return a node as schedulers see it; what has not changed is not made again."""
        before = self._known.get(node.metadata.name)
        if before is not None and before.node is node:
            return before
        try:
            if before is not None and before.value is not None and _has_same(before.node, node):
                return _Known(node, before.value, node.held)
            value = node.value
            if value is None:
                return _Known(node, None, NOTHING, "it has not said what it has")
            value.check(node.held)
            return _Known(node, value, node.held)
        except HardwareError as error:
            return _Known(node, None, NOTHING, str(error))

    def _groups_of(self, numbers: Mapping[str, int]) -> dict[str, dict[int, int]]:
        counts: defaultdict[str, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
        for pod in self.pods.values():
            if pod.spec.group is not None and pod.status.node in numbers:
                counts[pod.spec.group][numbers[str(pod.status.node)]] += 1
        return {group: dict(nodes) for group, nodes in counts.items()}

    def _of(self, kind: type[Resource]) -> dict[str, Resource]:
        tables: dict[type[Resource], dict[str, Resource]] = {
            Node: self.nodes,  # type: ignore[dict-item]
            Pod: self.pods,  # type: ignore[dict-item]
            PodGroup: self.groups,  # type: ignore[dict-item]
        }
        return tables[kind]


def _are_same(some: Sequence[object], others: Sequence[object]) -> bool:
    return len(some) == len(others) and all(one is other for one, other in zip(some, others, strict=True))


def _has_same(before: Node, now: Node) -> bool:
    return before.hardware == now.hardware and before.metadata.labels == now.metadata.labels


def is_waiting(pod: Pod) -> bool:
    """Return whether a pod is to be placed."""
    status = pod.status
    return status.node is None and status.phase is Phase.PENDING and pod.metadata.deleting_ns is None


def is_ready(node: Node) -> bool:
    """Return whether a node takes pods."""
    return node.status.ready and not node.spec.unschedulable and node.metadata.deleting_ns is None
