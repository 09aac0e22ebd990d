"""A scheduler's view of nodes, pods and groups, from watches, ready for decisions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TypeVar

from controller.apiserver.registry.placements import State
from controller.apiserver.resources import Node, Pod, PodGroup
from controller.apiserver.resources.base import Resource
from controller.apiserver.resources.pod import PeerNeed, Phase, PodSpec
from controller.cluster.cost_map import CostMap
from controller.cluster.hardware import Request
from controller.scheduling.containers.reservations import Reservation, with_reservations
from controller.scheduling.fairness import PodShares, Weights
from controller.scheduling.pods import Peer, PendingPod, Snapshot
from controller.scheduling.pods.values import Mate
from controller.scheduling.pods.workload import Workload
from controller.scheduling.serving.assumptions import Assumption, Assumptions
from controller.scheduling.serving.node_table import KnownNode, NodeTable, is_ready
from controller.scheduling.serving.pod_counts import PodCounts
from dataplane.topology.values import DeviceKind

__all__ = ["ClusterView", "is_ready", "is_waiting"]

R = TypeVar("R", bound=Resource)


class ClusterView:
    """Resources by name; versions older than the known ones are ignored.

    Bindings count at once, by `assume`, before any watch shows them. `problems` lists nodes that are left out, and why.
    Between two snapshots only the changed rows are written.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.groups: dict[str, PodGroup] = {}
        self.problems: dict[str, str] = {}
        self._assumptions = Assumptions()
        self._snapshot: Snapshot | None = None
        self._known: dict[str, KnownNode] = {}
        self._changed: set[str] = set()
        """Nodes whose rows must be written; the table is rebuilt when nodes come or go."""
        self._table: NodeTable | None = None
        self._counts = PodCounts()
        self.shares = PodShares(Weights())
        self._distribution: Workload | None = None
        self._reserved: tuple[CostMap, tuple[Reservation, ...], CostMap] | None = None
        self._costs: tuple[CostMap | None, CostMap | None] | None = None
        self._named_by: dict[str, list[tuple[Pod, PeerNeed]]] = {}
        self._counted_pods = 0
        self._others = 0
        self._with_peers: dict[str, Pod] = {}
        self._promised: dict[str, Pod] = {}

    def take_all(self, kind: type[R], resources: Iterable[R]) -> None:
        """Replace all known resources of a kind; assumptions that the watch has not shown yet are kept."""
        table, by_name = self._of(kind), {resource.metadata.name: resource for resource in resources}
        for name in [name for name in table if name not in by_name]:
            self._drop(kind, name)
        # Use the order of the list, so that rows do not depend on earlier state.
        before = dict(table)
        table.clear()
        for name, resource in by_name.items():
            shown = self._assumptions.shown(resource, before.get(name))
            table[name] = shown
            self._note(shown, before.get(name))
        if kind is Node:
            self._table = None

    def take(self, resource: Resource) -> bool:
        """Take a resource's current state; return whether it is newer than the known one."""
        table, name = self._of(type(resource)), resource.metadata.name
        before = table.get(name)
        seen = self._assumptions.seen(type(resource), name) or before
        if seen is not None and seen.metadata.revision >= resource.metadata.revision:
            return False
        shown = self._assumptions.shown(resource, before)
        if shown is before:
            return False
        self._put(shown)
        self._others += before is None and isinstance(resource, Pod)
        return True

    def remove(self, kind: type[Resource], name: str) -> None:
        """Remove a resource."""
        self._drop(kind, name)
        self._others += kind is Pod

    def assume(self, state: State) -> Assumption:
        """Apply bindings that were sent or are about to be, until `confirm` or `withdraw`."""
        assumption = Assumption.of(state, self.nodes)
        for resource in assumption.resources(state):
            before = self._of(type(resource))[resource.metadata.name]
            self._put(self._assumptions.add(assumption, resource, before))
        return assumption

    def confirm(self, assumption: Assumption, revision: int) -> bool:
        """Keep an assumption until the watch has shown what was written at a revision.

        Return True if that changes a node's shares, because the watch has already shown a later release.
        """
        assumption.revision = revision
        return self._look_at(assumption)

    def withdraw(self, assumption: Assumption) -> None:
        """Return the resources to the state of the watch."""
        assumption.is_withdrawn = True
        self._look_at(assumption)

    def _look_at(self, assumption: Assumption) -> bool:
        has_changed = False
        for kind, name in assumption.keys:
            before = self._of(kind).get(name)
            if before is not None and (shown := self._assumptions.visible(kind, name, before)) is not before:
                self._put(shown)
                if isinstance(before, Node) and isinstance(shown, Node):
                    has_changed = has_changed or before.shares != shown.shares
        return has_changed

    def _put(self, resource: Resource) -> None:
        table, name = self._of(type(resource)), resource.metadata.name
        before = table.get(name)
        table[name] = resource
        self._note(resource, before)

    def _drop(self, kind: type[Resource], name: str) -> None:
        self._assumptions.forget(kind, name)
        before = self._of(kind).pop(name, None)
        if isinstance(before, Node):
            self.shares.replace_node(before, None)
        if kind is Node:
            self._table = None
            self._known.pop(name, None)
        if isinstance(before, Pod):
            self._note_pod(name, None, before)

    def _note(self, resource: Resource, before: Resource | None) -> None:
        name = resource.metadata.name
        if isinstance(resource, Pod):
            self._note_pod(name, resource, before if isinstance(before, Pod) else None)
        elif isinstance(resource, Node):
            self.shares.replace_node(before if isinstance(before, Node) else None, resource)
            if before is None:
                self._table = None
            self._changed.add(name)

    def _note_pod(self, name: str, pod: Pod | None, before: Pod | None) -> None:
        """Index the few pods that are examined each time: those with peers, and those with a promise."""
        self._counts.replace(before, pod)
        self.shares.replace_pod(before, pod)
        if name in self._named_by or any(state is not None and state.spec.peers for state in (before, pod)):
            self._costs = None  # reservations may have changed
        for kept, holds in (
            (self._with_peers, pod is not None and bool(pod.spec.peers)),
            (self._promised, pod is not None and pod.status.nominated is not None),
        ):
            if holds and pod is not None:
                kept[name] = pod
            else:
                kept.pop(name, None)

    def waiting(self) -> Iterable[Pod]:
        """Return pods to place."""
        return (pod for pod in self.pods.values() if is_waiting(pod))

    def members(self, group: str) -> tuple[Pod, ...]:
        """Return pods of a group to place, in order of name."""
        pods = (self.pods[name] for name in self._counts.members(group))
        return tuple(pod for pod in pods if is_waiting(pod))

    def nominated(self) -> Iterable[Pod]:
        """Return pods with room promised on a node."""
        return tuple(self._promised.values())

    def snapshot(self, costs: CostMap | None) -> Snapshot:
        """Return the present state as policies see it; the same value until something changes."""
        table, before = self._current_table(), self._snapshot
        numbers, known_costs = table.columns.number, self._with_reservations(costs)
        groups, starting = self._counts.groups_on(numbers), self._counts.starting_on(numbers)
        workload = self._workload()
        if (
            before is None
            or before.free is not table.free
            or before.costs is not known_costs
            or before.groups is not groups
            or before.starting is not starting
            or before.workload is not workload
        ):
            snapshot = Snapshot(
                table.columns,
                table.free,
                table.ready,
                known_costs,
                groups,
                device_busy=table.busy,
                images=table.images,
                workload=workload,
                pods=table.pods,
                starting=starting,
            )
            # The nodes' hosts depend only on columns and costs.
            if before is not None and before.columns is snapshot.columns and before.costs is snapshot.costs:
                snapshot.keep_hosts(before)
            self._snapshot = snapshot
            return snapshot
        return before

    def _current_table(self) -> NodeTable:
        """Return nodes as columns; only changed rows are written, if that suffices."""
        changed = []
        for name in [name for name in self._changed if name in self.nodes]:
            before = self._known.get(name)
            entry = self._known[name] = KnownNode.of(self.nodes[name], before)
            if entry.value is None and before is not None and before.value is None:
                self.problems[name] = entry.problem  # it has no row, before or after
            else:
                changed.append(entry)
        self._changed.clear()
        if self._table is not None and changed:
            self._table = self._table.changed(changed)
        if self._table is None:
            self._table = self._rebuilt_table()
        return self._table

    def _rebuilt_table(self) -> NodeTable:
        self._known = {name: KnownNode.of(node, self._known.get(name)) for name, node in self.nodes.items()}
        self.problems = {name: entry.problem for name, entry in self._known.items() if entry.problem}
        columns = None if self._snapshot is None else self._snapshot.columns
        return NodeTable.of(tuple(self._known.values()), columns)

    def reservations(self) -> Iterator[tuple[Pod, Reservation]]:
        """Yield the network needs of bound pods, with the pods."""
        for pod in self._with_peers.values():
            if pod.status.node is None:
                continue
            for peer in pod.spec.peers:
                other = None if peer.pod is None else self.pods.get(peer.pod)
                host = peer.host if peer.pod is None else None if other is None else other.status.node
                if host is not None and peer.min_bps:
                    between = frozenset((f"pod/{pod.metadata.name}", f"pod/{peer.pod}" if peer.pod else f"host/{host}"))
                    yield pod, Reservation(pod.status.node, Peer(host, 0, peer.min_bps), between)

    def _with_reservations(self, costs: CostMap | None) -> CostMap | None:
        """Return the cost map less the reservations; cached for the same arguments."""
        if self._costs is not None and self._costs[0] is costs:
            return self._costs[1]
        self._named_by = self._names()
        held = () if costs is None else tuple(reservation for _, reservation in self.reservations())
        if costs is None or not held:
            self._costs = costs, costs
            return costs
        if self._reserved is None or self._reserved[0] is not costs or self._reserved[1] != held:
            self._reserved = costs, held, with_reservations(costs, held)
        self._costs = costs, self._reserved[2]
        return self._reserved[2]

    def _names(self) -> dict[str, list[tuple[Pod, PeerNeed]]]:
        by_peer: defaultdict[str, list[tuple[Pod, PeerNeed]]] = defaultdict(list)
        for pod in self._with_peers.values():
            for peer in pod.spec.peers:
                if peer.pod is not None:
                    by_peer[peer.pod].append((pod, peer))
        return dict(by_peer)

    def pending(self, pod: Pod) -> PendingPod:
        """Return a pod as policies see it; peers that are pods count once they are on a node."""
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
            # A bound pod that names this one needs the path, too; both directions count equally.
            if asking.status.node is not None:
                peers.append(Peer(asking.status.node, 0, need.min_bps, need.max_delay_ns))
        return PendingPod(
            pod.metadata.name,
            self._request_of(spec),
            spec.priority,
            locations=(location.node,) if location is not None and location.node is not None else (),
            labels=tuple(spec.node_labels.items()),
            device_kind=None if location is None or location.device_kind is DeviceKind.CPU else location.device_kind,
            peers=tuple(peers),
            group=spec.group or "",
            device=None if location is None else location.device,
            mates=tuple(mates),
            images=tuple(container.image for container in spec.containers if container.image is not None),
            is_reduced=self._is_reduced(spec.group),
            operators=spec.operators,
        )

    def _request_of(self, spec: PodSpec) -> Request:
        """Return what a pod gets; operators bring a device only if some node has one."""
        has_none = spec.may_lack_device and not len(self._current_table().columns.device_node)
        return (spec.request if has_none else spec.requested).value

    def _is_reduced(self, group: str | None) -> bool:
        pod_group = None if group is None else self.groups.get(group)
        return pod_group is not None and pod_group.spec.allreduce is not None

    def _workload(self) -> Workload:
        """Return the distribution of pods' requests: rebuilt once a tenth of the pods have changed.

        Policies derive much from it, and a single pod hardly changes a distribution.
        """
        if self._distribution is None or self._others * 10 > self._counted_pods:
            self._distribution = Workload.of(self._request_of(pod.spec) for pod in self.pods.values())
            self._counted_pods, self._others = len(self.pods), 0
        return self._distribution

    def _of(self, kind: type[Resource]) -> dict[str, Resource]:
        tables: dict[type[Resource], dict[str, Resource]] = {
            Node: self.nodes,  # type: ignore[dict-item]
            Pod: self.pods,  # type: ignore[dict-item]
            PodGroup: self.groups,  # type: ignore[dict-item]
        }
        return tables[kind]


def is_waiting(pod: Pod) -> bool:
    """Return whether a pod should be placed."""
    status = pod.status
    return status.node is None and status.phase is Phase.PENDING and pod.metadata.deleting_ns is None
