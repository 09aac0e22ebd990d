"""A cluster in memory: the API server's state, nodes with their own leases, and losses in between.

Bindings and releases are the server's own functions. Time is one number; each node's clock has its own rate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from controller.apiserver.registry import placements
from controller.apiserver.registry.placements import Binding, BindingRequest, Release, ReleaseRequest, State
from controller.apiserver.resources import Metadata, Node, Pod, PodGroup
from controller.apiserver.resources.hardware import Hardware
from controller.apiserver.resources.node import NodeSpec, NodeStatus
from controller.apiserver.resources.pod import Phase
from controller.common.errors import ApiError, NotFoundError, StaleError
from controller.workloads.placement.deciding import reconcile
from controller.workloads.placement.settings import PlacementSettings
from controller.workloads.placement.values import (
    Action,
    CreatePod,
    DeletePod,
    MarkSilent,
    ReleaseShare,
    ReleaseSilent,
    SetGroup,
    SetNode,
    SetPod,
)
from controller.workloads.placement.view import KINDS, Known, View

S: Final = 1_000_000_000
HARDWARE: Final = Hardware(cpu_milli=1_000_000)


@dataclass(slots=True)
class Server:
    """Resources by kind and name, and their event log."""

    now_ns: int = 0
    revision: int = 0
    known: dict[Known, dict[str, Any]] = field(default_factory=lambda: {kind: {} for kind in KINDS})
    log: list[tuple[int, Known, str, Any]] = field(default_factory=list)

    def write(self, changes: list[tuple[Known, str, Any]]) -> int:
        self.revision += 1
        for kind, name, resource in changes:
            made = None
            if resource is None:
                self.known[kind].pop(name, None)
            else:
                made = replace(resource, metadata=replace(resource.metadata, revision=self.revision))
                self.known[kind][name] = made
            self.log.append((self.revision, kind, name, made))
        return self.revision

    def create(self, kind: Known, resource: Any) -> None:
        name = resource.metadata.name
        if name in self.known[kind]:
            raise StaleError(f"{name} already exists")
        metadata = replace(resource.metadata, uid=f"{name}@{self.revision}", created_ns=1)
        self.write([(kind, name, replace(resource, metadata=metadata))])

    def change(self, kind: Known, resource: Any, part: str) -> None:
        current = self.get(kind, resource.metadata.name, resource.metadata.revision)
        made = replace(current, **{part: getattr(resource, part)})
        if part == "spec":
            made = replace(made, metadata=replace(current.metadata, labels=resource.metadata.labels))
        self.write([(kind, resource.metadata.name, made)])

    def delete(self, kind: Known, name: str, revision: int = 0) -> None:
        current = self.get(kind, name, revision)
        if kind is Pod and current.status.node is not None:
            current = replace(current, metadata=replace(current.metadata, deleting_ns=1))
            self.write([(kind, name, current)])
        else:
            self.write([(kind, name, None)])

    def get(self, kind: Known, name: str, revision: int = 0) -> Any:
        current = self.known[kind].get(name)
        if current is None:
            raise NotFoundError(f"there is no {name}")
        if revision and current.metadata.revision != revision:
            raise StaleError(f"{name} is of another revision")
        return current

    def act(self, pods: list[str], nodes: set[str], make: Callable[[State], State]) -> None:
        """Bind or release like the registry."""
        pods_by_name = {name: self.known[Pod].get(name) for name in pods}
        there = [pod for pod in pods_by_name.values() if pod is not None]
        nodes = nodes | {pod.status.node for pod in there if pod.status.node is not None}
        groups = {pod.spec.group for pod in there if pod.spec.group in self.known[PodGroup]}
        state = State(
            pods_by_name,
            {name: self.known[Node][name] for name in nodes if name in self.known[Node]},
            {name: self.known[PodGroup][name] for name in groups},
        )
        made = make(state)
        changes: list[tuple[Known, str, Any]] = [(Pod, name, pod) for name, pod in made.pods.items()]
        changes += [(Node, name, node) for name, node in made.nodes.items()]
        changes += [(PodGroup, name, group) for name, group in made.groups.items()]
        self.write(changes)

    def bind(self, where: dict[str, str]) -> None:
        request = BindingRequest(bindings=tuple(Binding(pod=pod, node=node) for pod, node in where.items()))
        self.act(list(where), set(where.values()), lambda state: placements.bind(state, request, self.now_ns))

    def release(self, *releases: Release) -> None:
        request = ReleaseRequest(releases=releases)
        nodes = {release.node for release in releases if release.node is not None}
        pods = [release.pod for release in releases]
        self.act(pods, nodes, lambda state: placements.release(state, request, self.now_ns))


@dataclass(slots=True)
class Machine:
    """A node's manager that obeys the lease: it kills its pods when the lease ends by its own clock."""

    name: str
    rate: float = 1.0
    """Rate of its clock relative to true time."""
    lease_s: float = 40.0
    is_dead: bool = False
    is_cut_off: bool = False
    lease_until_ns: int = 0
    running: dict[str, int] = field(default_factory=dict)
    """Epochs of pods by name."""

    def is_leased(self, now_ns: int) -> bool:
        return now_ns < self.lease_until_ns

    def tick(self, now_ns: int) -> None:
        if self.is_dead or not self.is_leased(now_ns):
            self.running.clear()

    def report(self, server: Server, *, answered: bool = True) -> None:
        """Report; if the answer is lost, the server has the report but the lease is not renewed."""
        if self.is_dead or self.is_cut_off:
            return
        self.tick(server.now_ns)
        node = server.known[Node][self.name]
        status = NodeStatus(ready=True, heartbeat_ns=server.now_ns + 1, hardware=HARDWARE)
        server.write([(Node, self.name, replace(node, status=status))])
        if answered:
            self.lease_until_ns = server.now_ns + int(self.lease_s * S / self.rate)
            self.look(server)

    def look(self, server: Server) -> None:
        """Run exactly the pods bound here, in their epochs; stop those to be removed."""
        if self.is_dead or self.is_cut_off or not self.is_leased(server.now_ns):
            return
        mine = [pod for pod in server.known[Pod].values() if pod.status.node == self.name]
        self.running = {pod.metadata.name: pod.status.epoch for pod in mine if pod.metadata.deleting_ns is None}
        for pod in mine:
            name, status = pod.metadata.name, pod.status
            if pod.metadata.deleting_ns is not None:
                server.release(Release(pod=name, epoch=status.epoch))
            elif status.phase is not Phase.RUNNING:
                server.change(Pod, replace(pod, status=replace(status, phase=Phase.RUNNING)), "status")


@dataclass(slots=True)
class Controller:
    """A workload controller whose state lags behind the log, and some of whose writes are lost."""

    server: Server
    settings: PlacementSettings
    view: View = field(init=False)
    seen: int = 0

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Restart without state."""
        server = self.server
        self.view = View(server.now_ns)
        for kind in KINDS:
            self.view.take_all(kind, server.known[kind].values(), server.revision, server.now_ns)
        self.seen = len(server.log)

    def hear(self, count: int) -> None:
        """Take the next event."""
        for revision, kind, name, resource in self.server.log[self.seen : self.seen + count]:
            if resource is None:
                self.view.remove(kind, name, revision)
            else:
                self.view.take(resource, self.server.now_ns)
            for each in KINDS:
                self.view.note_revision(each, revision)
        self.seen = min(self.seen + count, len(self.server.log))

    def round(self, fates: Iterator[str]) -> int:
        """Decide and write: `lost` before the write, `unanswered` after it; return the number of writes."""
        decided = reconcile(self.view, self.server.now_ns, self.settings)
        for action in decided.actions:
            fate = next(fates)
            if fate == "lost":
                continue
            try:
                self.carry_out(action)
            except ApiError:
                continue
            if fate != "unanswered":
                self.note(action)
        return len(decided.actions)

    def note(self, action: Action) -> None:
        now_ns = self.server.now_ns
        if isinstance(action, MarkSilent):
            self.view.note_silence(action.node.metadata.name, now_ns)
        elif isinstance(action, ReleaseSilent) and action.counts:
            self.view.note_emptied(action.node, action.heartbeat_ns, now_ns)

    def carry_out(self, action: Action) -> None:
        server = self.server
        match action:
            case CreatePod(pod):
                server.create(Pod, pod)
            case DeletePod(pod, _, orphan_of):
                group = None if orphan_of is None else server.known[PodGroup].get(orphan_of[0])
                if orphan_of is not None and group is not None and group.metadata.uid == orphan_of[1]:
                    raise StaleError("it is there")
                server.delete(Pod, pod.metadata.name, pod.metadata.revision)
            case SetPod(pod, _):
                server.change(Pod, pod, "status")
            case SetGroup(group, _, _):
                server.change(PodGroup, group, "status")
            case MarkSilent(node, _):
                server.change(Node, node, "status")
            case SetNode(node, _):
                server.change(Node, node, "spec")
            case ReleaseSilent(_, _, releases, _):
                server.release(*releases)
            case ReleaseShare(node_name, pod_name):
                server.release(Release(pod=pod_name, node=node_name))


def new_node(name: str, lease_s: float) -> Node:
    return Node(metadata=Metadata(name=name), spec=NodeSpec(lease_s=lease_s))
