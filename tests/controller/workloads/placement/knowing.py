"""Hand-made views for tests of decisions."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from controller.apiserver.resources import Metadata, Node, Pod, PodGroup, Resource
from controller.apiserver.resources.node import NodeSpec, NodeStatus, Share
from controller.apiserver.resources.pod import Location, Phase, PodSpec, PodStatus
from controller.workloads.placement.deciding import reconcile
from controller.workloads.placement.settings import PlacementSettings
from controller.workloads.placement.template import pod_of
from controller.workloads.placement.values import Decided
from controller.workloads.placement.view import KINDS, View
from tests.controller.workloads.placement.serving_placement import TEMPLATE

S: Final = 1_000_000_000
SETTINGS: Final = PlacementSettings()


def node(name: str, *, heartbeat: int = 1, lease_s: float = 40.0, ready: bool = True, **more: Any) -> Node:
    """Return a node that has reported."""
    status = NodeStatus(ready=ready, heartbeat_ns=heartbeat or None)
    return Node(
        metadata=Metadata(name=name, uid=name, revision=heartbeat), spec=NodeSpec(lease_s=lease_s), status=status
    )


def pod(name: str, where: str | None = None, spec: PodSpec = TEMPLATE, **status: Any) -> Pod:
    """Return a pod, bound to a node with epoch 1, or nowhere."""
    phase = Phase.PENDING if where is None else Phase.RUNNING
    pod_status = PodStatus(**{"phase": phase, "node": where, "epoch": 0 if where is None else 1, **status})
    return Pod(metadata=Metadata(name=name, uid=name, revision=1), spec=spec, status=pod_status)


def stating(name: str, where: str) -> Pod:
    """Return a pod that states its node."""
    return pod(name, where, replace(TEMPLATE, location=Location(node=where)))


def deleting(pod: Pod) -> Pod:
    """Return a pod marked for deletion."""
    return replace(pod, metadata=replace(pod.metadata, deleting_ns=1))


def member(group: PodGroup, index: int, where: str | None = None, **status: Any) -> Pod:
    """Return a pod from a group's template."""
    made = pod_of(group, index, None)
    made_pod = pod(made.metadata.name, where, made.spec, **status)
    return replace(made_pod, metadata=replace(made_pod.metadata, labels=made.metadata.labels))


def view_of(*resources: Resource, at_ns: int = 0) -> View:
    """Return a view with exactly these resources."""
    view = View(at_ns)
    for kind in KINDS:
        view.take_all(kind, [resource for resource in resources if isinstance(resource, kind)], 1, at_ns)
    return view


def decide(view: View, seconds: float, settings: PlacementSettings = SETTINGS) -> Decided:
    """Return the decisions this many seconds after the start."""
    return reconcile(view, int(seconds * S), settings)


def share_of(pod: Pod) -> Share:
    """Return a pod's share of its node."""
    return Share(pod=pod.metadata.name, uid=pod.metadata.uid, epoch=pod.status.epoch)
