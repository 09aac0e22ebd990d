"""The workload controller's view: nodes, pods and groups from watches, and when it saw each, by its own clock.

Times are monotonic and of this process: no wall clock counts, and a restarted controller counts from zero.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from controller.apiserver.resources import Node, Pod, PodGroup, Resource
from controller.apiserver.resources.node import NodeSpec
from controller.apiserver.resources.pod import Phase
from controller.apiserver.resources.pod_group import GroupPhase
from dataplane.clock import NS_PER_S

_MOST_SILENCES: Final = 1000
_UNKNOWN_LEASE_NS: Final = int(NodeSpec().lease_s * NS_PER_S)
"""Lease of a node that was gone before this controller began."""

Known = type[Node] | type[Pod] | type[PodGroup]
KINDS: Final[tuple[Known, ...]] = (Node, Pod, PodGroup)


@dataclass(frozen=True, slots=True)
class SeenNode:
    """A node, and since when its last report is known.

    `lease_ns` is the longest lease that it may believe in: the one in the answer to its last report, or those written
    since.
    """

    node: Node
    seen_ns: int
    lease_ns: int

    @property
    def heartbeat_ns(self) -> int:
        """The server's time stamp of its last report, 0 for none."""
        return self.node.status.heartbeat_ns or 0

    def deadline_ns(self, margin_ns: int) -> int:
        """Return when it becomes silent."""
        return self.seen_ns + self.lease_ns + margin_ns


@dataclass(slots=True)
class View:
    """See the module. Ignores older versions of known resources."""

    started_ns: int
    nodes: dict[str, SeenNode] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    groups: dict[str, PodGroup] = field(default_factory=dict)
    pods_of_node: dict[str, set[str]] = field(default_factory=dict)
    pods_of_group: dict[str, set[str]] = field(default_factory=dict)
    pods_of_no_node: dict[str, int] = field(default_factory=dict)
    """Pods bound to a missing node: the time until which its lease may last."""
    since_ns: dict[str, int] = field(default_factory=dict)
    """Time at which each pod was first seen to have failed, or to have to stop."""
    troubled_ns: dict[str, int] = field(default_factory=dict)
    """Time at which each pod was first seen to have failed, restarted or lost its node (`trouble_of`)."""
    waiting_ns: dict[str, int] = field(default_factory=dict)
    """Time at which each pending group was first seen pending."""
    silences: dict[str, deque[int]] = field(default_factory=dict)
    """Times at which each node was found silent."""
    emptied: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Silent nodes whose pods are placed again: since which heartbeat, and since when."""
    revisions: dict[Known, int] = field(default_factory=dict)
    """Revision up to which each kind was seen."""

    def take_all(self, kind: Known, resources: Iterable[Resource], revision: int, now_ns: int) -> None:
        """Replace all known resources of a kind."""
        current = {resource.metadata.name: resource for resource in resources}
        for name in [name for name in self._names(kind) if name not in current]:
            self._drop(kind, name)
        for resource in current.values():
            self.take(resource, now_ns)
        self.revisions[kind] = revision

    def take(self, resource: Resource, now_ns: int) -> None:
        """Take the current version of a resource."""
        if isinstance(resource, Node):
            self._take_node(resource, now_ns)
        elif isinstance(resource, Pod):
            self._take_pod(resource, now_ns)
        elif isinstance(resource, PodGroup):
            self._take_group(resource, now_ns)

    def note_revision(self, kind: Known, revision: int) -> None:
        """Note the revision up to which all events of a kind are known."""
        self.revisions[kind] = max(self.revisions.get(kind, 0), revision)

    def remove(self, kind: Known, name: str, revision: int) -> None:
        """Remove a resource deleted at a revision; one created again since stays."""
        current = self._known(kind, name)
        if current is not None and current.metadata.revision <= revision:
            self._drop(kind, name)

    def count_anew(self, now_ns: int) -> None:
        """Restart the silence of all nodes from now: nodes that could not be heard were not silent."""
        self.nodes = {name: replace(seen, seen_ns=now_ns) for name, seen in self.nodes.items()}
        self.pods_of_no_node = {
            pod: max(until, now_ns + _UNKNOWN_LEASE_NS) for pod, until in self.pods_of_no_node.items()
        }

    def note_silence(self, node: str, now_ns: int) -> None:
        """Record that a node was found silent."""
        self.silences.setdefault(node, deque(maxlen=_MOST_SILENCES)).append(now_ns)

    def note_emptied(self, node: str, heartbeat_ns: int, now_ns: int) -> None:
        """Record that pods of a node, silent since this heartbeat, are placed again."""
        if self.emptied.get(node, (-1, 0))[0] != heartbeat_ns:
            self.emptied[node] = heartbeat_ns, now_ns

    def is_complete(self) -> bool:
        """Return whether all kinds were listed."""
        return len(self.revisions) == len(KINDS)

    def on_node(self, name: str) -> list[Pod]:
        """Return pods that are bound to a node, in order of name."""
        return [self.pods[pod] for pod in sorted(self.pods_of_node.get(name, ()))]

    def in_group(self, name: str) -> list[Pod]:
        """Return pods that name a group, in order of name."""
        return [self.pods[pod] for pod in sorted(self.pods_of_group.get(name, ()))]

    def _take_node(self, node: Node, now_ns: int) -> None:
        name, lease_ns = node.metadata.name, int(node.spec.lease_s * NS_PER_S)
        before = self.nodes.get(name)
        if before is not None and before.node.metadata.revision > node.metadata.revision:
            return
        same = before is not None and before.node.metadata.uid == node.metadata.uid
        if before is not None and same and before.node.status.heartbeat_ns == node.status.heartbeat_ns:
            self.nodes[name] = SeenNode(node, before.seen_ns, max(before.lease_ns, lease_ns))
        else:
            self.nodes[name] = SeenNode(node, now_ns, lease_ns)
        for pod in self.pods_of_node.get(name, ()):
            self.pods_of_no_node.pop(pod, None)

    def _take_pod(self, pod: Pod, now_ns: int) -> None:
        name = pod.metadata.name
        before = self.pods.get(name)
        if before is not None and before.metadata.revision > pod.metadata.revision:
            return
        state = _waited_for(pod)
        if before is None or before.metadata.uid != pod.metadata.uid or _waited_for(before) != state:
            self.since_ns.pop(name, None)
            if state:
                self.since_ns[name] = now_ns
        if not trouble_of(pod) or (before is not None and before.metadata.uid != pod.metadata.uid):
            self.troubled_ns.pop(name, None)
        if trouble_of(pod):
            self.troubled_ns.setdefault(name, now_ns)
        if before is not None:
            _discard(self.pods_of_node, before.status.node, name)
            _discard(self.pods_of_group, before.spec.group, name)
        self.pods[name] = pod
        _add(self.pods_of_node, pod.status.node, name)
        _add(self.pods_of_group, pod.spec.group, name)
        if pod.status.node is None or pod.status.node in self.nodes:
            self.pods_of_no_node.pop(name, None)
        else:
            self.pods_of_no_node.setdefault(name, now_ns + _UNKNOWN_LEASE_NS)

    def _take_group(self, group: PodGroup, now_ns: int) -> None:
        name = group.metadata.name
        before = self.groups.get(name)
        if before is not None and before.metadata.revision > group.metadata.revision:
            return
        self.groups[name] = group
        if group.status.phase is not GroupPhase.PENDING or (
            before is not None and before.metadata.uid != group.metadata.uid
        ):
            self.waiting_ns.pop(name, None)
        if group.status.phase is GroupPhase.PENDING:
            self.waiting_ns.setdefault(name, now_ns)

    def _drop(self, kind: Known, name: str) -> None:
        if kind is Node:
            seen = self.nodes.pop(name)
            self.silences.pop(name, None)
            self.emptied.pop(name, None)
            until = seen.deadline_ns(0)
            self.pods_of_no_node.update(dict.fromkeys(self.pods_of_node.get(name, ()), until))
        elif kind is Pod:
            pod = self.pods.pop(name)
            _discard(self.pods_of_node, pod.status.node, name)
            _discard(self.pods_of_group, pod.spec.group, name)
            self.since_ns.pop(name, None)
            self.troubled_ns.pop(name, None)
            self.pods_of_no_node.pop(name, None)
        else:
            del self.groups[name]
            self.waiting_ns.pop(name, None)

    def _known(self, kind: Known, name: str) -> Resource | None:
        if kind is Node:
            seen = self.nodes.get(name)
            return None if seen is None else seen.node
        return self.pods.get(name) if kind is Pod else self.groups.get(name)

    def _names(self, kind: Known) -> list[str]:
        return list(self.nodes if kind is Node else self.pods if kind is Pod else self.groups)


def trouble_of(pod: Pod) -> str:
    """Return what ended a pod's program since the pod was created, for people; empty for nothing."""
    status = pod.status
    if status.phase is Phase.FAILED:
        return "has failed"
    if any(container.restarts for container in status.containers):
        return "was restarted"
    return "has lost its node" if status.phase is Phase.PENDING and status.epoch else ""


def _waited_for(pod: Pod) -> str:
    """Return the event that a pod waits for: its stop, or the handling of its failure; empty for none."""
    if pod.status.node is not None:
        is_to_stop = pod.metadata.deleting_ns is not None or pod.status.phase is Phase.STOPPING
        return f"stop {pod.status.epoch}" if is_to_stop else ""
    return f"failed {pod.status.retries}" if pod.status.phase is Phase.FAILED else ""


def _add(index: dict[str, set[str]], key: str | None, name: str) -> None:
    if key is not None:
        index.setdefault(key, set()).add(name)


def _discard(index: dict[str, set[str]], key: str | None, name: str) -> None:
    if key is None or key not in index:
        return
    index[key].discard(name)
    if not index[key]:
        del index[key]
